"""The worker: reads the journal from its cursors, judges unit by unit, commits each in one transaction.

It is crash-only: whatever fails outside user code ends the process, and the next one continues from the
committed cursors; windows continue from their last checkpoint and the blocks behind it.
"""

import argparse
import importlib
import logging
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, Engine, select

from outrider.assertions import Batch
from outrider.dataops import freshness, ledger, live_rates
from outrider.dataops.backfill import SLOT as BACKFILL
from outrider.dataops.database import now_us, write
from outrider.dataops.incidents import IncidentBook, IncidentRule
from outrider.dataops.jobs import Trigger, maybe_enqueue
from outrider.dataops.journal import Journal
from outrider.dataops.ledger import Effects
from outrider.dataops.objects import LocalObjects
from outrider.dataops.outbox import Target
from outrider.dataops.pauses import WHAT, Paused, What, list_pauses
from outrider.dataops.storms import FlagBudget, count_flags
from outrider.dataops.tables import (
    AssertionRow,
    ModelVersion,
    Strike,
    table_of,
)

from .admission import Decision, Measure
from .backfill import Backfills
from .champion import judge_unit
from .child import die_with_parent
from .config import Settings, load_settings
from .host_client import HostClient
from .judge_slots import JudgeSlots
from .kept_payloads import keep_flagged
from .live_budget import LiveBudget, TimeBudget
from .live_endpoint import LiveEndpoints
from .logs import RecordLog, set_up
from .metrics.channel import new_metrics, start_sender
from .objectives import Objectives
from .payload_settings import open_payloads
from .pipeline import CHAMPION, Pipeline, Timings
from .predictors import predictor_factory
from .registration import Registration
from .shadow import ShadowModels
from .slot_restore import restore_slot
from .slot_state import window_digest
from .stored_answers import champion_borders, registered, stored
from .stores import open_stores
from .units import Backlog, Unit, read_unit
from .worker_metrics import LIVE_SLOT, WorkerMetrics, role_of

log = logging.getLogger("outrider.worker")

CHECKPOINT_S = 10.0
"""After a restart at most the blocks of this time are fed to the windows again."""
IDLE_S = 0.01
REFRESH_S = 0.25
RESTORED_STRIKES = 1000
"""Latest failures read after a restart: far more than suspensions let happen in one strike window."""
NOT_LOADED = "not_loaded"
ASSERTION = (
    "model",
    "name",
    "revision",
    "kind",
    "level",
    "description",
    "owner",
    "active",
    "suspended_until_us",
    "first_seen_us",
    "first_seq",
    "definition",
)
SHED_LIVE_BEHIND_BLOCKS = 512
SHED_LIVE_BEHIND_ROWS = 100_000
"""Backlog beyond which live tests are shed, so that the models catch up first."""


