"""The assertion host: the process in which user assertions and live tests run.

It holds no state, so that it can be killed at any moment: the worker sends each block with its windows and
gets one frame per task, in the order of the tasks, and therefore knows which one was running.
"""

import argparse
import json
import os
import resource
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch, Group, load_assertions
from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.metamorphic import Metamorphic
from outrider.behavioral_tests.sampling import generator, sample_rows
from outrider.behavioral_tests.suite import BehavioralTest
from outrider.errors import OutriderError

from . import wire
from .child import die_with_parent
from .config import ModelSettings, Settings, load_settings
from .findings_frame import joined, pack
from .metrics.channel import new_metrics, start_sender
from .shared_state import SharedState, seal

T = TypeVar("T")


class Loading:
    """Tells the worker which file is loaded next, so that it knows which one ended or held up the process.

    Parameters
    ----------
    skipped
        Why a file is left out this time, by path.
    """

    def __init__(self, sock: socket.socket, skipped: dict[str, str]) -> None:
        self._sock = sock
        self.skipped = skipped

    def announce(self, path: Path) -> None:
        """The file is loaded now."""
        wire.send(self._sock, {"loading": str(path)})


class ModelCode:
    """The user code of one model: its assertions, its live tests, and what failed to load."""

    def __init__(self, settings: Settings, model: ModelSettings, loading: Loading) -> None:
        self._loading = loading
        self.assertions: dict[str, Assertion] = {}
        self.live: dict[str, Metamorphic] = {}
        self.suites: dict[str, int] = {}
        self.errors: list[str] = []
        for file in model.assertions:
            for judge in self._load(load_assertions, settings.path(file)):
                if self._is_free(judge.name, file):
                    self.assertions[judge.name] = judge
        for file in model.behavior:
            tests = self._load(_tests, settings.path(file))
            self.suites[file] = len(tests)
            for test in tests:
                if isinstance(test, Metamorphic) and test.live > 0 and self._is_free(test.name, file):
                    self.live[test.name] = test

    def _load(self, load: Callable[[Path], Sequence[T]], path: Path) -> Sequence[T]:
        if (reason := self._loading.skipped.get(str(path))) is not None:
            self.errors.append(f"{path}: {reason}")
            return ()
        self._loading.announce(path)
        try:
            return load(path)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a user's file may do anything
            told = str(error) if isinstance(error, OutriderError) else f"{path}: {error!r}"
            self.errors.append(told)
            return ()

    def _is_free(self, name: str, file: str) -> bool:
        if name not in self.assertions and name not in self.live:
            return True
        self.errors.append(f"{file}: {name} is defined before, in this or another file; names must be unique")
        return False

    def manifest(self) -> dict[str, Any]:
        """What this model offers, as JSON."""
        judges = [
            {
                "name": judge.name,
                "revision": judge.revision,
                "level": judge.level,
                "description": judge.description,
                "owner": judge.owner,
                "window": _told(judge),
                "needs": judge.needs,
            }
            for judge in self.assertions.values()
        ]
        live = [
            {
                "name": test.name,
                "revision": test.revision,
                "level": test.level,
                "description": test.description,
                "owner": test.owner,
                "kind": test.kind,
                "rate": test.live,
            }
            for test in self.live.values()
        ]
        return {"assertions": judges, "live": live, "suites": self.suites, "errors": self.errors}


