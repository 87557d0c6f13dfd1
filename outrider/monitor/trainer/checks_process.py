"""Validation and scoring in a killable process, for users' files.

``python -m outrider.monitor.trainer.checks_process --fd N --parent PID``. It lives for one question: what
Great Expectations has registered from a user's file is gone with it, and so the next one takes an edit up.
"""

import argparse
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.datasets.data_docs import page
from outrider.dataops.datasets.suite_files import Expected
from outrider.dataops.datasets.validation import Earlier, Rules, Validated, validate
from outrider.errors import OutriderError, ValidationRefused
from outrider.monitor.process import wire
from outrider.monitor.process.child import CONTROL_FD, die_with_parent
from outrider.monitor.process.starved_time import Patience
from outrider.user_code import innermost_line, load_callable, load_file, traced_line

BUILD_S = 120.0
"""For loading the library and the files, without rows."""


@dataclass(frozen=True, slots=True)
class JudgedRows:
    verdict: Validated
    docs: bytes


def judged(
    batch: Batch,
    rules: Rules,
    *,
    title: str,
    reference: pa.Schema | None = None,
    earlier: Earlier | None = None,
    checks: Sequence[Path] = (),
    deadline_s: float = BUILD_S,
    pause: Callable[[], None] = lambda: None,
) -> JudgedRows:
    """Validate rows, in a process of its own where there are ``checks``.

    ValidationRefused where the rows cannot be used as a whole, or the user's expectations give no
    verdict.
    """
    if not checks:
        verdict = validate(batch, rules, reference=reference, earlier=earlier)
        return JudgedRows(verdict, _docs(verdict, title))
    asked = {
        "rules": dataclasses.asdict(rules),
        "title": title,
        "earlier": None if earlier is None else _told(earlier),
        "has_reference": reference is not None,
    }
    buffers = [batch.to_ipc(), *([] if reference is None else [reference.serialize().to_pybytes()])]
    answer, parts = _asked(asked, buffers, checks, deadline_s, pause, earlier)
    quarantined = {int(row): why for row, why in json.loads(bytes(parts[0])).items()}
    rows = [row for row in range(batch.rows) if row not in quarantined]
    return JudgedRows(Validated(rows, quarantined, answer["summary"]), bytes(parts[1]))


def build_problems(
    suite: Sequence[Expected], checks: Sequence[Path], *, deadline_s: float = BUILD_S
) -> list[str]:
    try:
        answer, _ = _asked({"suite": list(suite)}, [], checks, deadline_s, lambda: None, None)
    except ValidationRefused as error:
        return [f": {error}"]
    return list(map(str, answer["problems"]))