class Worker:
    """Judges every model of the configuration, one unit at a time.

    Parameters
    ----------
    journal
        Opened read-only: intake is its one writer.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        journal: Journal,
        host: HostClient,
        *,
        metrics: WorkerMetrics,
        objectives: Objectives | None = None,
    ) -> None:
        self._objectives = objectives or Objectives(settings.models)
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._host = host
        self._metrics = metrics
        self._cursors: dict[tuple[str, str], int] = {}
        self._backlogs: dict[tuple[str, str], Backlog] = {}
        self._waiting: dict[tuple[str, str], tuple[int, Unit]] = {}
        """Units whose payloads are being fetched, and the cursor behind which they lie."""
        self._refreshed = 0.0
        self._paused = Paused()
        self._record_log = RecordLog(log)
        self._objects = LocalObjects(settings.data_folder / "objects")
        self._registration = Registration(settings, engine, self._objects)
        self._unregistered = self._registration.unregistered
        self._registration.update()
        for name in self._unregistered:
            log.warning("the file of model %s does not exist yet; its records wait in the journal", name)
        load = predictor_factory(settings, engine, self._objects)
        # One budget for all: a live test of one model may not hold up another model either.
        time_budget = TimeBudget()
        self.pipelines = {
            name: Pipeline(
                name,
                model,
                settings.host,
                shadows=ShadowModels(name, load),
                host=host,
                seed=settings.worker.seed,
                time_budget=time_budget,
                payloads=open_payloads(settings, name),
            )
            for name, model in settings.models.items()
        }
        self._slots: dict[str, list[str]] = {}
        self._champions: dict[str, str] = {}
        self._checkpointed: dict[tuple[str, str], float] = {}
        self._by_hand: dict[str, dict[str, int]] = {}
        flags = settings.flags
        self._budget = FlagBudget(flags.per_minute, settings.worker.seed)
        rule = IncidentRule(
            flags.incident_flags, flags.incident_factor, flags.window_s, flags.baseline_s, flags.quiet_s
        )
        told = [Target(hook.url, hook.events) for hook in settings.webhooks]
        self._incidents = {name: IncidentBook(name, rule, told) for name in settings.models}
        self._backfills = Backfills(
            settings, engine, journal, self.pipelines,
            commit=self._commit, metrics=metrics, objectives=self._objectives, record_log=self._record_log,
        )  # fmt: skip
        self._judges = JudgeSlots(
            settings, engine, journal, self.pipelines,
            commit=self._commit, metrics=metrics, gaps=self._backfills,
        )  # fmt: skip
        self._endpoints = LiveEndpoints(
            settings, engine, journal, self.pipelines, host,
            commit=self._commit, metrics=metrics, gaps=self._backfills,
        )  # fmt: skip

    def start(self) -> None:
        """Bring up the host, load the models and rebuild what the slots carry."""
        self._host.start()
        with write(self._engine) as connection:
            for name, pipeline in self.pipelines.items():
                register_assertions(connection, name, pipeline)
                register_load_errors(connection, name, self._host.errors.get(name, []))
                self._metrics.declare(name, pipeline.offered)
        for name in self.pipelines:
            self._restore_strikes(name)
            self._restore_live(name)
        self._refresh(force=True)
        for name, slots in self._slots.items():
            for slot in slots:
                self._rebuild(name, slot)
        self._backfills.start()
        self._judges.start(self._cursors)
        self._endpoints.start(self._cursors)

    def step(self) -> bool:
        """Judge at most one unit per slot, as far as there is time for it; whether there was any."""
        self._refresh()
        busy = False
        resting = self._holding("shadow")
        for name, slots in self._slots.items():
            if name in resting:
                self._objectives.idle(name)
                continue
            for slot in slots:
                if slot == CHAMPION or self._objectives.measure < Measure.CHALLENGERS:
                    busy |= self._advance(name, slot)
        if self._objectives.measure < Measure.JUDGES:
            busy |= self._judges.step(self._cursors, resting=resting)
        if self._objectives.measure < Measure.LIVE_TESTS:
            silent = self._holding("live-tests")
            busy |= self._endpoints.step(self._cursors, resting=resting, silent=silent)
        return busy or self._backfills.step(resting=resting)

    def _holding(self, what: What) -> set[str]:
        """Models of which a person has paused this."""
        return {name for name in self.pipelines if self._paused.holds(name, what)}

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; ends behind a committed unit."""
        while not stop.is_set():
            if not self.step():
                stop.wait(IDLE_S)

    # ---- one unit --------------------------------------------------------------------------------------

    def _advance(self, name: str, slot: str) -> bool:
        if slot != CHAMPION and self._pass_gap(name, slot):
            return True
        began = self._objectives.timer()
        unit = self._next_unit(name, slot)
        if unit is None:
            return False
        if slot == CHAMPION and unit.batch is not None:
            decision = self._decide(name, unit)
            if decision.measure is Measure.SKIP and self._backfills.skip(name, self._cursors):
                return True
            if not self._is_ready(name, unit, unit.batch):
                return False  # other models go on while payloads are fetched
        return self._settle(name, slot, unit, began)

    def _settle(self, name: str, slot: str, unit: Unit, began: float) -> bool:
        """Judge a unit and commit what it changes; whether it changed anything."""
        timings = Timings()
        effects: Effects | None
        if unit.batch is None and not unit.labels and not unit.unreadable:
            effects = self.pipelines[name].tick(slot, unit, timings)
            if effects is None:
                self._cursors[name, slot] = unit.last_seq  # ticks alone change nothing: no commit for them
                self._settle_incidents(name, slot, unit.received_us)
                return False
        elif slot == CHAMPION:
            effects = self._champion(name, unit, timings)
        else:
            effects = self._challenger(name, slot, unit, timings)
        keep_flagged(self._journal, self.pipelines[name].payloads, effects)
        add_costs(effects, timings)
        effects.received, effects.received_us = unit.received, unit.received_us
        with write(self._engine) as connection:
            self._commit(connection, effects, now_us=unit.received_us)
        self._cursors[name, slot] = unit.last_seq
        timings.stage("commit")
        if unit.batch is not None:
            # Repeats too: they take their time, and rows that are not counted would look like slow ones.
            looked_at = unit.batch.rows - effects.counts["shed:sampled"]
            self._objectives.worked(name, slot, began, rows=looked_at)
        self._metrics.committed(effects, timings, self.pipelines[name].offered)
        self._record_log.dead_letters(effects.dead_letters)
        self._metrics.live_rates(name, effects.live_rates)
        if slot == CHAMPION and unit.batch is not None:
            self._metrics.delay(name, unit.received_us)
            self._metrics.ages(name, self._objectives.ages(effects), self._objectives.slo_s(name))
            self._note_figures(name)
        return True

    def _next_unit(self, name: str, slot: str) -> Unit | None:
        """The unit whose payloads are being fetched, else the next one of the journal.

        Challengers stay behind the champion, who decides which records there are.
        """
        at, end, until = self._cursors[name, slot], self._journal.last_seq(), None
        waiting = self._waiting.pop((name, slot), None)
        if waiting is not None and waiting[0] == at:
            return waiting[1]
        if slot != CHAMPION:
            until = end = self._backfills.before(name, at, self._cursors[name, CHAMPION])
        most = min(self.pipelines[name].unit_rows, self._objectives.max_rows(name, slot))
        unit = read_unit(self._journal, name, at, max_rows=most, until=until)
        if unit is None:
            # Nothing of this model up to here: or each look would read all traffic of the others again.
            self._cursors[name, slot] = max(at, end)
            if slot == CHAMPION:
                self._objectives.idle(name)
                self._note_figures(name)
        return unit

    def _is_ready(self, name: str, unit: Unit, batch: Batch) -> bool:
        """Whether the payloads of a unit are at hand; else it waits while they are fetched."""
        if self.pipelines[name].payloads.is_ready(batch):
            return True
        self._waiting[name, CHAMPION] = self._cursors[name, CHAMPION], unit
        return False

    def _pass_gap(self, name: str, slot: str) -> bool:
        """Let a challenger go on behind what the champion skipped; whether it stood there."""
        at = self._cursors[name, slot]
        end = self._backfills.end(name, at) if at < self._cursors[name, CHAMPION] else None
        if end is not None:
            self._backfills.leave(name, slot, end, self._cursors)
        return end is not None

    def _decide(self, name: str, unit: Unit) -> Decision:
        """What to shed for the objective of a model, before its next unit is judged."""
        return self._objectives.decide(
            name,
            waiting_rows=self._backlog(name, CHAMPION).records(self._cursors[name, CHAMPION]),
            received_us=unit.received[int(unit.seq[0])],
        )

    def _note_figures(self, name: str) -> None:
        """Let the page know how old records are: once in a second, and when the last one is judged."""
        if (figures := self._objectives.figures(name)) is not None:
            with write(self._engine) as connection:
                freshness.note(connection, figures)

    def _commit(self, connection: Connection, effects: Effects, *, now_us: int) -> None:
        """Everything that one unit of one slot changes, in the caller's transaction."""
        name = effects.model
        self._keep_windows(effects)
        found = count_flags(connection, effects, self._budget)
        ledger.apply(connection, effects)
        rates, alarms = live_rates.follow(connection, effects)
        effects.live_rates = rates
        if effects.owner == CHAMPION:
            self._incidents[name].follow(connection, found, now_us=now_us, alarms=alarms)
        if effects.labels or effects.flags:
            self._trigger(connection, name)

    def _keep_windows(self, effects: Effects) -> None:
        """Let the commit carry the state of the windows now and then, and where the champion changed."""
        name, slot = effects.model, effects.slot
        champion = self.pipelines[name].shadows.champion
        swapped = slot == CHAMPION and champion is not None and champion != self._champions.get(name)
        if swapped and champion is not None:
            effects.border = self._cursors[name, slot], champion
            self._champions[name] = champion
        last, now = self._checkpointed.get((name, slot), 0.0), time.monotonic()
        if swapped or now - last >= CHECKPOINT_S:
            if (state := self.pipelines[name].slots.get(slot)) is not None:
                effects.checkpoints += state.checkpoints(name, slot, effects.seq)
            self._checkpointed[name, slot] = now

    def _settle_incidents(self, name: str, slot: str, received_us: int) -> None:
        """Resolve what has been quiet, when only time has passed."""
        if slot != CHAMPION:
            return
        with self._engine.connect() as connection:
            due = self._incidents[name].is_due(connection, now_us=received_us)
        if due:
            with write(self._engine) as connection:
                self._incidents[name].settle(connection, now_us=received_us)

    def _champion(self, name: str, unit: Unit, timings: Timings) -> Effects:
        decision = self._objectives.decision(name)
        may_ask = decision.measure < Measure.LIVE_TESTS and not self._paused.holds(name, "live-tests")
        may_ask &= self._journal.last_seq() - unit.last_seq <= SHED_LIVE_BEHIND_BLOCKS
        may_ask &= (
            self._backlog(name, CHAMPION).records(self._cursors[name, CHAMPION]) <= SHED_LIVE_BEHIND_ROWS
        )
        target = self._settings.models[name].target
        return judge_unit(
            self._engine, self.pipelines[name], unit, timings,
            target=target, share=decision.share, seed=self._settings.worker.seed, may_ask=may_ask,
        )  # fmt: skip

    def _challenger(self, name: str, slot: str, unit: Unit, timings: Timings) -> Effects:
        if unit.batch is None:
            return self.pipelines[name].tick(slot, unit, timings) or Effects(name, slot, unit.last_seq)
        whole, known = registered(self._engine, unit)
        champion = self.pipelines[name].shadows.champion
        batch, kept = self.pipelines[name].payloads.opened(whole, known)
        answer = stored(self._engine, champion, unit, batch)
        others = {} if answer is None else {CHAMPION: answer}
        timings.stage("read")
        effects = self.pipelines[name].judge(slot, unit, batch, kept, timings=timings, stored=others)
        if len(kept) < len(known):
            effects.counts["unanswered"] += len(known) - len(kept)
        return effects

    def _trigger(self, connection: Connection, name: str) -> None:
        rule = self._settings.models[name].retrain
        trigger = Trigger(
            rule.enabled, rule.labelled_flags, rule.cooldown_s, rule.daily_budget, rows=rule.rows
        )
        targets = [Target(hook.url, hook.events) for hook in self._settings.webhooks]
        maybe_enqueue(connection, model=name, trigger=trigger, now_us=now_us(), targets=targets)

    # ---- what is loaded --------------------------------------------------------------------------------

    def _refresh(self, *, force: bool = False) -> None:
        """Follow the registry: load new challengers, swap the champion, drop the rest; between units only."""
        now = time.monotonic()
        if not force and now - self._refreshed < REFRESH_S:
            return
        self._refreshed = now
        self._registration.update()
        self._follow_suspensions()
        table = table_of(ModelVersion)
        query = select(table.c.model, table.c.version, table.c.status).where(
            table.c.status.in_(("champion", "challenger"))
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
            self._paused = Paused.of(list_pauses(connection))
        for name, pipeline in self.pipelines.items():
            champion = next((r.version for r in rows if (r.model, r.status) == (name, "champion")), None)
            wanted = sorted(r.version for r in rows if (r.model, r.status) == (name, "challenger"))
            pipeline.shadows.keep(champion, wanted)
            book = self._incidents[name]
            if force or book.version != champion:
                book.version = champion
                self._show_rates(name)
            slots = [CHAMPION, *(v for v in wanted if v in pipeline.shadows.versions)]
            for slot in slots:
                if (name, slot) not in self._cursors:
                    self._cursors[name, slot] = self._open_cursor(name, slot)
            gone = pipeline.slots.keys() - {*slots, *self._judges.slots(name), LIVE_SLOT, BACKFILL}
            for slot in gone:
                del pipeline.slots[slot]
                self._cursors.pop((name, slot), None)
            if gone or force:
                with write(self._engine) as connection:
                    ledger.forget_windows(connection, name, keep=[*slots, BACKFILL])
            self._slots[name] = [] if name in self._unregistered else slots
        self._observe()

    def _follow_suspensions(self) -> None:
        """Take over what people suspended and resumed; they act on every slot, strikes on their own."""
        judges = table_of(AssertionRow)
        query = select(judges.c.model, judges.c.name, judges.c.suspended_until_us, judges.c.suspension).where(
            judges.c.active, judges.c.suspended_until_us > 0
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        for name, pipeline in self.pipelines.items():
            pipeline.slots[CHAMPION].suspended = {
                row.name: row.suspended_until_us for row in rows if row.model == name
            }
            by_hand = {
                row.name: row.suspended_until_us for row in rows if row.model == name and row.suspension
            }
            lifted = self._by_hand.get(name, {}).keys() - by_hand.keys()
            for slot in pipeline.slots.keys() - {CHAMPION}:
                kept = {
                    judge: until
                    for judge, until in pipeline.slots[slot].suspended.items()
                    if judge not in lifted
                }
                pipeline.slots[slot].suspended = kept | by_hand
            self._by_hand[name] = by_hand

    def _observe(self) -> None:
        """Set the gauges: versions, suspensions, and what waits behind each cursor."""
        self._metrics.versions(
            {
                name: (pipeline.shadows.champion, self._slots[name][1:])
                for name, pipeline in self.pipelines.items()
            }
        )
        for name, pipeline in self.pipelines.items():
            self._metrics.suspended(name, pipeline.offered, pipeline.suspended)
            for what in WHAT:
                self._metrics.paused(name, what, is_paused=self._paused.holds(name, what))
            # A challenger that has gone leaves nothing behind, so both roles are always set.
            behind = {CHAMPION: (0, 0, 0.0), "challenger": (0, 0, 0.0)}
            for slot in self._slots[name] or [CHAMPION]:
                cursor = self._cursors[name, slot]
                waiting = self._journal.read(cursor, limit=1, model=name)
                age = time.time() - waiting[0].received_us / 1e6 if waiting else 0.0
                blocks = self._journal.last_seq() - cursor if waiting else 0
                role = role_of(slot)
                waiting_rows = self._backlog(name, slot).records(cursor)
                behind[role] = max(behind[role], (blocks, waiting_rows, max(0.0, age)))
            for role, (blocks, records, age) in behind.items():
                self._metrics.lag(name, role, records=records, blocks=blocks, seconds=age)
            decision = self._objectives.decision(name)
            self._metrics.latency(
                name,
                slo_s=self._objectives.slo_s(name),
                share=decision.share,
                measure=decision.measure,
                backfill_records=self._backfills.waiting_records(name),
            )
            held = {CHAMPION: (0, 0, 0), "challenger": (0, 0, 0)}
            for slot, state in pipeline.slots.items():
                held[role_of(slot)] = max(held[role_of(slot)], state.held())
            for role, (entities, rows, nbytes) in held.items():
                self._metrics.windows(name, role, entities=entities, rows=rows, nbytes=nbytes)

    def _backlog(self, name: str, slot: str) -> Backlog:
        if (name, slot) not in self._backlogs:
            self._backlogs[name, slot] = Backlog(self._journal, name, self._cursors[name, slot])
        return self._backlogs[name, slot]

    def _open_cursor(self, name: str, slot: str) -> int:
        """Committed cursor of a slot; a new challenger starts where the champion is."""
        with write(self._engine) as connection:
            at = ledger.cursor(connection, name, slot)
            if not at and slot != CHAMPION:
                at = self._cursors[name, CHAMPION]
                if at:
                    ledger.apply(connection, Effects(name, slot, at))
            return at

    def _restore_live(self, name: str) -> None:
        """Continue the budgets of live tests from where the champion's cursor stands."""
        pipeline = self.pipelines[name]
        own = self._settings.models[name].live
        if own.endpoint is None:  # or its slot has the budget
            pipeline.live_budget = LiveBudget.of(pipeline.offered, own.rows_per_s)
        self._incidents[name].live = {o.name: o.revision for o in pipeline.offered if o.kind == "live_test"}
        with self._engine.connect() as connection:
            state = ledger.live_budget(connection, name, CHAMPION)
        if state is not None and pipeline.live_budget is not None:
            pipeline.live_budget.restore(state)

    def _show_rates(self, name: str) -> None:
        """Set the figures of live tests to those of the version that is champion now."""
        book = self._incidents[name]
        with self._engine.connect() as connection:
            rates = live_rates.current_rates(connection, name, book.live, book.version)
        tests = [o for o in self.pipelines[name].offered if o.kind == "live_test"]
        self._metrics.no_live_rates(name, tests)
        self._metrics.live_rates(name, rates)

    def _restore_strikes(self, name: str) -> None:
        strikes, judges = table_of(Strike), table_of(AssertionRow)
        with self._engine.connect() as connection:
            recent = connection.execute(
                select(strikes.c.assertion, strikes.c.at_us)
                .where(strikes.c.model == name, strikes.c.slot == CHAMPION)
                .order_by(strikes.c.id.desc())
                .limit(RESTORED_STRIKES)
            ).all()
            suspended = connection.execute(
                select(judges.c.name, judges.c.suspended_until_us).where(
                    judges.c.model == name, judges.c.active, judges.c.suspended_until_us > 0
                )
            ).all()
        self.pipelines[name].restore_strikes(
            [(row.assertion, row.at_us) for row in reversed(recent)],
            {row.name: row.suspended_until_us for row in suspended},
        )

    def _rebuild(self, name: str, slot: str) -> None:
        """Let a slot carry what it carried before the restart."""
        borders = champion_borders(self._engine, name)
        if borders and slot == CHAMPION:
            self._champions[name] = borders[-1][1]
        at = self._cursors[name, slot]
        begin, restarted_us = self._backfills.restarted(name, at)
        offered = {judge.window for judge in self.pipelines[name].due_at(slot)}
        windows = [window_digest(window) for window in offered if window is not None]
        with write(self._engine) as connection:
            ledger.keep_windows(connection, name, slot, windows=windows)
        restore_slot(self._engine, self._journal, self.pipelines[name], slot, at, borders, begin=begin)
        self.pipelines[name].slots[slot].restarted_us = restarted_us


def add_costs(effects: Effects, timings: Timings) -> None:
    """Count what every assertion took and over how many records: its cost per record is theirs."""
    for name, seconds in timings.tasks.items():
        effects.counts[f"cost_ns:{name}"] += int(seconds * 1e9)
        effects.counts[f"judged:{name}"] += effects.counts["records"]


def preload(settings: Settings) -> None:
    """Import torch where a model will need it: it takes seconds, in which other processes come up."""
    kinds = {one.kind for own in settings.models.values() for one in (own, *own.challengers.values())}
    if kinds & {"torch", "hf"}:
        importlib.import_module("torch")


def register_assertions(connection: Connection, name: str, pipeline: Pipeline) -> None:
    """Write the host's manifest: new revisions begin unsuspended, those no longer offered become inactive."""
    table = table_of(AssertionRow)
    connection.execute(table.update().where(table.c.model == name).values(active=False))
    seen = now_us(), ledger.cursor(connection, name, CHAMPION)
    rows = [
        (name, o.name, o.revision, o.kind, o.level, o.description, o.owner, True, 0, *seen, o.definition)
        for o in pipeline.offered
    ]
    ledger.insert_rows(connection, AssertionRow, ASSERTION, rows)
    for offered in pipeline.offered:
        connection.execute(
            table.update()
            .where(table.c.model == name, table.c.name == offered.name, table.c.revision == offered.revision)
            .values(active=True, definition=offered.definition)
        )


def register_load_errors(connection: Connection, name: str, errors: Sequence[str]) -> None:
    """Note files that gave nothing as strikes of theirs, each once, so that the page names them."""
    table = table_of(Strike)
    query = select(table.c.detail).where(table.c.model == name, table.c.reason == NOT_LOADED)
    known = set(connection.execute(query).scalars())
    rows = [
        (name, Path(error.partition(":")[0]).name, now_us(), 0, NOT_LOADED, error, CHAMPION)
        for error in errors
        if error not in known
    ]
    ledger.insert_rows(connection, Strike, ledger.STRIKE, rows)


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
    preload(settings)
    host = HostClient(options.config, deadline_s=settings.host.deadline_s)
    try:
        worker = Worker(settings, engine, journal, host, metrics=WorkerMetrics(metrics))
        worker.start()
        runs.set()
        worker.run(stop)
    finally:
        host.stop()


if __name__ == "__main__":
    main()
