"""Forks an intake for every line on stdin: the imports are paid once, so that hundreds of rounds are cheap.

A line is a JSON object: ``{"config": …}`` starts one, with ``cut_after``, ``how`` and ``seed`` for a power
cut (`power_cut.c`, preloaded), ``pragmas`` for the journal, ``commit_s`` for a slow disk, ``descriptors`` as
their hard bound, ``is_whole`` for pages and queries too; answered with its pid and port.
``{"wait": pid}`` is answered with its exit status once it has ended.
"""

import ctypes
import gc
import json
import logging
import os
import resource
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.journal_file import JournalFile
from outrider.monitor.server import process as intake
from outrider.monitor.settings.config import load_settings


def run(order: dict[str, Any], listener: socket.socket) -> int:
    """Be an intake; a power cut ends it in between."""
    settings = load_settings(Path(order["config"]))
    if not order.get("is_whole"):
        setattr(intake.ServerProcess, "add_routers", lambda _: None)  # noqa: B010 - pages take no records
    if most := order.get("descriptors"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    prepare = JournalFile._prepare

    def prepared(file: JournalFile, max_bytes: int | None) -> None:
        prepare(file, max_bytes)
        for pragma in order.get("pragmas", ()):
            file.db.execute(f"PRAGMA {pragma}").fetchall()

    setattr(JournalFile, "_prepare", prepared)  # noqa: B010 - what the configuration cannot say
    if "commit_s" in order:
        append = SqliteJournal.append

        def slow(journal: SqliteJournal, *values: Any, **named: Any) -> list[int]:
            time.sleep(order["commit_s"])
            return append(journal, *values, **named)

        setattr(SqliteJournal, "append", slow)  # noqa: B010 - a disk that is slow
    if order.get("cut_after") is not None:
        arm = ctypes.CDLL(None).power_cut_arm
        arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_uint64]
        arm(os.fsencode(settings.data_folder), order["cut_after"], order["how"], order["seed"])
    return intake.serve(intake.ServerProcess(settings), listener)


def answer(value: Any) -> None:
    """Answer an order."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Fork and reap until stdin ends."""
    logging.disable(logging.WARNING)
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer(os.waitstatus_to_exitcode(status))
            continue
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run(order, listener)
            except BaseException:  # noqa: BLE001 - a child must never come back into the loop
                traceback.print_exc()
            finally:
                os._exit(status)
        answer({"pid": child, "port": listener.getsockname()[1]})
        listener.close()


if __name__ == "__main__":
    main()
