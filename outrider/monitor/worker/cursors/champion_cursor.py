"""Champion's cursor: units asked about, judged and committed.

The next one is asked meanwhile.
"""

from dataclasses import dataclass, field

from outrider.dataops.ledger import freshness
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.state.database import write
from outrider.monitor.engine.asks import Priority
from outrider.monitor.stream.units import Unit, read_unit
from outrider.monitor.worker.admission import SheddingMeasure
from outrider.monitor.worker.champion import evaluate_unit, prepare
from outrider.monitor.worker.inference import Predictions
from outrider.monitor.worker.judged import is_answered
from outrider.monitor.worker.pending_unit import ChampionUnit
from outrider.monitor.worker.pipeline import CHAMPION
from outrider.monitor.worker.stages.work import Timings, Work

from .model_cursor import ModelCursor

SHED_LIVE_BEHIND_BLOCKS = 512
SHED_LIVE_BEHIND_ROWS = 100_000
"""Backlog beyond which live tests are shed, so that the models catch up."""


@dataclass(eq=False)
class ChampionCursor(ModelCursor):
    _pending: list[ChampionUnit] = field(default_factory=list, init=False)
    """The unit at the cursor, and the next."""

    @property
    def is_judging(self) -> bool:
        """True between identification of a unit's records and its commit."""
        return bool(self._pending) and self._pending[0].work is not None

    def swap_champion(self) -> None:
        if not self.is_judging:
            self._versions.swap_champion()

    def step(self, *, may_test: bool) -> bool:
        """Advance the unit at the cursor as far as answers have come; True where something was committed.

        ``may_test=False`` sheds live tests.
        """
        pending = self._head()
        if pending is None:
            return False
        if pending.unit.is_tick:
            del self._pending[0]
            return self._pass_time(pending.unit)
        if pending.unit.batch is not None and pending.work is None:
            if self._is_lost(pending) and self._backfills.skip(self._model):
                self._cancel_all()
                return True
            if not self._advance(pending):
                return False
        return self._judge(pending, may_test=may_test)

    # ---- the units at and behind the cursor ------------------------------------------------------------

    def _head(self) -> ChampionUnit | None:
        at = self._context.cursors[self._model, CHAMPION]
        if self._pending and self._pending[0].after != at:
            self._cancel_all()
        if not self._pending:
            began, end = self._context.objectives.timer(), self._context.journal.last_seq()
            unit = self._read(at)
            if unit is None:
                # Nothing of this model up to here: or each look would read all traffic of the others again.
                self._context.cursors[self._model, CHAMPION] = max(at, end)
                self._context.objectives.idle(self._model)
                self._note_freshness()
                return None
            self._pending.append(ChampionUnit(at, unit, began))
        return self._pending[0]

    def _read(self, after: int) -> Unit | None:
        objectives = self._context.objectives
        return read_unit(
            self._context.journal,
            self._model,
            after,
            max_rows=min(self._pipeline.unit_rows, objectives.max_rows(self._model, CHAMPION)),
            # Time for which one sample of entities stands; where no objective ever makes one, all of it.
            period_us=None if objectives.slo_s(self._model) is None else self._pipeline.period_us,
        )

    def _cancel_all(self) -> None:
        """Cancel what was asked after a cursor that has jumped."""
        for pending in self._pending:
            self._cancel(pending)
        self._pending.clear()

    def _cancel(self, pending: ChampionUnit) -> None:
        if pending.request is not None:
            self._scheduler.cancel(pending.request)
            pending.request = None

    # ---- predictions -----------------------------------------------------------------------------------

    def _is_lost(self, pending: ChampionUnit) -> bool:
        """Decide what to shed for the objective; True where records can no longer be judged in time."""
        if pending.prepared is not None and not pending.is_ahead:
            return False
        unit, first = pending.unit, int(pending.unit.seq[0])
        decision = self._context.objectives.decide(
            self._model,
            waiting_rows=self._context.waiting_records(self._model),
            received_us=self._context.present_us(first, unit.received[first]),
        )
        return decision.measure is SheddingMeasure.SKIP

    def _advance(self, pending: ChampionUnit) -> bool:
        """Ask about a unit and the next; True once the first has its answers."""
        if pending.is_ahead:  # its turn has come
            pending.is_ahead, pending.began, pending.timings = (
                False,
                self._context.objectives.timer(),
                Timings(),
            )
        if not self._ask(pending):
            return False  # other models go on while payloads are fetched, or the model is loaded
        self._ask_ahead(pending)
        self._context.inference.poll_events()
        if not pending.is_answered:
            return False
        pending.timings.stage("shadow")
        return True

    def _ask(self, pending: ChampionUnit) -> bool:
        """Ask the champion about a unit once; False where it cannot be asked yet."""
        versions, batch = self._versions, pending.unit.batch
        assert batch is not None
        if not versions.is_ready:
            return False
        if pending.prepared is None:
            if not self._pipeline.payloads.is_ready(batch):
                return False
            share = self._context.objectives.decision(self._model).share
            seed = self._context.settings.worker.seed
            pending.prepared = prepare(self._pipeline, pending.unit, share, seed=seed)
            pending.timings.stage("read")
        elif pending.version == versions.champion:
            return True
        self._cancel(pending)
        pending.version = champion = versions.champion
        asked = pending.prepared.batch
        if champion is not None and asked.rows and versions.is_asked(champion):
            others = self._scheduler.co_scheduled(champion, after=pending.after)
            rows = pending.prepared.asked_rows
            pending.request = self._scheduler.ask(
                champion, others, pending.unit, rows, asked, after=pending.after
            )
        return True

    def _ask_ahead(self, head: ChampionUnit) -> None:
        """Prefetch the next unit while this one is judged."""
        if len(self._pending) == 1:
            at, end = head.unit.last_seq, self._context.journal.last_seq()
            if max(at, head.seen) >= end:
                return  # or each step would read all traffic of the others again
            unit = self._read(at)
            if unit is None or unit.batch is None:
                head.seen = end
                return
            self._pending.append(ChampionUnit(at, unit, self._context.objectives.timer(), is_ahead=True))
        self._ask(self._pending[1])

    # ---- verdicts and commit ---------------------------------------------------------------------------

    def _judge(self, pending: ChampionUnit, *, may_test: bool) -> bool:
        """Judge a unit, and commit it unless a live test waits for answers."""
        version, inference = pending.version or "", self._context.inference
        if pending.work is None:
            if self._is_left(pending):
                return True
            pending.work = self._work(pending, may_test=may_test)
        while pending.is_answered:
            found = pending.resume()
            if isinstance(found, Effects):
                del self._pending[0]
                self._commit(pending, found)
                return True
            pending.questions = [inference.begin([version], batch, priority=Priority.TEST) for batch in found]
            inference.poll_events()
        return False

    def _is_left(self, pending: ChampionUnit) -> bool:
        """Process the answers to a unit; True where they are owed and it is left to the backfill."""
        if pending.request is None:
            return False
        answer = pending.request.answers[pending.version or ""]
        self._versions.answered(answer.version, answer)
        if not answer.is_owed:
            self._backfills.wake(self._model, answer.version)
            return False
        if pending.unit.batch is None or is_answered(pending.unit.batch):
            return False  # production's own answers are judged
        del self._pending[0]
        self._backfills.leave(pending.unit, answer)
        return True

    def _work(self, pending: ChampionUnit, *, may_test: bool) -> Work[Effects]:
        context, unit = self._context, pending.unit
        decision = context.objectives.decision(self._model)
        may_test &= decision.measure < SheddingMeasure.LIVE_TESTS
        may_test &= context.journal.last_seq() - unit.last_seq <= SHED_LIVE_BEHIND_BLOCKS
        may_test &= context.waiting_records(self._model) <= SHED_LIVE_BEHIND_ROWS
        return evaluate_unit(
            context.engine, self._pipeline, unit, pending.timings,
            target=context.settings.models[self._model].target, prepared=pending.prepared,
            version=pending.version, predictions=Predictions.of(pending.request, pending.version),
            share=decision.share, seed=context.settings.worker.seed, may_test=may_test,
        )  # fmt: skip

    def _commit(self, pending: ChampionUnit, effects: Effects) -> None:
        unit, context = pending.unit, self._context
        self._commits.commit_unit(unit, effects, pending.timings, began=pending.began)
        if unit.batch is not None:
            shift_us = context.present_us(unit.last_seq, 0)
            context.metrics.delay(self._model, unit.received_us + shift_us)
            ages = context.objectives.ages(effects, shift_us=shift_us)
            context.metrics.ages(self._model, ages, context.objectives.slo_s(self._model))
            self._note_freshness()

    def _pass_time(self, unit: Unit) -> bool:
        timings, began = Timings(), self._context.objectives.timer()
        effects = self._pipeline.pass_time(CHAMPION, unit, timings)
        if effects is None:
            # Ticks alone change nothing: no commit for them.
            self._context.cursors[self._model, CHAMPION] = unit.last_seq
            self._commits.settle_incidents(unit)
            return False
        self._commits.commit_unit(unit, effects, timings, began=began)
        return True

    def _note_freshness(self) -> None:
        """Publish the age of records once a second, and when the last one is judged."""
        if (figures := self._context.objectives.figures(self._model)) is not None:
            with write(self._context.engine) as connection:
                freshness.note(connection, figures)
