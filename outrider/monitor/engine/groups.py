"""All engine processes of the worker: of trunks, and of versions apart.

An uploaded challenger starts apart: a process without secrets and with a memory bound. After ``PROVEN_ASKS``
answers it moves into its trunk's process. A version that held up or ended a shared process leaves and returns
the same way.
"""

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.uploads.store import uploaded_versions
from outrider.errors import OutriderError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source

from .asks import AGAIN, Ask, AskAnswer, Name
from .client import EngineClient, Making
from .events import Ended, EngineEvent, Parted, VersionLoad
from .launch import ChildProcess, StartEngine
from .memory_bound import bound_bytes
from .metrics import EngineMetrics
from .trunk_groups import opening_uploads, stored_sources, trunk_of
from .version_launch import files_of, launch_of

OBSERVE_S = 0.5
SAMPLE_ROWS = 64
"""Records that a new version is tried on first."""
PROVEN_ASKS = 3
APART = "~apart:"
"""Begin of the name of a process with one version, which no version can have."""


@dataclass(slots=True)
class ApartVersion:
    answered: int = 0
    is_moving: bool = False
    stays: bool = False


class EngineGroups:
    """Shadow engine processes by trunk; only :meth:`wait` waits."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        objects: LocalObjects,
        metrics: EngineMetrics | None = None,
        *,
        start: StartEngine = ChildProcess,
    ) -> None:
        self._start = start
        self._metrics = metrics
        self._observed = 0.0
        self._settings, self._engine, self._objects = settings, engine, objects
        self._wake = threading.Event()
        self._clients: dict[Name, EngineClient] = {}
        self._leaving: list[EngineClient] = []
        """Processes whose version has moved, until their asks are answered."""
        self._trunks: dict[Name, Name] = {}
        self._places: dict[Name, Name] = {}
        self._apart: dict[Name, ApartVersion] = {}
        self._uploaded: set[Name] = set()
        self._waiting: list[Name] = []
        """Uploads that load after the model's other versions, whose peak bounds their memory."""
        self._loading: set[Name] = set()
        self._peaks: dict[str, int] = {}
        """Peak memory of an engine without uploaded challengers, by model."""
        self._samples: dict[str, Batch] = {}
        self._events: list[EngineEvent] = []

    def load(self, name: Name, /) -> None:
        try:
            with self._engine.connect() as connection:
                trunk = trunk_of(name, stored_sources(connection))
            if self._is_uploaded_challenger(name):
                self._uploaded.add(name)
        except (OutriderError, OSError) as error:
            self._events.append(VersionLoad(name, str(error)))
            return
        self._trunks[name] = trunk
        if name not in self._uploaded:
            self._loading.add(name)
            self._load_into(trunk, name)
        elif self._is_measuring(name[0]):
            self._waiting.append(name)
        else:
            self._load_uploaded(name)

    def unload(self, name: Name, /) -> None:
        trunk, place = self._trunks.pop(name, None), self._places.pop(name, None)
        self._apart.pop(name, None)
        self._uploaded.discard(name)
        self._loading.discard(name)
        self._waiting = [one for one in self._waiting if one != name]
        for key in {trunk, place} - {None}:
            if key is not None:
                self._unload_from(key, name)

    def submit(self, ask: Ask, /) -> None:
        self._samples[ask.model] = ask.batch.slice(0, min(ask.batch.rows, SAMPLE_ROWS))
        places: dict[Name | None, list[str]] = {}
        for version in ask.versions:
            places.setdefault(self._places.get((ask.model, version)), []).append(version)
        for place, versions in places.items():
            part = ask if len(places) == 1 else replace(ask, versions=tuple(versions))
            if place is not None:
                self._clients[place].submit(part)
                continue
            for version in part.answers:
                self._events.append(
                    AskAnswer(ask.number, version, None, failure=f"{ask.model}@{version} is not loaded")
                )

    def group(self, name: Name, /) -> str:
        """Process of a version: one ask may name several versions of one process."""
        return "@".join(self._places.get(name, name))

    def events(self) -> Sequence[EngineEvent]:
        self._wake.clear()
        found, self._events = self._events, []
        for key, client in list(self._clients.items()):
            for event in client.poll():
                found += self._taken(key, event)
        for client in list(self._leaving):
            found += client.poll()
            if not client.waiting_rows:
                client.stop()
                self._leaving.remove(client)
        self._begin_waiting()
        now = time.monotonic()
        if self._metrics is not None and now - self._observed > OBSERVE_S:
            self._observed = now
            self._metrics.observe(self._clients)
        return found

    def wait(self, timeout_s: float, /) -> bool:
        return self._wake.wait(timeout_s)

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        for client in [*self._clients.values(), *self._leaving]:
            client.stop()

    @property
    def clients(self) -> Mapping[Name, EngineClient]:
        return self._clients

    # ---- apart from the others -------------------------------------------------------------------------

    def _taken(self, key: Name, event: EngineEvent) -> Sequence[EngineEvent]:
        if isinstance(event, Parted):
            self._go_apart(event.name, event.asks)
            return ()
        if isinstance(event, VersionLoad):
            return self._loaded(key, event)
        if isinstance(event, AskAnswer) and not event.version.startswith(AGAIN):
            self._count(key, event)
        return (event,)

    def _loaded(self, key: Name, event: VersionLoad) -> Sequence[EngineEvent]:
        name = event.name
        self._loading.discard(name)
        apart = self._apart.get(name)
        if apart is None or not apart.is_moving or key == self._places.get(name):
            return (event,)
        apart.is_moving = False
        if not event.failure:
            self._leaving.append(self._clients.pop(self._places[name]))
            self._places[name] = key
            del self._apart[name]
            return ()
        apart.stays = True
        return (Ended(name, event.failure, is_alone=False),) if event.is_end else ()

    def _count(self, key: Name, answer: AskAnswer) -> None:
        """Count a block answered apart; enough of them let a version move to its trunk."""
        name = key[0], answer.version
        apart = self._apart.get(name)
        if apart is None or key != self._places.get(name) or answer.outputs is None:
            return
        apart.answered += 1
        if apart.answered >= PROVEN_ASKS and not (apart.is_moving or apart.stays):
            client = self._clients.get(self._trunks[name])
            if client is not None:
                try:
                    making = self._making(name)
                    apart.is_moving = self._may_read(client, making)
                    apart.stays = not apart.is_moving
                    if apart.is_moving:
                        client.load(name, making)
                except (OutriderError, OSError):
                    apart.stays = True

    def _go_apart(self, name: Name, asks: Sequence[Ask] = (), *, stays: bool = False) -> None:
        self._apart[name] = ApartVersion(stays=stays)
        is_there = self._load_into((name[0], f"{APART}{name[1]}"), name)
        for ask in asks:
            if is_there:
                self.submit(ask)
            else:
                self._events.append(AskAnswer(ask.number, name[1], None, failure="it cannot be loaded again"))

    def _load_uploaded(self, name: Name) -> None:
        if self._trunks[name] == name:
            self._load_into(name, name)
        else:
            self._go_apart(name)

    def _begin_waiting(self) -> None:
        for name in list(self._waiting):
            if not self._is_measuring(name[0]):
                self._waiting.remove(name)
                self._load_uploaded(name)

    def _is_measuring(self, model: str) -> bool:
        return any(name[0] == model for name in self._loading)

    def _is_uploaded_challenger(self, name: Name) -> bool:
        with self._engine.connect() as connection:
            found = models.get(connection, *name)
            return found.status != "champion" and name in uploaded_versions(connection)

    # ---- processes -------------------------------------------------------------------------------------

    def _load_into(self, key: Name, name: Name) -> bool:
        try:
            making = self._making(name)
        except (OutriderError, OSError) as error:
            self._loading.discard(name)
            self._events.append(VersionLoad(name, str(error)))
            return False
        client = self._clients.get(key)
        if client is not None and not self._may_read(client, making):
            self._go_apart(name, stays=True)
            return True
        self._places[name] = key
        if client is None:
            client = self._clients[key] = self._open(key, name, making)
        client.load(name, making)
        return True

    def _unload_from(self, key: Name, name: Name) -> None:
        client = self._clients.get(key)
        if client is None or name not in client.names:
            return
        client.unload(name)
        if not client.names:
            self._events += client.poll()
            client.stop()
            del self._clients[key]

    def _open(self, key: Name, name: Name, making: Making) -> EngineClient:
        with self._engine.connect() as connection:
            opens_upload = name in opening_uploads(connection)
        launch = launch_of(self._settings, key[0], making.source, making.weights, opens_upload=opens_upload)
        readable = None if launch.readable is None else launch.readable + self._files_on(key)
        launch = replace(launch, readable=readable, start=self._start)
        return EngineClient(
            "@".join(key), launch, deadline_s=self._deadline_s, wake=self._wake.set,
            bound=lambda: self._bound(key), parts=True,
        )  # fmt: skip

    def _files_on(self, trunk: Name) -> tuple[Path, ...]:
        with self._engine.connect() as connection:
            sources = stored_sources(connection)
            names = [(one.model, one.version) for one in models.versions_in_service(connection)]
        found = list[Path]()
        for name in names:
            if name in sources and trunk_of(name, sources) == trunk:
                with contextlib.suppress(OutriderError, OSError):  # it cannot be loaded then, either
                    found += self._files(self._making(name))
        return tuple(dict.fromkeys(found))

    def _may_read(self, client: EngineClient, making: Making) -> bool:
        """True where a confined process started with access to a version's files."""
        readable = client.launch.readable
        return readable is None or all(
            any(one.is_relative_to(each) for each in readable) for one in self._files(making)
        )

    def _files(self, making: Making) -> tuple[Path, ...]:
        return files_of(self._settings, making.source, making.weights)

    def _bound(self, key: Name) -> int | None:
        """Memory bound of a process in bytes; None without an uploaded challenger."""
        client, model = self._clients.get(key), key[0]
        if client is None:
            return None
        if self._uploaded.isdisjoint(client.names):
            self._peaks[model] = max(self._peaks.get(model, 0), client.peak_bytes)
            return None
        own = self._settings.models.get(model)
        return bound_bytes(None if own is None else own.shadow.memory_mb, self._peaks.get(model, 0))

    def _deadline_s(self, model: str) -> float:
        return self._settings.models[model].shadow.deadline_s

    def _making(self, name: Name) -> Making:
        with self._engine.connect() as connection:
            found = models.get(connection, *name)
        source = loadable_source(self._settings, found)
        weights = None if found.weights is None else self._objects.path(found.weights)
        return Making(source, weights, self._samples.get(name[0]))
