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

import numpy as np
from sqlalchemy import Connection, Engine

from outrider.assertions import Batch
from outrider.behavioral_tests.sampling import sample_rows
from outrider.dataops.flags import live_rates
from outrider.dataops.flags.incidents import IncidentBook, IncidentRule
from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.flags.registered_assertions import register_offered, shift_suspensions, suspensions
from outrider.dataops.flags.strikes import newest_strikes, note_load_errors
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.jobs import Trigger, maybe_enqueue
from outrider.dataops.journal.journal import Journal
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger import freshness
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.champions import champion_borders, version_at
from outrider.dataops.ledger.checkpoints import forget_windows, keep_windows
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.rotations import rotation_before, rotations, standing, until_rotation
from outrider.dataops.models.registry import versions_in_service
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import leave_out, take_back
from outrider.dataops.state.pauses import WHAT, Paused, What, list_pauses
from outrider.monitor.engine.asks import Priority
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.metrics import EngineMetrics
from outrider.monitor.engine.news import VersionLoad
from outrider.monitor.host.client import HostClient
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.logs import RecordLog, set_up
from outrider.monitor.process.stores import open_stores
from outrider.monitor.registry.registration import Registration
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.payloads import open_payloads
from outrider.monitor.stream.stored_answers import registered, stored
from outrider.monitor.stream.units import Backlog, Unit, read_unit

from .admission import AdmissionDecision, SamplingState, SheddingMeasure
from .backfill import Backfills
from .champion import judge_unit, prepare
from .inference import NO_PREDICTIONS, InferenceClient, Predictions
from .live_budget import LiveBudget, TimeBudget
from .live_endpoint import LiveEndpoints
from .llm_judge_slots import JudgeSlots
from .metrics import LIVE_SLOT, WorkerMetrics, role_of
from .objectives import Objectives
from .pending_unit import ChallengerUnit, ChampionUnit
from .pin_payloads import keep_flagged
from .pipeline import CHAMPION, Pipeline, Timings, Work, at_once
from .prefetch import AnswersAhead, Prefetched, places_of
from .shadow_versions import ShadowVersions
from .slot_restore import restore_slot
from .slot_state import window_digest

log = logging.getLogger("outrider.worker")

