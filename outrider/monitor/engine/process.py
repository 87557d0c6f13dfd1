"""Engine process of one trunk: asked over a socket, loading meanwhile.

Holds no state but what it was sent, so it can be killed at any moment; torch is loaded with the first version
that needs it.
"""

import argparse
import hashlib
import os
import queue
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.assertions import Batch, Predictor
from outrider.dataops.confinement import confine
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from outrider.monitor.process import wire
from outrider.monitor.process.batch_frames import BatchReader
from outrider.monitor.process.child import die_with_parent
from outrider.parts import install_hint

from .asks import Ask, AskAnswer, Name
from .device_options import DeviceOptions
from .frames import AnswerReader, AnswerWriter, Header
from .predictors import PredictorEngine
from .work_board import WorkBoard

if TYPE_CHECKING:
    from .engine import Engine
    from .executor import LoadedVersion

STATS_S = 0.5
TENSOR_KINDS = ("torch", "hf")


@dataclass(slots=True)
class NextVersion:
    name: Name
    told: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class BuiltVersion:
    name: Name
    loaded: "LoadedVersion | None" = None
    predict: Predictor | None = None
    sample: Batch | None = None
    failure: str = ""


@dataclass(slots=True)
class Totals:
    trunk_forwards: int = 0
    head_forwards: int = 0
    rows: int = 0
    answers: int = 0


