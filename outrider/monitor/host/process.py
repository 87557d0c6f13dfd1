"""Process in which user assertions and live tests run.

It holds no state, so it can be killed at any moment; the running task is named in memory shared with the
worker.
"""

import argparse
import json
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch, Group, load_assertions
from outrider.assertions.batch.columns_read import columns_read
from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.expect import spec_of
from outrider.behavioral_tests.metamorphic import Metamorphic
from outrider.behavioral_tests.runner import suite_files
from outrider.behavioral_tests.sampling import generator
from outrider.behavioral_tests.suite import BehavioralTest
from outrider.errors import OutriderError
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process import wire
from outrider.monitor.process.batch_frames import BatchReader
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.model_sections import ModelSettings

from .findings_frame import joined, pack
from .missing_inputs import NAME as MISSING_INPUTS
from .missing_inputs import missing_inputs
from .progress import TaskProgress
from .shared_state import seal
from .task_runner import TaskRunner, Work

T = TypeVar("T")


class LoadingReport:
    """Announcements of the file to be loaded next, so that the worker knows which one ended or hung
    the process; ``skipped`` has reasons by path."""

    def __init__(self, sock: socket.socket, skipped: dict[str, str]) -> None:
        self._sock = sock
        self.skipped = skipped

    def announce(self, path: Path) -> None:
        wire.send(self._sock, {"loading": str(path)})


class ModelCode:
    def __init__(self, settings: Settings, model: ModelSettings, loading: LoadingReport) -> None:
        self._loading = loading
        self.assertions: dict[str, Assertion] = {}
        self.live: dict[str, Metamorphic] = {}
        self.suites: dict[str, int] = {}
        self.tests: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.assertions |= _own_assertions(model)
        for file in model.assertions:
            if _is_to_come(settings.path(file)):
                continue
            for judge in self._load(load_assertions, settings.path(file)):
                if self._is_free(judge.name, file):
                    self.assertions[judge.name] = judge
        known: dict[tuple[str, str], str] = {}
        for file, path in _suite_files(settings, model):
            tests = self._load(_tests, path)
            self.suites[file] = len(tests)
            for test in tests:
                if (first := known.setdefault((test.suite, test.name), file)) != file:
                    self.errors.append(
                        f"{file}: test {test.name} of suite {test.suite} stands in {first} too; rename one"
                    )
            self.tests += [(test.suite, test.name) for test in tests]
            for test in tests:
                if isinstance(test, Metamorphic) and test.is_live and self._is_free(test.name, file):
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
                "rate": test.live_rate,
                "definition": _definition(test),
                "rows_per_s": test.live_rows_per_s,
                "tolerance": test.tolerance,
                "confidence": test.confidence,
            }
            for test in self.live.values()
        ]
        return {
            "assertions": judges,
            "live": live,
            "suites": self.suites,
            "tests": self.tests,
            "errors": self.errors,
        }


def _own_assertions(model: ModelSettings) -> dict[str, Assertion]:
    if model.intake.missing_inputs != "flag" or not model.declared_inputs:
        return {}
    return {MISSING_INPUTS: missing_inputs(model.declared_inputs)}


def _definition(test: Metamorphic) -> str:
    """Definition of a live test as in a suite file, so that its failures can become cases."""
    told = {"kind": test.kind, "capability": test.capability, "expect": dict(spec_of(test.expect)) or None}
    return json.dumps(told)