class Host:
    """Answers the worker's requests over one socket until it closes."""

    def __init__(self, sock: socket.socket, code: dict[str, ModelCode], seed: int) -> None:
        self._sock = sock
        self._code = code
        self._seed = seed
        self._batch: Batch | None = None
        self._shared = SharedState()

    def run(self) -> None:
        """Serve until the worker is gone."""
        manifest = {model: code.manifest() for model, code in self._code.items()}
        wire.send(self._sock, {"manifest": manifest})
        while True:
            try:
                request, buffers = wire.receive(self._sock)
            except EOFError:
                return
            if request["op"] == "judge":
                self._judge(request, buffers)
            else:
                self._judge_answers(request, buffers)

    def _judge(self, request: dict[str, Any], buffers: list[memoryview]) -> None:
        """One frame per assertion (its fires), then one per live test (its questions)."""
        code = self._code[request["model"]]
        batch = _batch(buffers[0]).with_answers(
            {slot: _batch(buffers[index]) for slot, index in request["answers"].items()}
        )
        self._batch = batch
        for name in request["assertions"]:
            views = request["views"].get(name)
            self._task(
                name, lambda name=name, views=views: self._fires(code.assertions[name], batch, views, buffers)
            )
        for name in request["live"]:
            seq = np.frombuffer(buffers[request["seq"]], dtype=np.int64)
            self._task(name, lambda name=name, seq=seq: self._questions(code.live[name], batch, seq))

    def _fires(
        self, judge: Assertion, batch: Batch, views: list[int] | None, buffers: list[memoryview]
    ) -> tuple[dict[str, Any], list[bytes]]:
        if views is None:
            # A batch of its own: what one assertion caches or mutates, no other sees.
            return {}, pack(judge.findings(batch.own()))
        found, rows = [], []
        for first in views:
            is_new, is_last = (np.frombuffer(buffers[first + n], dtype=np.bool_) for n in (1, 2))
            view = _batch(buffers[first]).with_marks(is_new, is_last, window=judge.window)
            found.append(judge.findings(view))
            rows.append(view.rows)
        return {}, pack(joined(found, rows))

    def _questions(
        self, test: Metamorphic, batch: Batch, seq: NDArray[np.int64]
    ) -> tuple[dict[str, Any], list[bytes]]:
        sampled = np.flatnonzero(sample_rows(test.name, batch.keys, rate=test.live, seed=self._seed))
        rows, copies = [], []
        # One generator per journal block: how the worker joins blocks changes no perturbation.
        for block in np.unique(seq[sampled]):
            here = sampled[seq[sampled] == block]
            rng = generator(self._seed, test.name, int(block))
            asked = test.questions(batch.take(here), rng=rng)
            if len(asked.rows):
                rows.append(here[asked.rows])
                copies.append(asked.batch)
        copied = Batch.concat(copies).to_ipc() if copies else b""
        positions = np.concatenate([*rows, np.zeros(0, dtype=np.intp)]).astype(np.int64)
        return {}, [sampled.astype(np.int64).tobytes(), positions.tobytes(), copied]

    def _judge_answers(self, request: dict[str, Any], buffers: list[memoryview]) -> None:
        """One frame per live test: which of its answered questions failed, and how badly."""
        code = self._code[request["model"]]
        for name, index in request["tests"].items():
            self._task(name, lambda name=name, index=index: self._verdicts(code.live[name], buffers, index))

    def _verdicts(
        self, test: Metamorphic, buffers: list[memoryview], index: int
    ) -> tuple[dict[str, Any], list[bytes]]:
        judged = test.judge(_batch(buffers[index]), _batch(buffers[index + 1]))
        return {}, [judged.failed.tobytes(), judged.severity.tobytes()]

    def _task(self, name: str, work: Any) -> None:
        try:
            header, buffers = work()
        except MemoryError:
            wire.send(
                self._sock,
                {"name": name, "failed": "out_of_memory", "detail": "allocated beyond host.memory_bytes"},
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; the worker counts it
            reason = (
                "wrong_shape" if isinstance(error, ValueError) and "must return" in str(error) else "raised"
            )
            wire.send(self._sock, {"name": name, "failed": reason, "detail": _last_lines(error)})
        else:
            wire.send(self._sock, {"name": name, **header}, buffers)
        finally:
            self._shared.restore()


def _told(judge: Assertion) -> dict[str, Any] | None:
    if judge.window is None:
        return None
    kind = "group" if isinstance(judge.window, Group) else "window"
    return asdict(judge.window) | {"kind": kind}


def _tests(path: Path) -> Sequence[BehavioralTest]:
    return load_suite(path).tests


def _batch(payload: memoryview) -> Batch:
    return Batch.from_ipc(pa.py_buffer(payload))


def _last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-3))[-2000:]


def _limit_memory(extra: int) -> None:
    """Bound the address space to what is mapped now and ``extra`` bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Entry point of the process; started by the worker with its end of a socket pair."""
    parser = argparse.ArgumentParser(prog="outrider.monitor.host")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--skip", default="{}", help="JSON: files to leave out, and why")
    options = parser.parse_args()
    die_with_parent(parent=options.parent)
    settings = load_settings(options.config)
    sock = socket.socket(fileno=options.fd)
    sock.settimeout(None)
    loading = Loading(sock, json.loads(options.skip))
    code = {name: ModelCode(settings, model, loading) for name, model in settings.models.items()}
    if sys.platform == "linux":
        _limit_memory(settings.host.memory_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(1)
    start_sender(new_metrics(), process="host")
    seal()
    Host(sock, code, settings.worker.seed).run()


if __name__ == "__main__":
    main()
