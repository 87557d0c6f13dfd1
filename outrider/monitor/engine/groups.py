"""All engine processes of the worker: one for each trunk."""

import threading
import time
from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.errors import ConfigError, OutriderError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source

from .asks import Ask, AskAnswer, Name
from .client import ChildProcess, EngineClient, Launch, Making, StartEngine
from .device_options import DeviceOptions
from .events import EngineEvent, VersionLoad
from .metrics import EngineMetrics
from .trunk_groups import trunk_of

OBSERVE_S = 0.5
SAMPLE_ROWS = 64
"""Records that a new version is tried on before it is asked."""


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
        self._trunks: dict[Name, Name] = {}
        """Trunk of every version that is loaded."""
        self._samples: dict[str, Batch] = {}
        self._events: list[EngineEvent] = []

    def load(self, name: Name, /) -> None:
        """Begin to load a version; :class:`VersionLoad` comes as an event."""
        try:
            making, trunk = self._making(name), trunk_of(name, self._sources())
        except (OutriderError, OSError) as error:
            self._events.append(VersionLoad(name, str(error)))
            return
        self._trunks[name] = trunk
        client = self._clients.get(trunk)
        if client is None:
            client = self._clients[trunk] = self._open(trunk)
        client.load(name, making)

    def unload(self, name: Name, /) -> None:
        """Forget a version; an empty trunk's process ends."""
        trunk = self._trunks.pop(name, None)
        if trunk is None:
            return
        client = self._clients[trunk]
        client.unload(name)
        if not client.names:
            self._events += client.poll()
            client.stop()
            del self._clients[trunk]

    def submit(self, ask: Ask, /) -> None:
        """Ask versions of one group; each answers in an event."""
        self._samples[ask.model] = ask.batch.slice(0, min(ask.batch.rows, SAMPLE_ROWS))
        trunk = self._trunks.get((ask.model, ask.versions[0]))
        if trunk is not None:
            self._clients[trunk].submit(ask)
            return
        for version in ask.answers:
            self._events.append(
                AskAnswer(ask.number, version, None, failure=f"{ask.model}@{version} is not loaded")
            )

    def group(self, name: Name, /) -> str:
        """Trunk of a version: one ask may name several of one trunk."""
        return "@".join(self._trunks.get(name, name))

    def events(self) -> Sequence[EngineEvent]:
        """Events of all processes; ended or hanging ones are restarted."""
        self._wake.clear()
        found, self._events = self._events, []
        for client in list(self._clients.values()):
            found += client.poll()
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
        for client in self._clients.values():
            client.stop()

    @property
    def clients(self) -> Mapping[Name, EngineClient]:
        """Processes by trunk."""
        return self._clients

    def _open(self, trunk: Name) -> EngineClient:
        worker, models_ = self._settings.worker, self._settings.models
        known = DeviceOptions.__dataclass_fields__.keys()
        options = DeviceOptions(**{n: v for n, v in worker.model_dump().items() if n in known})
        own = models_.get(trunk[0])
        rows = None if own is None else own.shadow.batch_rows
        launch = Launch(
            self._settings.base.resolve(), options.to_json(), worker.threads, rows, start=self._start
        )
        return EngineClient("@".join(trunk), launch, deadline_s=self._deadline_s, wake=self._wake.set)

    def _deadline_s(self, model: str) -> float:
        return self._settings.models[model].shadow.deadline_s

    def _making(self, name: Name) -> Making:
        with self._engine.connect() as connection:
            found = models.get(connection, *name)
        source = loadable_source(self._settings, found)
        if source is None:
            raise ConfigError("the model is of none of the kinds that can answer in the shadow")
        weights = None if found.weights is None else self._objects.path(found.weights)
        return Making(source, weights, self._samples.get(name[0]))

    def _sources(self) -> dict[Name, Source]:
        with self._engine.connect() as connection:
            found = models.all_versions(connection)
        return {(one.model, one.version): Source.from_json(one.source) for one in found if one.source}