class Host:
    def __init__(
        self, sock: socket.socket, code: dict[str, ModelCode], *, seed: int, progress: TaskProgress
    ) -> None:
        self._sock = sock
        self._code = code
        self._seed = seed
        self._runner = TaskRunner(sock, progress)
        self._read = BatchReader().batch
        self._reads: dict[tuple[str, str], frozenset[str]] = {}
        self._news: dict[tuple[str, str], frozenset[str]] = {}
        """Columns read first in this request; confirmed by the next one, because results may be
        made again."""

    def run(self) -> None:
        manifest = {model: code.manifest() for model, code in self._code.items()}
        wire.send(self._sock, {"manifest": manifest})
        while True:
            try:
                request, buffers = wire.receive(self._sock)
            except EOFError:
                return
            self._reads |= self._news
            self._news.clear()
            work = self._judge if request["op"] == "judge" else self._judge_answers
            self._runner.run(work(request, buffers))

    def _judge(self, request: dict[str, Any], buffers: list[memoryview]) -> list[Work]:
        code = self._code[request["model"]]
        batch = self._read(*buffers[:2])
        if request["answers"]:
            batch = batch.with_answers(
                {slot: self._read(*buffers[at : at + 2]) for slot, at in request["answers"].items()}
            )
        views = request["views"]
        tasks: list[Work] = [
            partial(self._fires, code.assertions[name], batch, views.get(name), buffers)
            for name in request["assertions"]
        ]
        if request["live"]:
            seq = np.frombuffer(buffers[request["seq"]], dtype=np.int64)
            for name in request["live"]:
                sampled = np.frombuffer(buffers[request["sampled"][name]], dtype=np.int64)
                tasks.append(partial(self._questions, code.live[name], batch, seq, sampled))
        return tasks

    def _fires(
        self, judge: Assertion, batch: Batch, views: list[int] | None, buffers: list[memoryview]
    ) -> list[bytes]:
        reads: set[str] = set()
        if views is None:
            # A batch of its own: what one assertion caches or mutates, no other sees.
            return pack(judge.judged(batch.own(reads=reads)), self._new_reads(batch.model, judge.name, reads))
        found, rows = [], []
        for first in views:
            is_new, is_last = (np.frombuffer(buffers[first + n], dtype=np.bool_) for n in (2, 3))
            view = self._read(*buffers[first : first + 2]).with_marks(is_new, is_last, window=judge.window)
            found.append(judge.findings(view.own(reads=reads)))
            rows.append(view.rows)
        return pack(joined(found, rows), self._new_reads(batch.model, judge.name, reads))

    def _new_reads(self, model: str, name: str, reads: set[str]) -> list[str]:
        known = self._reads.get((model, name), frozenset())
        if reads <= known:
            return []
        self._news[model, name] = known | reads
        return columns_read(known | reads)

    def _questions(
        self, test: Metamorphic, batch: Batch, seq: NDArray[np.int64], sampled: NDArray[np.int64]
    ) -> list[bytes]:
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
        return [positions.tobytes(), copied]

    def _judge_answers(self, request: dict[str, Any], buffers: list[memoryview]) -> list[Work]:
        code = self._code[request["model"]]
        return [
            partial(self._verdicts, code.live[name], buffers, at) for name, at in request["tests"].items()
        ]

    def _verdicts(self, test: Metamorphic, buffers: list[memoryview], at: int) -> list[bytes]:
        judged = test.judge(self._read(*buffers[at : at + 2]), self._read(*buffers[at + 2 : at + 4]))
        return [judged.failed.tobytes(), judged.severity.tobytes()]


def _is_to_come(path: Path) -> bool:
    """True for a file of accepted proposals before any was accepted."""
    return path.name.startswith("learned") and not path.exists()


def _told(judge: Assertion) -> dict[str, Any] | None:
    if judge.window is None:
        return None
    kind = "group" if isinstance(judge.window, Group) else "window"
    return asdict(judge.window) | {"kind": kind}


def _suite_files(settings: Settings, model: ModelSettings) -> Iterator[tuple[str, Path]]:
    for named in model.behavior:
        top = settings.path(named)
        for path in suite_files(top):
            yield (named if path == top else f"{named}/{path.relative_to(top)}"), path


def _tests(path: Path) -> Sequence[BehavioralTest]:
    return load_suite(path).tests


def _limit_memory(extra: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(prog="outrider.monitor.host")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--progress", type=int, help="file descriptor of the requests")
    parser.add_argument("--parent", type=int)
    parser.add_argument("--skip", default="{}", help="files to leave out, with reasons, as JSON")
    options = parser.parse_args()
    die_with_parent(parent=options.parent)
    settings = load_settings(options.config)
    sock = socket.socket(fileno=options.fd)
    sock.settimeout(None)
    progress = TaskProgress(options.progress)
    progress.close_file()
    loading = LoadingReport(sock, json.loads(options.skip))
    code = {name: ModelCode(settings, model, loading) for name, model in settings.models.items()}
    import_module("pandas")  # before an assertion does: what is shared is sealed and stays
    if sys.platform == "linux":
        _limit_memory(settings.host.memory_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(1)
    start_sender(new_metrics(process="host"), process="host")
    seal()
    Host(sock, code, seed=settings.worker.seed, progress=progress).run()