def scored(
    scorer: str,
    folder: Path,
    answers: pa.Table,
    *,
    deadline_s: float,
    pause: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """Losses of champion and candidate by a user's ``file.py:callable``, shape (2, rows).

    ``answers`` has columns ``label``, ``champion`` and ``candidate``; ValidationRefused where no such
    losses come in time.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answers.schema) as writer:
        writer.write_table(answers)
    file = folder / scorer.rpartition(":")[0]
    asked = {"scorer": scorer, "folder": str(folder), "option": "gate.scorer_deadline_s"}
    _, parts = _asked(asked, [sink.getvalue()], [file], deadline_s, pause, None)
    return np.frombuffer(bytes(parts[0]), np.float64).reshape(2, -1)


def _scores(asked: dict[str, Any], table: pa.Table) -> NDArray[np.float64]:
    scorer, name = load_callable(asked["scorer"], Path(asked["folder"])), asked["scorer"]
    found = []
    for side in ("champion", "candidate"):
        said, labels = (table.column(one).to_pylist() for one in (side, "label"))  # it may change its lists
        try:
            losses = np.asarray(scorer(said, labels))
        except (Exception, SystemExit) as error:
            # Its text may quote a row.
            where = innermost_line(error, Path(asked["folder"]))
            raise ValidationRefused(f"{name} raised {type(error).__name__}{where} ({side})") from error
        if losses.shape != (table.num_rows,) or losses.dtype.kind not in "biuf":
            raise ValidationRefused(
                f"{name}: one loss for each of {table.num_rows} rows expected, got {losses.dtype} of shape "
                f"{losses.shape}"
            )
        losses = losses.astype(np.float64)
        odd = ~(np.isfinite(losses) & (losses >= 0.0))
        if odd.any():
            row = int(np.flatnonzero(odd)[0])
            raise ValidationRefused(f"{name}: losses >= 0 expected, got {losses[row]} for row {row} ({side})")
        found.append(losses)
    return np.stack(found)


def _told(earlier: Earlier) -> dict[str, Any]:
    return {
        "aggregates": earlier.aggregates,
        "stays": earlier.stays,
        "replaced": list(earlier.replaced),
        "full": earlier.full,
        "nulls": list(earlier.nulls),
    }


def _docs(verdict: Validated, title: str) -> bytes:
    from outrider.dataops.datasets.expectations import rendered

    rows = int(verdict.summary["aggregates"]["rows"])
    return page(rendered(verdict.outcomes, name=title, rows=rows), title).encode()


def _asked(
    asked: dict[str, Any],
    buffers: Sequence[bytes | memoryview],
    checks: Sequence[Path],
    deadline_s: float,
    pause: Callable[[], None],
    earlier: Earlier | None,
) -> tuple[dict[str, Any], list[memoryview]]:
    """Answer of a process that is killed at the deadline, without counting starved time."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-X", "faulthandler", "-m", "outrider.monitor.trainer.checks_process"]
    command += ["--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
    inherited = [int(os.environ[CONTROL_FD])] if CONTROL_FD in os.environ else []
    with ours, theirs, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno(), *inherited],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        theirs.close()
        patience = Patience(process.pid, deadline_s)
        try:
            ours.settimeout(deadline_s)
            wire.send(ours, asked | {"checks": [str(path) for path in checks]}, buffers)
            while True:
                patience.wait(ours, pause)
                answer, parts = wire.receive(ours)
                if "ask" not in answer:
                    break
                assert earlier is not None
                wire.send(ours, {}, [earlier.rows().to_ipc()])
        except TimeoutError:
            process.send_signal(signal.SIGABRT)  # the fault handler writes where it stands
            where = _place(process, said, checks)
            option = asked.get("option", "validation.deadline_s")
            raise ValidationRefused(f"it takes longer than {deadline_s:g} s ({option}){where}") from None
        except (EOFError, OSError):
            code = process.wait()
            where = _place(process, said, checks)
            raise ValidationRefused(
                f"the process of {', '.join(path.name for path in checks)} ended (exit code {code}){where}"
            ) from None
        finally:
            process.kill()
            process.wait()
    if "refused" in answer:
        rows = {int(row): why for row, why in answer["rows"].items()}
        raise ValidationRefused(str(answer["refused"]), rows=rows)
    return answer, parts


def _place(process: subprocess.Popen[bytes], said: IO[bytes], checks: Sequence[Path]) -> str:
    """Innermost line of a user's file where the process was."""
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        return ""
    said.seek(0)
    return traced_line(said.read().decode(errors="replace"), [path.parent for path in checks])


def _serve(sock: socket.socket) -> None:
    asked, buffers = wire.receive(sock)
    try:
        for file in asked["checks"]:
            load_file(file)
        answer, parts = _answer(sock, asked, buffers)
    except OutriderError as error:
        rows = error.rows if isinstance(error, ValidationRefused) else {}
        answer, parts = {"refused": str(error), "rows": dict(rows)}, []
    wire.send(sock, answer, parts)


def _answer(
    sock: socket.socket, asked: dict[str, Any], buffers: Sequence[memoryview]
) -> tuple[dict[str, Any], list[bytes]]:
    if "suite" in asked:
        from outrider.dataops.datasets.expectations import build_problems

        return {"problems": list(build_problems(asked["suite"]))}, []
    if "scorer" in asked:
        with pa.ipc.open_stream(pa.py_buffer(buffers[0])) as reader:
            return {}, [_scores(asked, reader.read_all()).tobytes()]

    def read() -> Batch:
        wire.send(sock, {"ask": "rows"})
        return Batch.from_ipc(pa.py_buffer(wire.receive(sock)[1][0]))

    told = asked["earlier"]
    verdict = validate(
        Batch.from_ipc(pa.py_buffer(buffers[0])),
        Rules(**asked["rules"]),
        reference=pa.ipc.read_schema(pa.py_buffer(buffers[1])) if asked["has_reference"] else None,
        earlier=None
        if told is None
        else Earlier(told["aggregates"], read, told["stays"], told["replaced"], told["full"], told["nulls"]),
    )
    return {"summary": verdict.summary}, [
        json.dumps(verdict.quarantined).encode(),
        _docs(verdict, asked["title"]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="outrider.monitor.trainer.checks_process")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(parent=options.parent)
    with socket.socket(fileno=options.fd) as sock:
        _serve(sock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
