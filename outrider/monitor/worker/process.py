"""Worker: reads the journal from its cursors, judges unit by unit, commits each in one transaction.

Crash-only: a failure outside user code ends the process, and the next one continues from the committed
cursors and window checkpoints.
"""

import argparse
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import Engine

from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.journal.journal import Journal
from outrider.dataops.ledger.first_seen import note_configuration
from outrider.dataops.ledger.profiles import FIRST_ROWS
from outrider.dataops.loaders.training_rows import training_rows
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import DatabaseChanges, now_us, write
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.metrics import EngineMetrics
from outrider.monitor.host.client import HostClient
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process.bell import Bell
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.late_pandas import keep_pandas_out
from outrider.monitor.process.logs import RecordLog, set_up
from outrider.monitor.process.stores import open_stores
from outrider.monitor.registry.registration import Registration
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.payloads import open_payloads
from outrider.monitor.settings.reload import Serving, note_serving, read_state

from .admission import SheddingMeasure
from .backfill import Backfills
from .commits import Commits
from .context import WorkerContext
from .cursors.challenger_cursors import ChallengerCursors
from .cursors.champion_cursor import ChampionCursor
from .cursors.co_scheduling import CoScheduler
from .gauges import Gauges
from .inference import InferenceClient
from .live_budget import TimeBudget
from .live_endpoint import LiveEndpoints
from .llm_judge_slots import JudgeSlots
from .metrics import WorkerMetrics
from .objectives import Objectives
from .pipeline import CHAMPION, Pipeline
from .prefetch import PrefetchedAnswers
from .recovery import Recovery
from .registry_follower import RegistryFollower
from .shadow_versions import ShadowVersions

log = logging.getLogger("outrider.worker")

IDLE_S = 0.01
REST_S = 0.03
"""Polling interval at rest without a bell."""
REFRESH_S = 0.25
UNCHANGED_S = 1.0
"""Polling interval of the registry without commits."""
WAKEFUL_S = 1.0
"""Time after work in which everything is polled."""