CHECKPOINT_S = 10.0
"""After a restart at most the blocks of this time are fed to the windows again."""
IDLE_S = 0.01
REFRESH_S = 0.25
RESTORED_STRIKES = 1000
"""Latest failures read after a restart: far more than suspensions let happen in one strike window."""
NOISE_DRAW = "~noise"
"""Names the draw beside those of live tests: no test can be called so."""
SHED_LIVE_BEHIND_BLOCKS = 512
SHED_LIVE_BEHIND_ROWS = 100_000
"""Backlog beyond which live tests are shed, so that the models catch up first."""


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
        self._objectives = objectives or Objectives(settings.models)
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._host = host
        self._metrics = metrics
        self._cursors: dict[tuple[str, str], int] = {}
        self._backlogs: dict[tuple[str, str], Backlog] = {}
        self._lines: dict[str, list[ChampionUnit]] = {name: [] for name in settings.models}
        """What the champion's slot has begun: the unit at its cursor, and the one behind it."""
        self._followed: dict[tuple[str, str], ChallengerUnit] = {}
        """What challengers have begun."""
        self._ahead = AnswersAhead()
        self._refreshed = 0.0
        self._paused = Paused()
        self._record_log = RecordLog(log)
        self._objects = LocalObjects(settings.data_folder / "objects")
        self._registration = Registration(settings, engine, self._objects)
        self._unregistered = self._registration.unregistered
        self._registration.update()
        for name in self._unregistered:
            log.warning("the file of model %s does not exist yet; its records wait in the journal", name)
        self.engines = engines
        self._flights = InferenceClient(self.engines)
        self.versions = {
            name: ShadowVersions(name, self.engines, clock=self._objectives.timer) for name in settings.models
        }
        # One budget for all: a live test of one model may not hold up another model either.
        time_budget = TimeBudget()
        self.pipelines = {
            name: Pipeline(
                name,
                model,
                settings.host,
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
        self._left_out: dict[str, dict[str, str]] = {name: {} for name in settings.models}
        """Versions that are not asked, as the database has them."""
        flags = settings.flags
        self._budget = FlagBudget(flags.per_minute, settings.worker.seed)
        rule = IncidentRule(
            flags.incident_flags, flags.incident_factor, flags.window_s, flags.baseline_s, flags.quiet_s
        )
        told = [WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]
        self._incidents = {
            name: IncidentBook(name, rule, told, steps=journal.steps) for name in settings.models
        }
        self._backfills = Backfills(
            settings, engine, journal, self.pipelines, self.versions, self._flights,
            commit=self._commit, metrics=metrics, objectives=self._objectives, record_log=self._record_log,
            heed=self._take_in,
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
        """Start the host, load the models and restore the slots."""
        self._host.start()
        with write(self._engine) as connection:
            for name, pipeline in self.pipelines.items():
                take_back(connection, name)
                first_seq = cursor(connection, name, CHAMPION)
                register_offered(connection, name, pipeline.offered, first_seq=first_seq, now_us=now_us())
                note_load_errors(connection, name, self._host.errors.get(name, []), now_us=now_us())
                self._metrics.declare(name, pipeline.offered)
        for name in self.pipelines:
            self._restore_strikes(name)
            self._restore_live(name)
            self._restore_sampling(name)
        self._refresh(force=True)
        for name, slots in self._slots.items():
            for slot in slots:
                self._rebuild(name, slot)
        self._backfills.start()
        self._judges.start(self._cursors)
        self._endpoints.start(self._cursors)

    def step(self) -> bool:
        """Judge at most one unit per slot; report any work.

        As far as there is time for it.
        """
        self._take_in()
        self._refresh()
        self._take_over()
        busy = False
        resting = self._holding("shadow")
        for name, slots in self._slots.items():
            if name in resting:
                self._objectives.idle(name)
                continue
            for slot in slots:
                if slot == CHAMPION:
                    busy |= self._advance(name)
                elif self._objectives.measure < SheddingMeasure.CHALLENGERS:
                    busy |= self._follow(name, slot)
        if self._objectives.measure < SheddingMeasure.JUDGES:
            busy |= self._judges.step(self._cursors, resting=resting)
        if self._objectives.measure < SheddingMeasure.LIVE_TESTS:
            silent = self._holding("live-tests")
            busy |= self._endpoints.step(self._cursors, resting=resting, silent=silent)
        # What is identified and not committed yet may stand in what was skipped, too.
        judging = {name for name, line in self._lines.items() if line and line[0].work is not None}
        return busy or self._backfills.step(resting=resting | judging)

    def _holding(self, what: What) -> set[str]:
        """Models of which a person has paused this."""
        return {name for name in self.pipelines if self._paused.holds(name, what)}

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; ends behind a committed unit."""
        while not stop.is_set():
            if not self.step():
                self.engines.wait(IDLE_S)

    def _take_in(self) -> None:
        """Heed what has come from the engines."""
        for one in self._flights.take_in():
            model, version = one.name
            if isinstance(one, VersionLoad):
                self.versions[model].loaded(version, one.failure)
            else:
                self.versions[model].ended(version, one.reason)

    def _take_over(self) -> None:
        """Let new champions answer from their next unit on."""
        for name, versions in self.versions.items():
            line = self._lines[name]
            if not line or line[0].work is None:
                versions.take_over()

    # ---- one unit --------------------------------------------------------------------------------------

    def _advance(self, name: str) -> bool:
        """Go on with the champion's unit as far as its answers are there; whether anything was committed."""
        begun = self._head(name)
        if begun is None:
            return False
        if begun.unit.batch is not None and begun.work is None:
            if begun.is_ahead or begun.prepared is None:
                decision = self._decide(name, begun.unit)
                if decision.measure is SheddingMeasure.SKIP and self._backfills.skip(name, self._cursors):
                    self._drop(name)
                    return True
            if begun.is_ahead:  # its turn has come
                begun.is_ahead, begun.began, begun.timings = False, self._objectives.timer(), Timings()
            if not self._ask(name, begun):
                return False  # other models go on while payloads are fetched, or the model is loaded
            self._ask_ahead(name)
            self._take_in()
            if not begun.is_answered:
                return False
            begun.timings.stage("shadow")
        return self._judge(name, begun)

    def _head(self, name: str) -> ChampionUnit | None:
        """The unit at the champion's cursor; None where nothing waits."""
        line, at = self._lines[name], self._cursors[name, CHAMPION]
        if line and line[0].after != at:
            self._drop(name)
        if not line:
            began = self._objectives.timer()
            unit = self._next_unit(name, CHAMPION)
            if unit is None:
                return None
            line.append(ChampionUnit(at, unit, began))
        return line[0]

    def _ask(self, name: str, begun: ChampionUnit) -> bool:
        """Ask the champion about a unit, unless that is done; False where it cannot be asked yet."""
        versions, pipeline, batch = self.versions[name], self.pipelines[name], begun.unit.batch
        assert batch is not None
        if not versions.is_ready:
            return False
        if begun.prepared is None:
            if not pipeline.payloads.is_ready(batch):
                return False
            share = self._objectives.decision(name).share
            begun.prepared = prepare(pipeline, begun.unit, share, seed=self._settings.worker.seed)
            begun.timings.stage("read")
        elif begun.version == versions.champion:
            return True
        self._take_back(begun)
        begun.version = champion = versions.champion
        asked = begun.prepared.batch
        if champion is None or not asked.rows or not versions.is_asked(champion):
            return True
        others = self._beside(name, begun.after, champion)
        again = self._drawn_twice(name, asked)
        begun.flight = self._flights.begin((champion, *others), asked, again=again)
        places = places_of(begun.unit, begun.prepared.asked_rows)
        ahead = Prefetched(begun.after, begun.unit.last_seq, places, begun.flight)
        self._ahead.keep(name, others, ahead)
        return True

    def _drawn_twice(self, name: str, batch: Batch) -> tuple[int, ...]:
        """Rows that the champion and its challengers answer twice: drawn by the ids of records alone."""
        rate = self._settings.models[name].shadow.noise_rate
        if rate == 0.0 or len(self._slots[name]) < 2:
            return ()
        drawn = sample_rows(NOISE_DRAW, batch.keys, rate=rate, seed=self._settings.worker.seed)
        return tuple(np.flatnonzero(drawn).tolist())

    def _beside(self, name: str, after: int, version: str) -> list[str]:
        """Challengers that are asked together with a version: of its group, and not beyond these records."""
        if self._objectives.measure >= SheddingMeasure.CHALLENGERS or not self._ahead.has_room:
            return []
        versions, group = self.versions[name], self.engines.group((name, version))
        return [
            slot
            for slot in self._slots[name]
            if slot not in (CHAMPION, version)
            and versions.is_asked(slot)
            and self.engines.group((name, slot)) == group
            and self._cursors[name, slot] <= after
        ]

    def _ask_ahead(self, name: str) -> None:
        """Let the engine have its next unit while this one is judged."""
        line = self._lines[name]
        if len(line) == 1:
            at, end = line[0].unit.last_seq, self._journal.last_seq()
            if max(at, line[0].seen) >= end:
                return  # or each step would read all traffic of the others again
            most = min(self.pipelines[name].unit_rows, self._objectives.max_rows(name, CHAMPION))
            unit = read_unit(self._journal, name, at, max_rows=most, period_us=self._period_us(name))
            if unit is None or unit.batch is None:
                line[0].seen = end
                return
            line.append(ChampionUnit(at, unit, self._objectives.timer(), is_ahead=True))
        self._ask(name, line[1])

    def _drop(self, name: str) -> None:
        """Take back what was asked behind a cursor that has jumped."""
        for begun in self._lines[name]:
            self._take_back(begun)
        self._lines[name].clear()

    def _take_back(self, begun: ChampionUnit) -> None:
        if begun.flight is not None:
            self._flights.forget(begun.flight)
            self._ahead.drop(begun.flight)
            begun.flight = None

    def _judge(self, name: str, begun: ChampionUnit) -> bool:
        """Judge the champion's unit, and commit it unless a live test still waits for answers."""
        version, answers = begun.version, None
        if begun.work is None:
            if begun.unit.is_tick:
                del self._lines[name][0]
                return self._tick(name, CHAMPION, begun.unit)
            if begun.flight is not None and version is not None:
                self.versions[name].answered(version, begun.flight.answers[version])
            begun.work = self._champion(name, begun)
        elif not begun.is_answered:
            return False
        else:
            answers = [flight.answers[version or ""] for flight in begun.questions]
        try:
            asked = next(begun.work) if answers is None else begun.work.send(answers)
        except StopIteration as done:
            del self._lines[name][0]
            self._settle(name, CHAMPION, begun.unit, done.value, begun.timings, begun.began)
            return True
        begun.questions = [
            self._flights.begin([version or ""], batch, priority=Priority.TEST) for batch in asked
        ]
        self._take_in()
        return self._judge(name, begun)

    def _tick(self, name: str, slot: str, unit: Unit) -> bool:
        """Let time pass for a slot; whether that changed anything."""
        timings, began = Timings(), self._objectives.timer()
        effects = self.pipelines[name].tick(slot, unit, timings)
        if effects is None:
            self._cursors[name, slot] = unit.last_seq  # ticks alone change nothing: no commit for them
            self._settle_incidents(name, slot, unit)
            return False
        self._settle(name, slot, unit, effects, timings, began)
        return True

    def _settle(
        self, name: str, slot: str, unit: Unit, effects: Effects, timings: Timings, began: float
    ) -> None:
        """Commit what a unit changes."""
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
            shift_us = self._present_us(unit.last_seq, 0)
            self._metrics.delay(name, unit.received_us + shift_us)
            ages = self._objectives.ages(effects, shift_us=shift_us)
            self._metrics.ages(name, ages, self._objectives.slo_s(name))
            self._note_figures(name)

    def _next_unit(self, name: str, slot: str, until: int | None = None) -> Unit | None:
        """The next unit of the journal.

        Challengers stay behind the champion, who decides which records there are.
        """
        at, end = self._cursors[name, slot], self._journal.last_seq()
        if slot != CHAMPION:
            behind = self._backfills.before(name, at, self._cursors[name, CHAMPION])
            until = behind if until is None else min(behind, until)
            until = end = until_rotation(self.pipelines[name].rotations, at, until)
        most = min(self.pipelines[name].unit_rows, self._objectives.max_rows(name, slot))
        period_us = self._period_us(name) if slot == CHAMPION else None
        unit = read_unit(self._journal, name, at, max_rows=most, until=until, period_us=period_us)
        if unit is None:
            # Nothing of this model up to here: or each look would read all traffic of the others again.
            self._cursors[name, slot] = max(at, end)
            if slot == CHAMPION:
                self._objectives.idle(name)
                self._note_figures(name)
        return unit

    def _period_us(self, name: str) -> int | None:
        """Time for which one sample of entities stands; None where no objective ever makes one."""
        return None if self._objectives.slo_s(name) is None else self.pipelines[name].period_us

    # ---- challengers -----------------------------------------------------------------------------------

    def _follow(self, name: str, slot: str) -> bool:
        """Go on with a challenger's unit as far as its answers are there; whether anything was committed."""
        if self._pass_gap(name, slot):
            return True
        begun = self._followed.get((name, slot))
        if begun is None or begun.after != self._cursors[name, slot]:
            if not self.versions[name].is_settled(slot):
                return False
            unit = self._next_unit(name, slot, until=self._cut(name, slot))
            if unit is None:
                return False
            if unit.batch is None:
                return self._pass_labels(name, slot, unit)
            begun = self._followed[name, slot] = self._begin(name, slot, unit)
        said = self._said(name, slot, begun)
        if said is None:
            return False
        del self._followed[name, slot]
        effects = self._challenger(name, slot, begun, said)
        self._settle(name, slot, begun.unit, effects, begun.timings, begun.began)
        return True

    def _said(self, name: str, slot: str, begun: ChallengerUnit) -> Predictions | None:
        """Answer of a challenger to its unit, asked now if need be; None while that is to come."""
        if begun.ahead is not None and begun.ahead.flight.has(slot):
            said = begun.ahead.said(slot, begun.unit, begun.kept)
            if said is not None:
                self.versions[name].answered(slot, begun.ahead.flight.answers[slot])
                return said
            self._ahead.forget(name, slot)  # it was asked about others
            begun.ahead = None
        if begun.ahead is not None:
            return None
        if begun.flight is None:
            self._ask_challengers(name, slot, begun)
            self._take_in()
        if begun.flight is None:
            return NO_PREDICTIONS
        if not begun.flight.has(slot):
            return None
        self.versions[name].answered(slot, begun.flight.answers[slot])
        return Predictions.of(begun.flight, slot)

    def _cut(self, name: str, slot: str) -> int | None:
        """Limit of a challenger's next unit: prefetched blocks are taken by themselves."""
        at = self._cursors[name, slot]
        ahead = self._ahead.at(name, slot, at)
        return self._ahead.begins(name, slot, at) if ahead is None else ahead.last_seq

    def _pass_labels(self, name: str, slot: str, unit: Unit) -> bool:
        """Labels are the champion's to keep; a challenger notes that time has passed."""
        if unit.is_tick:
            return self._tick(name, slot, unit)
        timings, began = Timings(), self._objectives.timer()
        effects = self.pipelines[name].tick(slot, unit, timings) or Effects(name, slot, unit.last_seq)
        self._settle(name, slot, unit, effects, timings, began)
        return True

    def _begin(self, name: str, slot: str, unit: Unit) -> ChallengerUnit:
        began, timings = self._objectives.timer(), Timings()
        whole, known = registered(self._engine, unit)
        batch, kept = self.pipelines[name].payloads.opened(whole, known)
        at = self._cursors[name, slot]
        timings.stage("read")
        return ChallengerUnit(
            at, unit, began, kept, len(known), batch, timings, ahead=self._ahead.at(name, slot, at)
        )

    def _ask_challengers(self, name: str, slot: str, begun: ChallengerUnit) -> None:
        """Ask a challenger about its unit, and with it those that stand at the same place."""
        if not begun.batch.rows or not self.versions[name].is_asked(slot):
            return
        others = [
            other
            for other in self._beside(name, begun.after, slot)
            if self._cursors[name, other] == begun.after
            and (name, other) not in self._followed
            and self._ahead.at(name, other, begun.after) is None
        ]
        again = self._drawn_twice(name, begun.batch)
        begun.flight = self._flights.begin((slot, *others), begun.batch, again=again)
        places = places_of(begun.unit, begun.kept)
        self._ahead.keep(name, others, Prefetched(begun.after, begun.unit.last_seq, places, begun.flight))

    def _challenger(self, name: str, slot: str, begun: ChallengerUnit, said: Predictions) -> Effects:
        # Another may be champion by now, who answered these records as a challenger.
        champion = version_at(champion_borders(self._engine, name), begun.unit.last_seq)
        answer = stored(self._engine, champion, begun.unit, begun.batch)
        others = {} if answer is None else {CHAMPION: answer}
        begun.timings.stage("shadow")
        effects = at_once(
            self.pipelines[name].judge(
                slot, begun.unit, begun.batch, begun.kept,
                version=slot, said=said, timings=begun.timings, stored=others,
            )
        )  # fmt: skip
        if len(begun.kept) < begun.known:
            effects.counts["unanswered"] += begun.known - len(begun.kept)
        return effects

    def _pass_gap(self, name: str, slot: str) -> bool:
        """Let a challenger go on behind what the champion skipped; whether it stood there."""
        at = self._cursors[name, slot]
        end = self._backfills.end(name, at) if at < self._cursors[name, CHAMPION] else None
        if end is not None:
            self._backfills.leave(name, slot, end, self._cursors)
        return end is not None

    def _decide(self, name: str, unit: Unit) -> AdmissionDecision:
        """Decision on shedding for a model's objective, before its next unit is judged."""
        return self._objectives.decide(
            name,
            waiting_rows=self._backlog(name, CHAMPION).records(self._cursors[name, CHAMPION]),
            received_us=self._present_us(int(unit.seq[0]), unit.received[int(unit.seq[0])]),
        )

    def _present_us(self, seq: int, received_us: int) -> int:
        """Receive time of a block by today's clock."""
        return present_us(self._journal.steps(), seq, received_us)

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
            book = self._incidents[name]
            if effects.step_us and effects.slot == CHAMPION:
                book.step(connection, by_us=effects.step_us, seq=effects.seq)
                shift_suspensions(connection, name, by_us=effects.step_us)
            ahead = effects.counts["ahead"]
            book.follow(connection, found, now_us=now_us, alarms=alarms, ahead=ahead, seq=effects.seq)
        if effects.labels or effects.flags:
            self._trigger(connection, name)

    def _keep_windows(self, effects: Effects) -> None:
        """Let the commit carry the state of the windows now and then, and where the champion changed."""
        name, slot = effects.model, effects.slot
        champion = self.versions[name].champion
        swapped = slot == CHAMPION and champion is not None and champion != self._champions.get(name)
        if swapped and champion is not None:
            effects.border = self._cursors[name, slot], champion
            self._champions[name] = champion
        last, now = self._checkpointed.get((name, slot), 0.0), time.monotonic()
        if swapped or now - last >= CHECKPOINT_S:
            if (state := self.pipelines[name].slots.get(slot)) is not None:
                effects.checkpoints += state.checkpoints(name, slot, effects.seq)
            self._checkpointed[name, slot] = now

    def _settle_incidents(self, name: str, slot: str, unit: Unit) -> None:
        """Resolve what has been quiet, when only time has passed."""
        if slot != CHAMPION:
            return
        now_us, seq = unit.received_us, unit.last_seq
        with self._engine.connect() as connection:
            due = self._incidents[name].is_due(connection, now_us=now_us, seq=seq)
        if due:
            with write(self._engine) as connection:
                self._incidents[name].settle(connection, now_us=now_us, seq=seq)

    def _champion(self, name: str, begun: ChampionUnit) -> Work[Effects]:
        unit, decision = begun.unit, self._objectives.decision(name)
        may_ask = decision.measure < SheddingMeasure.LIVE_TESTS and not self._paused.holds(name, "live-tests")
        may_ask &= self._journal.last_seq() - unit.last_seq <= SHED_LIVE_BEHIND_BLOCKS
        may_ask &= (
            self._backlog(name, CHAMPION).records(self._cursors[name, CHAMPION]) <= SHED_LIVE_BEHIND_ROWS
        )
        return judge_unit(
            self._engine, self.pipelines[name], unit, begun.timings,
            target=self._settings.models[name].target, prepared=begun.prepared, version=begun.version,
            said=Predictions.of(begun.flight, begun.version), share=decision.share,
            seed=self._settings.worker.seed, may_ask=may_ask,
        )  # fmt: skip

    def _trigger(self, connection: Connection, name: str) -> None:
        rule = self._settings.models[name].retrain
        trigger = Trigger(
            rule.enabled, rule.labelled_flags, rule.cooldown_s, rule.daily_budget, rows=rule.rows
        )
        targets = [WebhookTarget(hook.url, hook.events) for hook in self._settings.webhooks]
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
        with self._engine.connect() as connection:
            rows = versions_in_service(connection)
            self._paused = Paused.of(list_pauses(connection))
            resting = shadow_tests.over(connection)
        for name, pipeline in self.pipelines.items():
            champion = next((r.version for r in rows if (r.model, r.status) == (name, "champion")), None)
            wanted = sorted(
                r.version
                for r in rows
                if (r.model, r.status) == (name, "challenger") and (name, r.version) not in resting
            )
            versions = self.versions[name]
            versions.keep(champion, wanted)
            self._take_in()
            self._take_over()
            book = self._incidents[name]
            if force or book.version != versions.champion:
                book.version = versions.champion
                self._show_rates(name)
            slots = [CHAMPION, *(v for v in wanted if v in versions.versions)]
            for slot in slots:
                if (name, slot) not in self._cursors:
                    self._cursors[name, slot] = self._open_cursor(name, slot)
            gone = pipeline.slots.keys() - {*slots, *self._judges.slots(name), LIVE_SLOT, BACKFILL}
            for slot in gone:
                del pipeline.slots[slot]
                self._cursors.pop((name, slot), None)
                self._followed.pop((name, slot), None)
                self._ahead.forget(name, slot)
            if gone or force:
                with write(self._engine) as connection:
                    forget_windows(connection, name, keep=[*slots, BACKFILL])
            self._slots[name] = [] if name in self._unregistered else slots
        self._note_left_out()
        self._observe()

    def _note_left_out(self) -> None:
        """Write disabled versions, with reasons, for the page."""
        for name, versions in self.versions.items():
            known, failures = self._left_out[name], dict(versions.failures)
            if known != failures:
                with write(self._engine) as connection:
                    take_back(connection, name)
                    for version, why in sorted(failures.items()):
                        leave_out(connection, name, version, why, now_us=now_us())
                self._left_out[name] = failures
            champion = int(versions.champion in failures)
            self._metrics.left_out(name, CHAMPION, champion)
            self._metrics.left_out(name, "challenger", len(failures) - champion)

    def _follow_suspensions(self) -> None:
        """Take over what people suspended and resumed; they act on every slot, strikes on their own."""
        with self._engine.connect() as connection:
            found = suspensions(connection)
        for name, pipeline in self.pipelines.items():
            mine = [one for one in found if one.model == name]
            pipeline.slots[CHAMPION].suspended = {one.assertion: one.until_us for one in mine}
            by_hand = {one.assertion: one.until_us for one in mine if one.reason}
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
            {name: (self.versions[name].champion, self._slots[name][1:]) for name in self.pipelines}
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
                since = [self._present_us(block.seq, block.received_us) for block in waiting]
                age = time.time() - since[0] / 1e6 if since else 0.0
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
            at = cursor(connection, name, slot)
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
        steps = self._journal.steps()
        since = steps[-1].seq if steps else -1  # times before a step say nothing behind it
        with self._engine.connect() as connection:
            strikes = newest_strikes(connection, name, after_seq=since, limit=RESTORED_STRIKES)
            suspended = {one.assertion: one.until_us for one in suspensions(connection, name)}
        self.pipelines[name].restore_strikes(strikes, suspended)

    def _restore_sampling(self, name: str) -> None:
        """Go on sampling from where the champion's cursor stands."""
        pipeline = self.pipelines[name]
        with self._engine.connect() as connection:
            pipeline.rotations = rotations(connection, name)
            found = standing(connection, name)
        pipeline.standing = SamplingState() if found is None else SamplingState(*found)

    def _rebuild(self, name: str, slot: str) -> None:
        """Let a slot carry what it carried before the restart."""
        borders = champion_borders(self._engine, name)
        if borders and slot == CHAMPION:
            self._champions[name] = borders[-1][1]
        at = self._cursors[name, slot]
        begin, restarted_us = self._backfills.restarted(name, at)
        last = rotation_before(self.pipelines[name].rotations, at)
        if last is not None and last.seq >= begin:
            begin, restarted_us = last.seq, last.at_us
        offered = {judge.window for judge in self.pipelines[name].due_at(slot)}
        windows = [window_digest(window) for window in offered if window is not None]
        with write(self._engine) as connection:
            keep_windows(connection, name, slot, windows=windows)
        restore_slot(self._engine, self._journal, self.pipelines[name], slot, at, borders, begin=begin)
        state = self.pipelines[name].slots[slot]
        state.restarted_us, state.rotated_seq = restarted_us, 0 if last is None else last.seq


def add_costs(effects: Effects, timings: Timings) -> None:
    """Count each assertion's time and records, for its cost.

    The cost per record follows from both.
    """
    for name, seconds in timings.tasks.items():
        effects.counts[f"cost_ns:{name}"] += int(seconds * 1e9)
        effects.counts[f"judged:{name}"] += effects.counts["records"]


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
