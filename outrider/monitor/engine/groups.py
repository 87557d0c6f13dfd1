"""All engine processes of the worker: of trunks, and of versions apart.

An uploaded challenger is apart at first: it has a process of its own, without secrets and with a bound on
memory, in which it is loaded and answers the stream. Once it has answered a few blocks there, it is loaded
into the process of its trunk, too, and moves there. A version whose work held up or ended a process that it
shared leaves it in the same way, with what it was asked, and comes back in the same way.
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
"""Records that a new version is tried on before it is asked."""
PROVEN_ASKS = 3
"""Blocks that a version answers apart, before it may share a process."""
APART = "~apart:"
"""Begin of the name of a process with one version, which no version can have."""


@dataclass(slots=True)
class ApartVersion:
    """Version in a process of its own, which belongs to a trunk."""

    answered: int = 0
    """Blocks."""
    is_moving: bool = False
    """Whether its trunk's process is loading it."""
    stays: bool = False
    """Whether that failed."""


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
        """Processes whose version has moved, until they have answered."""
        self._trunks: dict[Name, Name] = {}
        """Trunk of every version that is wanted."""
        self._places: dict[Name, Name] = {}
        """Process of each: its trunk's, or its own."""
        self._apart: dict[Name, ApartVersion] = {}
        self._uploaded: set[Name] = set()
        """Challengers that came by upload."""
        self._waiting: list[Name] = []
        """Of them, those that are loaded once the model's other versions are: these say how much memory."""
        self._loading: set[Name] = set()
        self._peaks: dict[str, int] = {}
        """Most memory of an engine without uploaded challengers, by model."""
        self._samples: dict[str, Batch] = {}
        self._events: list[EngineEvent] = []

    def load(self, name: Name, /) -> None:
        """Begin to load a version; :class:`VersionLoad` comes as an event."""
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
        """Forget a version; an empty process ends."""
        trunk, place = self._trunks.pop(name, None), self._places.pop(name, None)
        self._apart.pop(name, None)
        self._uploaded.discard(name)
        self._loading.discard(name)
        self._waiting = [one for one in self._waiting if one != name]
        for key in {trunk, place} - {None}:
            if key is not None:
                self._unload_from(key, name)

    def submit(self, ask: Ask, /) -> None:
        """Ask versions of one group; each answers in an event."""
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
        """Process of a version: one ask may name several of one process."""
        return "@".join(self._places.get(name, name))

    def events(self) -> Sequence[EngineEvent]:
        """Events of all processes; ended or hanging ones are restarted."""
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
        """Wait for an event; False when none came."""
        return self._wake.wait(timeout_s)

    def wake(self) -> None:
        """End a wait."""
        self._wake.set()

    def stop(self) -> None:
        """Kill all processes."""
        for client in [*self._clients.values(), *self._leaving]:
            client.stop()

    @property
    def clients(self) -> Mapping[Name, EngineClient]:
        """Processes by trunk."""
        return self._clients

    # ---- apart from the others -------------------------------------------------------------------------

    def _taken(self, key: Name, event: EngineEvent) -> Sequence[EngineEvent]:
        """Events that the worker hears for one of a process."""
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
        """Count a block that a version apart has answered; enough of them let it move to its trunk."""
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
        """Let a version have a process of its own."""
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
        """True while versions of a model that are no uploads are loaded."""
        return any(name[0] == model for name in self._loading)

    def _is_uploaded_challenger(self, name: Name) -> bool:
        with self._engine.connect() as connection:
            found = models.get(connection, *name)
            return found.status != "champion" and name in uploaded_versions(connection)

    # ---- processes -------------------------------------------------------------------------------------

    def _load_into(self, key: Name, name: Name) -> bool:
        """Load a version into a process, which is opened where there is none; False where it cannot be."""
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
        """Files of all versions in service that may share a process."""
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
        """True where a process that is confined, if at all, began with the files of a version."""
        readable = client.launch.readable
        return readable is None or all(
            any(one.is_relative_to(each) for each in readable) for one in self._files(making)
        )

    def _files(self, making: Making) -> tuple[Path, ...]:
        return files_of(self._settings, making.source, making.weights)

    def _bound(self, key: Name) -> int | None:
        """Bytes of memory of a process at most; None where no uploaded challenger is in it."""
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
