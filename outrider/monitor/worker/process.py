"""Worker.

Reads the journal from its cursors, judges unit by unit, commits each in one transaction.

It is crash-only: whatever fails outside user code ends the process, and the next one continues from the
committed cursors; windows continue from their last checkpoint and the blocks behind it.
"""

import argparse
import logging
import signal
import threading
import time
from pathlib import Path

from sqlalchemy import Engine

from outrider.dataops.flags.incidents import IncidentBook, IncidentRule
from outrider.dataops.flags.registered_assertions import register_offered
from outrider.dataops.flags.strikes import note_load_errors
from outrider.dataops.journal.journal import Journal
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.champions import champion_borders
from outrider.dataops.ledger.checkpoints import keep_windows
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.rotations import rotation_before, rotations, standing
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import take_back
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.metrics import EngineMetrics
from outrider.monitor.host.client import HostClient
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.logs import RecordLog, set_up
from outrider.monitor.process.stores import open_stores
from outrider.monitor.registry.registration import Registration
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.payloads import open_payloads

from .admission import SamplingState, SheddingMeasure
from .backfill import Backfills
from .commits import Commits
from .context import WorkerContext
from .cursors.challenger_cursors import ChallengerCursors
from .cursors.champion_cursor import ChampionCursor
from .cursors.co_scheduling import CoScheduler
from .gauges import Gauges
from .inference import InferenceClient
from .live_budget import LiveBudget, TimeBudget
from .live_endpoint import LiveEndpoints
from .llm_judge_slots import JudgeSlots
from .metrics import WorkerMetrics
from .objectives import Objectives
from .pipeline import CHAMPION, Pipeline
from .prefetch import PrefetchedAnswers
from .registry_follower import RegistryFollower, restore_strikes
from .shadow_versions import ShadowVersions
from .slot_restore import restore_slot
from .slot_state import window_digest

log = logging.getLogger("outrider.worker")

IDLE_S = 0.01
REFRESH_S = 0.25


