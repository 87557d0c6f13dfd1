"""Intake and queries in one process, without torch or user code.

Run as ``python -m outrider.monitor.intake --config outrider.toml``; alone, or as a child of the supervisor.
"""

import argparse
import contextlib
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn

from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.redaction.columns import ColumnRules
from outrider.dataops.redaction.kinds import Kind
from outrider.dataops.state.folder_secret import secret_of
from outrider.errors import OutriderError
from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.bodies import WholeBodies
from outrider.monitor.http.body_places import BodyPlaces
from outrider.monitor.http.hosts import HostNames, TrustedProxies, is_loopback
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.http.limits import ASGIApp, BodyBounds, ByteBudget
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.http.refused_copies import RefusedCopies
from outrider.monitor.http.routes import RouteScopes, ScopedRouter
from outrider.monitor.intake.asgi import BodyLimits, HotRoutes
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.erased import ErasedNames
from outrider.monitor.intake.group_commit import Committed, GroupCommit
from outrider.monitor.intake.join import RECORDS_OF, Joiner
from outrider.monitor.intake.protocols import base
from outrider.monitor.intake.protocols.chat import Chat
from outrider.monitor.intake.protocols.cloudevents import CloudEvents, ModelForm
from outrider.monitor.intake.protocols.native import Native
from outrider.monitor.intake.protocols.open_inference import MirrorTarget, OpenInference
from outrider.monitor.intake.protocols.otlp.setup import otlp_intakes
from outrider.monitor.intake.protocols.request_models import RequestModels
from outrider.monitor.intake.redaction import IntakeRedaction
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.intake.trusted_networks import KeylessWrites
from outrider.monitor.metrics.channel import ProcessesCollector, new_metrics, start_receiver
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.process.bell import ringer
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.clock import open_clock
from outrider.monitor.process.collector import settle_garbage
from outrider.monitor.process.late_pandas import keep_pandas_out
from outrider.monitor.process.logs import set_up
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.payloads import payload_rules
from outrider.monitor.settings.reload import read_state
from outrider.monitor.settings.sections import LimitSettings
from outrider.monitor.views.columns import routes as column_routes
from outrider.monitor.views.columns.routes import ColumnSource
from outrider.monitor.views.open_inference import routes as open_inference

from .app import DOCUMENT, FIRST, build_app
from .connections import Connections, connections_that_fit
from .head import HeadAsGet
from .labels import PageLabels

log = logging.getLogger(__name__)

OPEN_FILES = ("/static/outrider.css", "/static/logo.svg")
"""Files that the login page shows."""
LISTEN_FD = "OUTRIDER_LISTEN_FD"
CHILDREN = ("worker", "host", "trainer")
_MOST_PAUSE_S = 60.0
_WRITER_DEAD_S = 2.0
_DRAIN_S = 3
_EXIT_WRITER_DEAD = 70