class Worker:
    """Judges every model of the configuration, one unit at a time.

    ``journal`` is read-only; ``told`` is called once when all versions are loaded or known not to load;
    ``bell`` ends a wait of ``engines``.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        journal: Journal,
        host: HostClient,
        engines: EngineGroups,
        *,
        metrics: WorkerMetrics,
        objectives: Objectives | None = None,
        told: Callable[[Mapping[str, ShadowVersions]], None] | None = None,
        bell: Bell | None = None,
    ) -> None:
        objectives = objectives or Objectives(settings.models)
        objects = LocalObjects(settings.data_folder / "objects")
        registration = Registration(settings, engine, objects)
        registration.update()
        for name in registration.unregistered:
            log.warning(
                "a file of model %s does not exist yet, and its records wait in the journal; "
                "`outrider check-config` names the file",
                name,
            )
        self.engines = engines
        versions = {name: ShadowVersions(name, engines, clock=objectives.timer) for name in settings.models}
        self.context = context = WorkerContext(
            settings, engine, journal, metrics, objectives,
            InferenceClient(engines, versions), versions, open_pipelines(settings, host),
            open_incidents(settings, journal),
        )  # fmt: skip
        commits = Commits(context, RecordLog(log))
        for name, pipeline in context.pipelines.items():
            learned = partial(training_rows, engine, objects, name, least=FIRST_ROWS)
            pipeline.layouts.reference = context.incidents[name].training = learned
        self._host = host
        self._backfills = backfills = Backfills(context, commits)
        self._judges = JudgeSlots(context, commits, backfills)
        self._endpoints = LiveEndpoints(context, host, commits, backfills)
        self._champions: dict[str, ChampionCursor] = {}
        self._challengers: dict[str, ChallengerCursors] = {}
        prefetched = PrefetchedAnswers()
        for name in settings.models:
            scheduler = CoScheduler(name, context, prefetched)
            self._champions[name] = ChampionCursor(name, context, scheduler, commits, backfills)
            self._challengers[name] = ChallengerCursors(name, context, scheduler, commits, backfills)
        self._registry = RegistryFollower(context, registration)
        self._recovery = Recovery(context, commits, backfills)
        self._gauges = Gauges(context, backfills, self._challengers)
        self._refreshed = self._worked = self._looked = 0.0
        self._blocks, self._state = DatabaseChanges(settings.journal_path), DatabaseChanges.of(engine)
        self._told, self._bell = told, bell

    # ---- the loop --------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._blocks.has_changed()
            if self.step():
                self._worked = time.monotonic()
            else:
                self._rest(stop)

    def _rest(self, stop: threading.Event) -> None:
        """Wait; after a while without work only for blocks and events."""
        is_woken = self.engines.wait(IDLE_S)
        now = time.monotonic()
        if now - self._worked < WAKEFUL_S:
            return
        if self._bell is not None:
            self._bell.listen()
        pause_s = REST_S if self._bell is None else REFRESH_S
        while not is_woken and not stop.is_set() and time.monotonic() < now + REFRESH_S:
            is_woken = self._blocks.has_changed() or self.engines.wait(pause_s)

    def step(self) -> bool:
        """Judge at most one unit per slot as time allows; returns any work."""
        self._poll_events()
        self._refresh()
        busy, objectives, paused = False, self.context.objectives, self._registry.paused
        resting = {name for name in self.context.pipelines if paused.holds(name, "shadow")}
        untested = {name for name in self.context.pipelines if paused.holds(name, "live-tests")}
        for name, champion in self._champions.items():
            if name in resting:
                objectives.idle(name)
            elif self._registry.is_registered(name):
                busy |= champion.step(may_test=name not in untested)
                for slot in self.context.challengers[name]:
                    if objectives.measure < SheddingMeasure.CHALLENGERS:
                        busy |= self._challengers[name].step(slot)
        if objectives.measure < SheddingMeasure.JUDGES:
            busy |= self._judges.step(resting=resting)
        if objectives.measure < SheddingMeasure.LIVE_TESTS:
            busy |= self._endpoints.step(resting=resting, silent=untested)
        # What is identified and not committed yet may stand in what was skipped, too.
        judging = {name for name, champion in self._champions.items() if champion.is_judging}
        return busy or self._backfills.step(resting=resting | judging)

    def _poll_events(self) -> None:
        self.context.inference.poll_events()
        for champion in self._champions.values():
            champion.swap_champion()

    def _refresh(self, *, force: bool = False) -> None:
        """Follow the registry now and then, between units only, and set the gauges."""
        now = time.monotonic()
        if not force and now - self._refreshed < REFRESH_S:
            return
        self._refreshed = now
        self._tell_once()
        if not self._state.has_changed() and now - self._looked < UNCHANGED_S and not force:
            return
        self._looked = now
        self._registry.retire_ended()
        self._registry.read()
        self._poll_events()
        for name, slot in self._registry.update_slots():
            self._challengers[name].forget(slot)
        self._registry.note_disabled()
        for name in self._registry.follow_champions():
            self._gauges.live_rates(name)
        self._gauges.publish(self._registry.paused)

    def _tell_once(self) -> None:
        versions = self.context.versions
        if self._told is not None and self._looked and all(one.is_whole for one in versions.values()):
            self._told(versions)
            self._told = None

    def start(self) -> None:
        self._host.start()
        for name in self.context.pipelines:
            self._recovery.register(name, self._host.errors.get(name, []))
        if self._host.interrupted is not None:
            self._recovery.blame(self._host.interrupted)
        for name in self.context.pipelines:
            self._recovery.restore(name)
        self._refresh(force=True)
        for name in self.context.pipelines:
            self._gauges.live_rates(name)
            self._registry.forget_windows(name)
            if self._registry.is_registered(name):
                for slot in (CHAMPION, *self.context.challengers[name]):
                    self._recovery.rebuild_windows(name, slot)
        self._backfills.start()
        self._judges.start()
        self._endpoints.start()


def open_pipelines(settings: Settings, host: HostClient) -> dict[str, Pipeline]:
    # One budget for all: a live test of one model may not hold up another model either.
    time_budget = TimeBudget()
    return {
        name: Pipeline(
            name, model, settings.host,
            host=host, seed=settings.worker.seed, time_budget=time_budget,
            payloads=open_payloads(settings, name),
        )
        for name, model in settings.models.items()
    }  # fmt: skip


def open_incidents(settings: Settings, journal: Journal) -> dict[str, IncidentBook]:
    rule = settings.flags.fill(AlarmRule)
    targets = [WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]
    return {name: IncidentBook(name, rule, targets, steps=journal.steps) for name in settings.models}


def digest_of(settings: Settings) -> str:
    return blake2b(repr(settings).encode(), digest_size=4).hexdigest()


def serving(versions: Mapping[str, ShadowVersions], loaded_s: float) -> Serving:
    """Versions and failures of all models, for ``outrider reload``."""
    champions = {name: own.champion for name, own in versions.items()}
    challengers = {name: own.challengers for name, own in versions.items()}
    failures = {
        f"{name}@{version}": why for name, own in versions.items() for version, why in own.failures.items()
    }
    return Serving(loaded_s, champions, challengers, failures)


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="outrider.monitor.worker")
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args()
    keep_pandas_out()
    set_up("worker")
    settings = load_settings(options.config)
    loaded_s = read_state(settings.data_folder).loaded_s
    set_up("worker", settings.server.log_format)
    stop, runs = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        if not runs.is_set():
            raise SystemExit(0)  # loading takes seconds, and nothing of it must be finished

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    journal, engine = open_stores(settings, stop)
    metrics = new_metrics(models=settings.models, process="worker")
    start_sender(metrics, process="worker")
    progress = settings.data_folder / "run" / "assertions"
    host = HostClient(options.config, deadline_s=settings.host.deadline_s, progress=progress)
    objects = LocalObjects(settings.data_folder / "objects")
    engines = EngineGroups(settings, engine, objects, EngineMetrics(metrics))
    try:
        worker = Worker(
            settings, engine, journal, host, engines,
            metrics=WorkerMetrics(metrics),
            told=lambda versions: note_serving(settings.data_folder, serving(versions, loaded_s)),
            bell=Bell.inherited(engines.wake),
        )  # fmt: skip
        with write(engine) as connection:
            note_configuration(connection, digest_of(settings), at_us=int(1e6 * loaded_s) or now_us())
        worker.start()
        runs.set()
        worker.run(stop)
    finally:
        engines.stop()
        host.stop()