class EngineProcess:
    def __init__(
        self,
        sock: socket.socket,
        *,
        folder: Path,
        options: DeviceOptions,
        batch_rows: int | None = None,
        board: WorkBoard | None = None,
    ) -> None:
        self._sock = sock
        self._folder = folder
        self._options = options
        self._batch_rows = batch_rows
        self._inbox: queue.SimpleQueue[
            tuple[Header, list[memoryview]] | NextVersion | BuiltVersion | None
        ] = queue.SimpleQueue()
        self._to_load: queue.SimpleQueue[tuple[Header, list[memoryview]] | None] = queue.SimpleQueue()
        self._work: Callable[[Sequence[Name]], None] = (lambda _names: None) if board is None else board.show
        self._light = PredictorEngine(self._work)
        self._engine: Engine | None = None
        self._modules: dict[Name, Any] = {}
        self._writer, self._reader = AnswerWriter(), AnswerReader()
        self._totals = Totals()
        self._told = Totals()
        self._told_at = 0.0

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True, name="reader").start()
        threading.Thread(target=self._load, daemon=True, name="loader").start()
        wire.send(self._sock, {"op": "hello"})
        while self._take_in():
            for answer in self._light.step():
                self._send(answer)
            if self._engine is not None:
                for answer in self._engine.step():
                    self._send(answer)
            self._tell()
        self._to_load.put(None)

    # ---- frames ----------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read frames while passes run, so that senders never wait for one."""
        try:
            while True:
                self._inbox.put(wire.receive(self._sock))
        except (EOFError, OSError):
            self._inbox.put(None)

    def _take_in(self) -> bool:
        """Process all received frames, waiting where idle; False when the other end is gone."""
        self._work(())
        idle_s = self._idle_s()
        while True:
            try:
                one = self._inbox.get(block=idle_s != 0.0, timeout=idle_s)
            except queue.Empty:
                return True
            if one is None:
                return False
            if isinstance(one, NextVersion):
                wire.send(self._sock, {"op": "loading", "name": one.name})
                one.told.set()
            elif isinstance(one, BuiltVersion):
                self._add(one)
            else:
                self._heed(*one)
            idle_s = 0.0

    def _idle_s(self) -> float | None:
        if self._light.waiting:
            return 0.0
        if self._engine is not None and self._engine.waiting:
            return self._engine.pause_s
        return STATS_S if self._totals != self._told else None

    def _heed(self, header: Header, buffers: list[memoryview]) -> None:
        op = header["op"]
        if op == "load":
            self._to_load.put((header, buffers))
        elif op == "unload":
            self._unload((header["name"][0], header["name"][1]))
        else:
            self._submit(self._reader.ask(header, buffers))

    def _submit(self, ask: Ask) -> None:
        """Ask versions where they are: a tensor version may have been converted to another kind."""
        engine, light = self._engine, set(self._light.names)
        tensors = () if engine is None else tuple(v for v in ask.versions if (ask.model, v) not in light)
        others = tuple(version for version in ask.versions if version not in tensors)
        for asked, versions in ((engine, tensors), (self._light, others)):
            if versions and asked is not None:
                asked.submit(replace(ask, versions=versions))

    def _send(self, answer: AskAnswer) -> None:
        self._totals.answers += 1
        wire.send(self._sock, *self._writer.answer(answer))

    def _tell(self) -> None:
        now = time.monotonic()
        if self._totals == self._told or now - self._told_at < STATS_S:
            return
        self._told_at, self._told = now, Totals(**asdict(self._totals))
        light, told = self._light.stats(), asdict(self._totals)
        told["trunk_forwards"] += light["batches"]
        told["head_forwards"] += light["batches"]
        told["rows"] += light["rows"]
        told["busy_s"] = light["busy_s"] + (0.0 if self._engine is None else self._engine.device.busy_s)
        wire.send(self._sock, {"op": "stats", **told, **self._memory()})

    def _memory(self) -> dict[str, int]:
        """Bytes of weights: as held, and as if each version had its own."""
        alone, seen = 0, {}
        for module in self._modules.values():
            for tensor in [*module.parameters(), *module.buffers()]:
                alone += tensor.nbytes
                storage = tensor.untyped_storage()
                seen[storage.data_ptr()] = storage.nbytes()
        return {"bytes": sum(seen.values()), "bytes_alone": alone}

    # ---- versions --------------------------------------------------------------------------------------

    def _load(self) -> None:
        samples = BatchReader()
        while (frame := self._to_load.get()) is not None:
            header, buffers = frame
            name: Name = (header["name"][0], header["name"][1])
            loading = NextVersion(name)
            self._inbox.put(loading)
            loading.told.wait()
            try:
                sample = samples.batch(*buffers) if buffers else None
                self._inbox.put(self._made(name, header, sample))
            except BaseException as error:  # noqa: BLE001 - a user's file may do anything; it is told
                failure = f"{type(error).__name__}: {error}{install_hint(error)}"
                self._inbox.put(BuiltVersion(name, failure=failure))

    def _made(self, name: Name, header: Header, sample: Batch | None) -> BuiltVersion:
        source = Source.from_json(header["source"])
        weights = None if header["weights"] is None else verified(Path(header["weights"]))
        if source.kind not in TENSOR_KINDS:
            model = load_model(source, folder=self._folder, weights=weights, device=self._options.device)
            return BuiltVersion(name, predict=as_predictor(model), sample=sample)
        if self._engine is None:
            self._engine = self._open_engine()
        loaded = self._engine.prepare(name, source, weights=weights, folder=self._folder)
        return BuiltVersion(name, loaded=loaded, sample=sample)

    def _open_engine(self) -> "Engine":
        from .engine import Engine
        from .open_device import open_device

        device = open_device(self._options)
        return Engine(device, batch_rows=self._batch_rows, on_pass=self._passed, on_work=self._work)

    def _passed(self, names: Any, rows: int) -> None:
        self._totals.trunk_forwards += 1 if self._engine is None else self._engine.forwards(names)
        self._totals.head_forwards += len(names)
        self._totals.rows += rows

    def _add(self, made: BuiltVersion) -> None:
        failure = made.failure
        self._work([made.name])
        try:
            if made.predict is not None:
                self._light.add(made.name, made.predict)
            elif made.loaded is not None and self._engine is not None:
                self._engine.add(made.loaded)
                self._modules[made.name] = made.loaded.model.module  # type: ignore[union-attr]  # a runner
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            failure = f"{type(error).__name__}: {error}"
        if not failure and made.loaded is not None:
            self._warm_up(made)
        self._work(())
        self._totals.answers += 1  # memory has changed: that is told, too
        wire.send(self._sock, {"op": "loaded", "name": made.name, "failure": failure})

    def _warm_up(self, made: BuiltVersion) -> None:
        if made.sample is None or self._engine is None:
            return
        try:
            self._engine.warm_up(made.name, made.sample)
        except Exception as error:  # noqa: BLE001 - a sample may be a record that it cannot take
            del error

    def _unload(self, name: Name) -> None:
        self._light.unload(name)
        self._modules.pop(name, None)
        self._totals.answers += 1
        if self._engine is not None:
            self._engine.unload(name)


def verified(path: Path) -> Path:
    """A file that is named by its SHA-256; ConfigError where its content differs."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != path.name:
        raise ConfigError(f"object {path} has the content of {found}; restore it")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="outrider.monitor.engine")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--options", required=True, help="device options as JSON")
    parser.add_argument("--batch-rows", type=int)
    parser.add_argument("--board", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--confine", type=Path, nargs="*", help="files and folders that it may open, alone")
    options = parser.parse_args()
    if options.confine is not None:  # before any thread: those that run already are not confined
        confine(options.confine, [Path.cwd()])
    die_with_parent(parent=options.parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sock = socket.socket(fileno=options.fd)
    sock.settimeout(None)
    device = DeviceOptions.from_json(options.options)
    if str(options.folder) not in sys.path:  # what the project's files import; it is no working directory
        sys.path.append(str(options.folder))
    board = WorkBoard(options.board)
    EngineProcess(
        sock, folder=options.folder, options=device, batch_rows=options.batch_rows, board=board
    ).run()
    os._exit(0)  # threads that load may be in the middle of it
