"""Live tests of a production-only model, through its endpoint, in a thread behind the stream.

Only a configured endpoint is asked, within its rate. The slot has its own cursor, so nothing waits for
production: questions to a slow endpoint are shed, a failing one is paused for longer and longer, and every
question is counted.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.behavioral_tests.asking.limits import Breaker
from outrider.behavioral_tests.asking.records import endpoint
from outrider.dataops.flags import live_rates
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cursors import open_cursor
from outrider.dataops.redaction.columns import redacted_rows
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import write
from outrider.monitor.engine.poison import checked
from outrider.monitor.host.client import PerturbedCopies
from outrider.monitor.stream.stored_answers import registered
from outrider.monitor.stream.units import Unit, read_unit

from .backfill import Backfills
from .commits import Commits
from .context import WorkerContext
from .ledger_rows import RecordLocations
from .live_budget import LiveBudget
from .live_tests import (
    Asking,
    CaseAnswers,
    QuestionSample,
    answered,
    draw,
    note,
    note_unasked,
    probabilities,
    together,
)
from .metrics import LIVE_SLOT
from .pipeline import CHAMPION, Pipeline
from .slot_state import SlotState
from .stages.host_checks import AssertionHost
from .stages.work import Timings

log = logging.getLogger("outrider.worker")

MAX_LAG_S = 60.0
"""Records further behind the newest are not asked about."""
QUIET_UNITS = 64
"""Of units without questions every 64th is committed."""


@dataclass(slots=True)
class PendingEndpointQuestions:
    unit: Unit
    place: RecordLocations
    judged: Batch
    sample: QuestionSample
    effects: Effects
    questions: Mapping[str, PerturbedCopies]
    answers: dict[str, CaseAnswers] = field(default_factory=dict)
    problem: str = ""
    done: threading.Event = field(default_factory=threading.Event)


class LiveEndpoints:
    def __init__(
        self, context: WorkerContext, host: AssertionHost, commits: Commits, backfills: Backfills
    ) -> None:
        self._context = context
        self._host = host
        self._commits = commits
        self._backfills = backfills
        self._slots: dict[str, LiveEndpoint] = {}

    def start(self) -> None:
        """Set up a slot for each model with endpoint and live tests; new slots begin at the champion."""
        for model, own in self._context.settings.models.items():
            pipeline = self._context.pipelines[model]
            if own.live.endpoint is None or not any(o.kind == "live_test" for o in pipeline.offered):
                continue
            predict = endpoint(
                own.live.endpoint, timeout_s=own.live.deadline_s, key_env=own.live.key_env, block_rows=64
            )
            budget = LiveBudget.of(pipeline.offered, own.live.rows_per_s)
            with write(self._context.engine) as connection:
                begin = self._context.cursors.get((model, CHAMPION), 0)
                self._context.cursors[model, LIVE_SLOT] = open_cursor(
                    connection, model, LIVE_SLOT, begin=begin
                )
                state = ledger.live_budget(connection, model, LIVE_SLOT)
            if state is not None:
                budget.restore(state)
            own_state = pipeline.slots.setdefault(LIVE_SLOT, SlotState())
            own_state.suspended |= pipeline.suspended  # whom a person has suspended is not asked once more
            self._slots[model] = LiveEndpoint(
                pipeline, self._host, predict, budget, self._context.settings.worker.seed
            )
            self._context.metrics.endpoint_up(model, is_up=True)

    def step(
        self,
        *,
        resting: Collection[str] = (),
        silent: Collection[str] = (),
    ) -> bool:
        """Begin or finish each slot's work without waiting; returns any progress.

        Nothing begins for ``resting`` models; the questions of ``silent`` ones are shed.
        """
        busy = False
        for model, slot in self._slots.items():
            if slot.pending is None and model not in resting:
                busy |= self._begin(model, slot, may_ask=model not in silent)
            if slot.pending is not None and slot.pending.done.is_set():
                self._finish(model, slot)
                busy = True
        return busy

    def _begin(self, model: str, slot: "LiveEndpoint", *, may_ask: bool) -> bool:
        at, until = self._context.cursors[model, LIVE_SLOT], self._context.cursors[model, CHAMPION]
        if until <= at:
            return False
        if (end := self._backfills.end(model, at)) is not None:
            self._context.cursors[model, LIVE_SLOT] = end
            return True
        until = self._backfills.before(model, at, until)
        pipeline = self._context.pipelines[model]
        unit = read_unit(self._context.journal, model, at, max_rows=pipeline.unit_rows, until=until)
        if unit is not None and unit.step_us:
            slot.step(unit.step_us)
        if unit is None or unit.batch is None:
            self._context.cursors[model, LIVE_SLOT] = max(at, until if unit is None else unit.last_seq)
            return unit is not None
        batch, kept = pipeline.payloads.opened(*registered(self._context.engine, unit))
        newest = self._context.journal.read(self._context.journal.last_seq() - 1, limit=1)
        received_us = present_us(self._context.journal.steps(), unit.last_seq, unit.received_us)
        lag_s = (newest[0].received_us - received_us) / 1e6 if newest else 0.0
        slot.begin(unit, batch, kept, may_ask=may_ask and lag_s <= MAX_LAG_S)
        return True

    def _finish(self, model: str, slot: "LiveEndpoint") -> None:
        effects = slot.finish()
        slot.quiet_units = 0 if effects.live_answers else slot.quiet_units + 1
        if slot.quiet_units % QUIET_UNITS:
            # Nobody was asked: after a crash the budget and the draw are made again.
            self._context.cursors[model, LIVE_SLOT] = effects.seq
            return
        with self._commits.transaction(effects, Timings(), at_us=effects.received_us) as connection:
            tests = {view.test: view.revision for view in effects.live_rates}
            # One version of several must not hide the alarm of another.
            rates = live_rates.current_rates(connection, model, tests, None) if tests else []
        self._context.metrics.live_rates(model, rates)
        self._context.metrics.endpoint_up(model, is_up=slot.is_up)


class LiveEndpoint:
    def __init__(
        self, pipeline: Pipeline, host: AssertionHost, predict: Predictor, budget: LiveBudget, seed: int
    ) -> None:
        self.pending: PendingEndpointQuestions | None = None
        self.is_up = True
        self.breaker = Breaker()
        self.quiet_units = 0
        self._pipeline = pipeline
        self._host = host
        self._predict = predict
        self._budget = budget
        self._seed = seed

    def step(self, by_us: int) -> None:
        """Shift times by a step of the clock."""
        self._budget.step(by_us)

    def begin(self, unit: Unit, batch: Batch, kept: NDArray[np.intp], *, may_ask: bool) -> None:
        pipeline = self._pipeline
        effects = Effects(pipeline.name, LIVE_SLOT, unit.last_seq, owner=CHAMPION)
        effects.received, effects.received_us = unit.received, unit.received_us
        asking = Asking(probabilities(self._budget, unit))
        effects.live_budget = self._budget.to_dict()
        place = RecordLocations.of(unit, batch, kept, pipeline.versions(CHAMPION, batch, None))
        sample = draw(pipeline.live_tests(LIVE_SLOT, unit.received_us), asking, place, seed=self._seed)
        answers = comparable(batch)
        note_unasked(effects, place, sample.only(~answers), "not_applicable")
        sample = sample.only(answers)
        may_ask = may_ask and pipeline.time.allows()
        status = "shed" if not may_ask else "" if self.breaker.allows() else "unanswered"
        self.pending = PendingEndpointQuestions(unit, place, batch, sample, effects, {})
        if status or not sample.size:
            note_unasked(effects, place, sample, status)
            self.pending.sample = QuestionSample()
            self.pending.done.set()
            return
        began = time.perf_counter()
        found = self._host.check(batch, assertions=[], live=sample.asked, seq=place.seq)
        pipeline.time.spend(time.perf_counter() - began)
        pipeline.strike(effects, found.failures, unit.received_us)
        self.pending.questions = found.questions
        # A thread that never outlives the process.
        threading.Thread(target=self._ask, args=(self.pending,), daemon=True, name="live endpoint").start()

    def _ask(self, pending: PendingEndpointQuestions) -> None:
        try:
            for copies in together(pending.questions):
                outputs = checked(self._predict(copies.batch), copies.batch.rows)
                pending.answers |= answered(pending.judged, pending.questions, copies, outputs)
        except Exception as error:  # noqa: BLE001 - whatever production answers, it is counted and shown
            pending.problem = f"{type(error).__name__}: {error}"
        finally:
            pending.done.set()

    def finish(self) -> Effects:
        pending, pipeline = self.pending, self._pipeline
        assert pending is not None
        self.pending = None
        if not pending.sample.size:
            return pending.effects
        self._note_health(pending)
        began = time.perf_counter()
        effects, place = pending.effects, pending.place
        compared = {name: (one.before, one.after) for name, one in pending.answers.items()}
        verdicts, failures = self._host.check_answers(pipeline.name, compared) if compared else ({}, [])
        offered = {o.name: o for o in pipeline.offered}
        weight = pending.judged.column("weight")
        note(effects, place, pending.sample, pending.questions, pending.answers, verdicts, offered, weight)
        pipeline.time.spend(time.perf_counter() - began)
        pipeline.strike(effects, failures, pending.unit.received_us)
        return effects

    def _note_health(self, pending: PendingEndpointQuestions) -> None:
        """Note whether the endpoint answered, and log a change."""
        asked = any(questions.batch is not None for questions in pending.questions.values())
        if pending.problem:
            self.breaker.failed()
            if self.is_up:
                log.warning("the endpoint of %s gives no answer: %s", self._pipeline.name, pending.problem)
            self.is_up = False
        elif asked:
            self.breaker.answered()
            if not self.is_up:
                log.warning("the endpoint of %s answers again", self._pipeline.name)
            self.is_up = True


def comparable(batch: Batch) -> NDArray[np.bool_]:
    """Records whose production answer is comparable: present, and to the same question."""
    found = np.zeros(batch.rows, dtype=np.bool_)
    for name in batch.names:
        if name.startswith("outputs."):
            found |= ~batch.is_null(name)
    return found & ~redacted_rows(batch)