class Worker:
    """Judges every model of the configuration, one unit at a time.

    Parameters
    ----------
    journal
        Opened read-only: intake is its one writer.
    engines
        Where the versions answer.
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
    ) -> None:
        objectives = objectives or Objectives(settings.models)
        objects = LocalObjects(settings.data_folder / "objects")
        registration = Registration(settings, engine, objects)
        registration.update()
        for name in registration.unregistered:
            log.warning("the file of model %s does not exist yet; its records wait in the journal", name)
        self.engines = engines
        self.versions = {
            name: ShadowVersions(name, self.engines, clock=objectives.timer) for name in settings.models
        }
        self.pipelines = open_pipelines(settings, host)
        self._host = host
        self._context = context = WorkerContext(
            settings, engine, journal, metrics, objectives,
            InferenceClient(self.engines, self.versions), self.versions, self.pipelines,
        )  # fmt: skip
        self._cursors = context.cursors
        self._incidents = open_incidents(settings, journal)
        self._commits = commits = Commits(context, self._incidents, RecordLog(log))
        self._backfills = backfills = Backfills(context, commits)
        self._judges = JudgeSlots(context, commits, backfills)
        self._endpoints = LiveEndpoints(context, host, commits, backfills)
        self._champions: dict[str, ChampionCursor] = {}
        self._challengers: dict[str, ChallengerCursors] = {}
        prefetched = PrefetchedAnswers()
        for name in settings.models:
            scheduler = CoScheduler(name, context, prefetched)
            self._champions[name] = ChampionCursor(
                name, context, scheduler=scheduler, commits=commits, backfills=backfills
            )
            self._challengers[name] = ChallengerCursors(
                name, context, scheduler=scheduler, commits=commits, backfills=backfills
            )
        self._registry = RegistryFollower(context, registration)
        self._gauges = Gauges(context, backfills)
        self._refreshed = 0.0

    # ---- the loop --------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; ends behind a committed unit."""
        while not stop.is_set():
            if not self.step():
                self.engines.wait(IDLE_S)

    def step(self) -> bool:
        """Judge at most one unit per slot; report any work.

        As far as there is time for it.
        """
        self._poll_events()
        self._refresh()
        busy, objectives, paused = False, self._context.objectives, self._registry.paused
        resting = {name for name in self.pipelines if paused.holds(name, "shadow")}
        untested = {name for name in self.pipelines if paused.holds(name, "live-tests")}
        for name, champion in self._champions.items():
            if name in resting:
                objectives.idle(name)
            elif self._registry.is_registered(name):
                busy |= champion.step(may_test=name not in untested)
                for slot in self._context.challengers[name]:
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
        """Take answers and loads from the engines, and let loaded champions answer from now on."""
        self._context.inference.poll_events()
        for champion in self._champions.values():
            champion.swap_champion()

    def _refresh(self, *, force: bool = False) -> None:
        """Follow the registry now and then, between units only, and set the gauges."""
        now = time.monotonic()
        if not force and now - self._refreshed < REFRESH_S:
            return
        self._refreshed = now
        self._registry.read()
        self._poll_events()
        for name, slot in self._registry.update_slots():
            self._challengers[name].forget(slot)
        self._registry.note_disabled()
        for name, book in self._incidents.items():
            if book.version != self.versions[name].champion:
                book.version = self.versions[name].champion
                self._gauges.live_rates(book)
        self._gauges.publish(self._registry.paused)

    # ---- what a worker goes on from --------------------------------------------------------------------

    def start(self) -> None:
        """Start the host, load the models and restore the slots."""
        self._host.start()
        for name in self.pipelines:
            self._register(name)
            self._restore(name)
        self._refresh(force=True)
        for name in self.pipelines:
            self._gauges.live_rates(self._incidents[name])
            self._registry.forget_windows(name)
            if self._registry.is_registered(name):
                for slot in (CHAMPION, *self._context.challengers[name]):
                    self._rebuild_windows(name, slot)
        self._backfills.start()
        self._judges.start()
        self._endpoints.start()

    def _register(self, name: str) -> None:
        """Store what the host offers of a model, and which files gave nothing."""
        offered = self.pipelines[name].offered
        with write(self._context.engine) as connection:
            take_back(connection, name)
            at = cursor(connection, name, CHAMPION)
            register_offered(connection, name, offered, first_seq=at, now_us=now_us())
            note_load_errors(connection, name, self._host.errors.get(name, []), now_us=now_us())
        self._context.metrics.declare(name, offered)
        self._incidents[name].live = {o.name: o.revision for o in offered if o.kind == "live_test"}

    def _restore(self, name: str) -> None:
        """Continue strikes, sampling and budgets from where the champion's cursor stands."""
        pipeline, engine = self.pipelines[name], self._context.engine
        restore_strikes(engine, self._context.journal, pipeline)
        with engine.connect() as connection:
            pipeline.rotations = rotations(connection, name)
            found = standing(connection, name)
            state = ledger.live_budget(connection, name, CHAMPION)
        pipeline.standing = SamplingState() if found is None else SamplingState(*found)
        own = self._context.settings.models[name].live
        if own.endpoint is None:  # or its slot has the budget
            pipeline.live_budget = LiveBudget.of(pipeline.offered, own.rows_per_s)
            if state is not None:
                pipeline.live_budget.restore(state)

    def _rebuild_windows(self, name: str, slot: str) -> None:
        """Let a slot carry what it carried before the restart."""
        engine, pipeline = self._context.engine, self.pipelines[name]
        borders = champion_borders(engine, name)
        if borders and slot == CHAMPION:
            self._commits.champions[name] = borders[-1][1]
        at = self._cursors[name, slot]
        begin, restarted_us = self._backfills.restarted(name, at)
        last = rotation_before(pipeline.rotations, at)
        if last is not None and last.seq >= begin:
            begin, restarted_us = last.seq, last.at_us
        windows = {judge.window for judge in pipeline.due_at(slot) if judge.window is not None}
        with write(engine) as connection:
            keep_windows(connection, name, slot, windows=[window_digest(window) for window in windows])
        restore_slot(engine, self._context.journal, pipeline, slot, at, borders, begin=begin)
        state = pipeline.slots[slot]
        state.restarted_us, state.rotated_seq = restarted_us, 0 if last is None else last.seq


def open_pipelines(settings: Settings, host: HostClient) -> dict[str, Pipeline]:
    """Pipeline of every model."""
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
    """Incidents of every model."""
    flags = settings.flags
    rule = IncidentRule(
        flags.incident_flags, flags.incident_factor, flags.window_s, flags.baseline_s, flags.quiet_s
    )
    targets = [WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]
    return {name: IncidentBook(name, rule, targets, steps=journal.steps) for name in settings.models}


def main() -> None:
    """Entry point of the process."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="outrider.monitor.worker")
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args()
    set_up("worker")
    settings = load_settings(options.config)
    set_up("worker", settings.server.log_format)
    stop, runs = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        if not runs.is_set():
            raise SystemExit(0)  # loading takes seconds, and nothing of it must be finished

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    journal, engine = open_stores(settings, stop)
    metrics = new_metrics(models=settings.models)
    start_sender(metrics, process="worker")
    host = HostClient(options.config, deadline_s=settings.host.deadline_s)
    objects = LocalObjects(settings.data_folder / "objects")
    engines = EngineGroups(settings, engine, objects, EngineMetrics(metrics))
    try:
        worker = Worker(settings, engine, journal, host, engines, metrics=WorkerMetrics(metrics))
        worker.start()
        runs.set()
        worker.run(stop)
    finally:
        engines.stop()
        host.stop()