class ServerProcess:
    def __init__(self, settings: Settings) -> None:
        storage, limits = settings.storage, settings.limits
        self.settings = settings
        self._expiry: threading.Thread | None = None
        self.keyring = Keyring.of_folder(settings.data_folder)
        self.journal = SqliteJournal(
            settings.journal_path,
            max_bytes=storage.journal_max_bytes,
            min_free_bytes=storage.min_free_bytes,
        )
        self.metrics = new_metrics(models=settings.models, process="intake")
        redacted = {name: ColumnRules(own.redact) for name, own in settings.models.items() if own.redact}
        redaction = _redaction(settings, redacted, self.metrics)
        redaction.guard(logging.getLogger().handlers)
        self.refusals = RefusalBook(settings.data_folder / "run" / "refused.json", written=redaction.text)
        self.collector = ProcessesCollector(self.metrics, expected=CHILDREN)
        closed = self.metrics.counter("outrider_connections_closed_total")
        total = connections_that_fit(settings.connections.total)
        self.connections = Connections(
            settings.connections,
            total=total,
            closed=lambda cause: closed.labels(cause=cause).inc(),
        )
        book = SchemaBook(
            {name: model.columns for name, model in settings.models.items()},
            self.journal.schemas(),
            notes=self.journal.notes(of_columns=True),
            payloads={name: payload_rules(settings, name) for name in settings.models},
            inputs={name: model.needed_inputs for name, model in settings.models.items()},
            redact=redacted,
            groups={name: model.group_columns for name, model in settings.models.items()},
        )
        bodies = BodyLimits(
            limits.body_bytes,
            limits.ratio,
            limits.parsed_bytes,
            {n: m.intake.body_bytes for n, m in settings.models.items() if m.intake.body_bytes},
        )
        decoder = Decoder(
            book,
            ErasedNames.of_folder(settings.data_folder),
            max_records=limits.records,
            max_columns=limits.columns,
            max_depth=limits.depth,
            max_elements=limits.elements,
            max_bytes=bodies.most_bytes,
        )
        waits = {name: settings.join_s(name) for name in settings.models}
        joiner = Joiner(
            self.journal,
            wait_s=lambda model: waits.get(model, settings.intake.join_s),
            schema_of=decoder.schema,
        )
        self.clock = open_clock(self.journal)
        self.writer = GroupCommit(
            self.journal,
            queue_bytes=limits.queue_bytes,
            on_commit=_observe_commits(self.metrics, ringer()),
            joiner=joiner,
            book=book,
            clock=self.clock,
            max_ahead_us=int(settings.intake.max_ahead_s * 1e6),
            redaction=redaction,
        )
        models = RequestModels({name: model.intake.request_models for name, model in settings.models.items()})
        targets = {name: MirrorTarget.of(model, limits) for name, model in settings.models.items()}
        self.labels = PageLabels(settings, decoder, self.writer)
        columns = ColumnSource(book, decoder, self.writer, limits.columns)
        routers = [
            ScopedRouter(
                open_inference.ShadowTarget(settings, models, lambda: self.writer.fault), open_inference
            ),
            ScopedRouter(columns, column_routes),
        ]
        self._api = build_app(
            fault=lambda: self.writer.fault or self._routes.load_fault,
            collector=self.collector,
            routers=routers,
            config=lambda: read_state(settings.data_folder),
        )
        forms = {name: ModelForm.of(model, limits) for name, model in settings.models.items()}
        mirrors: list[base.IntakeProtocol] = [
            OpenInference(targets, models, schema=decoder.schema),
            Chat(targets, models, max_depth=limits.depth),
            CloudEvents(forms, models, max_events=limits.records, max_depth=limits.depth),
        ]
        self.otlp = otlp_intakes(
            settings, self.journal, decoder, self.writer, self.metrics, self.refusals, redaction
        )
        intakes: list[base.IntakeProtocol] = [
            Native("records", decoder),
            Native("labels", decoder),
            *mirrors,
            self.otlp.traces,
            self.otlp.logs,
        ]
        self._routes = RouteScopes(
            intakes, routes=[*FIRST, *(one for router in routers for one in router.scoped)]
        )
        budget = ByteBudget(limits.queue_bytes)
        hot = HotRoutes(
            WholeBodies(self._api, _bounds(limits), limits.parsed_bytes, budget),
            intakes=intakes,
            decoder=decoder,
            writer=self.writer,
            limits=bodies,
            budget=budget,
            metrics=self.metrics,
            refusals=self.refusals,
        )
        self.gate = KeyGate(
            hot,
            self.keyring,
            routes=self._routes,
            open_paths=_open_paths(settings),
            is_keyless=KeylessWrites(
                settings.intake.keyless_networks, [*mirrors, self.otlp.traces, self.otlp.logs]
            ),
            names=HostNames([settings.server.host, *settings.server.names]),
            proxies=TrustedProxies(settings.server.trusted_proxies),
            places=BodyPlaces(min(settings.connections.bodies_per_key, total // 2)),
        )
        self.copies = RefusedCopies(self.gate, lambda *asked: any(one.matches(*asked) for one in mirrors[:2]))
        self.app: ASGIApp = HeadAsGet(self.copies)

    def announce_routers(self) -> None:
        """Hold requests for queries and pages until :meth:`add_routers` is done."""
        self._routes.is_loading = True

    def end_by(self, is_ending: Callable[[], bool]) -> None:
        self._api.is_ending = is_ending

    def add_routers(self) -> None:
        """Add query, command and page routers; requests for them wait until then."""
        from outrider.monitor.views.every import every_router
        from outrider.monitor.views.service import Service

        try:
            service = Service.open(
                self.settings,
                self.keyring,
                health=self.collector.health,
                refusals=self.refusals,
                labels=self.labels,
                refused=self.copies.newest,
            )
            every = every_router(service)
            self._api.include_router(every)
            self._routes.add([*every.scoped, DOCUMENT])
        except Exception as error:
            self._routes.load_fault = (
                f"queries and pages cannot be offered: {type(error).__name__}: {error}; records are taken, "
                "and the log has the traceback"
            )
            raise
        self._api.openapi_schema = None
        self._routes.is_loading, self._routes.load_fault = False, None

    def start_expiry(self, stop: threading.Event) -> None:
        from outrider.monitor.intake.expiry import start_expiry

        self._expiry = start_expiry(self.settings, self.journal, self.metrics, stop, self.clock)

    def observe(self) -> None:
        self.refusals.save()
        folder = self.settings.data_folder
        journal = self.settings.journal_path
        with contextlib.suppress(OSError):
            files = [journal, journal.with_name(journal.name + "-wal")]
            size = sum(file.stat().st_size for file in files if file.exists())
            self.metrics.gauge("outrider_journal_bytes").set(size)
            self.metrics.gauge("outrider_disk_free_bytes").set(shutil.disk_usage(folder).free)
        refused = bool(read_state(folder).problem)
        self.metrics.gauge("outrider_config_refused").set(1 if refused else 0)
        limit = self.settings.storage.journal_max_bytes
        self.metrics.gauge("outrider_journal_limit_bytes").set(limit)
        self.metrics.gauge("outrider_queue_bytes").set(self.writer.queued_bytes)
        self.metrics.gauge("outrider_connections").set(len(self.connections))

    def close(self) -> None:
        self.writer.close()
        self.refusals.save()
        if self._expiry is not None:
            self._expiry.join(2.0)
        self.keyring.close()
        self.journal.close()


def serve(intake: ServerProcess, listener: socket.socket) -> int:
    config = uvicorn.Config(
        intake.app,
        loop="uvloop",
        http=intake.connections.protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    server = uvicorn.Server(config)
    intake.end_by(lambda: server.should_exit)
    # uvicorn raises the signal again once it has drained: by then it must not end the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    stopped = threading.Event()
    intake.writer.start()
    intake.announce_routers()
    keeper = threading.Thread(target=_keep, args=(intake, server, stopped), name="housekeeping", daemon=True)
    keeper.start()
    receiver = start_receiver(intake.collector)
    try:
        server.run(sockets=[listener])
    finally:
        stopped.set()
        writer_died = not intake.writer.is_alive
        intake.close()
        if receiver is not None:
            receiver.close()
    return _EXIT_WRITER_DEAD if writer_died else 0


def _keep(intake: ServerProcess, server: uvicorn.Server, stopped: threading.Event) -> None:
    """Complete the API, then set gauges every second, and end in order when the writer has died."""
    missing = [intake.add_routers, lambda: intake.start_expiry(stopped), settle_garbage]
    next_s, pause_s = 0.0, 1.0
    while True:
        while missing and time.monotonic() >= next_s:
            try:
                missing[0]()
                del missing[0]
            except Exception:
                log.exception("a part of the service is missing; tried again in %g s", pause_s)
                next_s, pause_s = time.monotonic() + pause_s, min(2 * pause_s, _MOST_PAUSE_S)
        if stopped.wait(1.0):
            return
        intake.observe()
        _follow_keys(intake.keyring)
        try:
            intake.otlp.release()
        except Exception:
            log.exception("traced calls that have waited long enough could not be written; tried again")
        if not intake.writer.is_alive:
            log.error("the journal writer has died: this process ends in %g s", _WRITER_DEAD_S)
            stopped.wait(_WRITER_DEAD_S)  # long enough for /readyz to say so
            server.should_exit = True
            return


def _follow_keys(keyring: Keyring) -> None:
    """Adopt changed keys, and note used ones; a busy database is asked again in a second."""
    try:
        keyring.refresh()
        keyring.note_use()
    except Exception:
        log.exception("keys and sessions cannot be read anew; those of before stay in force")


def _redaction(settings: Settings, rules: Mapping[str, ColumnRules], metrics: Metrics) -> IntakeRedaction:
    """Redaction of the configuration; without any, no secret is drawn."""
    counter = metrics.counter("outrider_redacted_values_total")

    def counted(model: str, counts: Counter[Kind]) -> None:
        for kind, count in counts.items():
            counter.labels(model=model, kind=kind).inc(count)

    return IntakeRedaction(rules, secret_of(settings.data_folder) if rules else b"", counted)


def _observe_commits(metrics: Metrics, ring: Callable[[], None]) -> Callable[[Committed], None]:
    seconds = metrics.histogram("outrider_commit_seconds")
    halves = metrics.counter("outrider_halves_total")
    accepted = metrics.counter("outrider_records_accepted_total")
    steps = metrics.counter("outrider_clock_steps_total")

    def observe(committed: Committed) -> None:
        ring()
        if committed.step_us:
            steps.labels(direction="forward" if committed.step_us > 0 else "back").inc()
        if committed.rows:
            seconds.observe(committed.seconds)
        for (model, outcome), count in committed.outcomes.items():
            halves.labels(model=model, outcome=outcome).inc(count)
            # A record is accepted when it is written: sides that wait are not yet.
            records = count * RECORDS_OF.get(outcome, 0)
            if records:
                accepted.labels(model=model).inc(records)

    return observe


def _bounds(limits: LimitSettings) -> Callable[[str], BodyBounds | None]:
    outcomes = BodyBounds(limits.body_bytes, limits.ratio)
    others = BodyBounds(limits.request_bytes, limits.ratio, "limits.request_bytes")

    def of_path(path: str) -> BodyBounds | None:
        if path.startswith("/v1/datasets/") or (path.startswith("/v1/uploads/") and "/files/" in path):
            return None  # streams to disk
        is_outcomes = path.startswith("/v1/suites/") and path.endswith("/outcomes")
        return outcomes if is_outcomes else others

    return of_path


def _open_paths(settings: Settings) -> frozenset[str]:
    paths = set(OPEN_FILES)
    if settings.server.metrics_open and is_loopback(settings.server.host):
        paths.add("/metrics")
    return frozenset(paths)


def bind(host: str, port: int) -> socket.socket:
    """Listening socket, or the one inherited by ``OUTRIDER_LISTEN_FD``."""
    if LISTEN_FD in os.environ:
        return socket.socket(fileno=int(os.environ[LISTEN_FD]))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2048)
    return listener


def main(arguments: Sequence[str] | None = None) -> int:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m outrider.monitor.intake", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("outrider.toml"))
    options = parser.parse_args(arguments)
    keep_pandas_out()
    set_up("intake")
    try:
        settings = load_settings(options.config)
        set_up("intake", settings.server.log_format)
        intake = ServerProcess(settings)
        listener = bind(settings.server.host, settings.server.port)
    except OutriderError as error:
        log.error("%s", error)
        return 3
    except OSError as error:
        log.error("cannot listen on %s:%s: %s", settings.server.host, settings.server.port, error)
        return 3
    log.info("listening on http://%s:%s", *listener.getsockname()[:2])
    return serve(intake, listener)
