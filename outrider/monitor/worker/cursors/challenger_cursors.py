"""Challengers' cursors: each follows the champion, judges what it registered and commits by itself."""

from dataclasses import dataclass, field

from outrider.dataops.ledger.champions import champion_borders, version_at
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.records import counted_names
from outrider.dataops.ledger.rotations import until_rotation
from outrider.monitor.engine.asks import AskAnswer
from outrider.monitor.stream.stored_answers import registered, stored
from outrider.monitor.stream.units import Unit, read_unit
from outrider.monitor.worker.inference import NO_PREDICTIONS, Predictions
from outrider.monitor.worker.ledger_rows import RecordLocations
from outrider.monitor.worker.pending_unit import ChallengerUnit
from outrider.monitor.worker.pipeline import CHAMPION
from outrider.monitor.worker.stages.work import Timings, at_once

from .model_cursor import ModelCursor

FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""Pause before an unanswered unit is asked again, and its limit."""


@dataclass(eq=False)
class ChallengerCursors(ModelCursor):
    _pending: dict[str, ChallengerUnit] = field(default_factory=dict, init=False)

    def forget(self, slot: str) -> None:
        self._pending.pop(slot, None)
        self._scheduler.prefetched.forget(self._model, slot)

    @property
    def owed_records(self) -> int:
        rests = (slot for slot, pending in self._pending.items() if pending.pause_s)
        return sum(self._context.waiting_records(self._model, slot) for slot in rests)

    def step(self, slot: str) -> bool:
        """Advance a challenger's unit as far as answers have come; True where it committed."""
        at = self._context.cursors[self._model, slot]
        if self._pass_gap(slot, at):
            return True
        pending = self._pending.get(slot)
        if pending is None or pending.after != at:
            unit = self._next_unit(slot, at)
            if unit is None:
                return False
            if unit.batch is None:
                return self._pass_time(slot, unit)
            pending = self._pending[slot] = self._begin(slot, at, unit)
        if self._context.objectives.timer() < pending.due:
            return False
        predictions = self._predictions(slot, pending)
        if predictions is None:
            return False
        del self._pending[slot]
        effects = self._judge(slot, pending, predictions)
        self._commits.commit_unit(pending.unit, effects, pending.timings, began=pending.began)
        return True

    # ---- the unit at the cursor ------------------------------------------------------------------------

    def _pass_gap(self, slot: str, at: int) -> bool:
        """Move past what the champion skipped; True where the cursor was there."""
        is_behind = at < self._context.cursors[self._model, CHAMPION]
        end = self._backfills.end(self._model, at) if is_behind else None
        if end is not None:
            self._backfills.pass_gap(self._model, slot, end)
        return end is not None

    def _next_unit(self, slot: str, at: int) -> Unit | None:
        """Next unit behind the champion, which decides the records; None where there is none."""
        context, model = self._context, self._model
        if not self._versions.is_settled(slot):
            return None
        until = self._next_boundary(slot, at)
        most = min(self._pipeline.unit_rows, context.objectives.max_rows(model, slot))
        unit = read_unit(context.journal, model, at, max_rows=most, until=until)
        if unit is None:
            # Nothing of this model up to here: or each look would read all traffic of the others again.
            context.cursors[model, slot] = max(at, until)
        return unit

    def _next_boundary(self, slot: str, at: int) -> int:
        """Last block of the next unit; what was prefetched forms a unit of its own."""
        until = self._backfills.before(self._model, at, self._context.cursors[self._model, CHAMPION])
        here = self._scheduler.prefetched.at(self._model, slot, at)
        end = self._scheduler.prefetched.next_begins(self._model, slot, at) if here is None else here.last_seq
        return until_rotation(self._pipeline.rotations, at, until if end is None else min(until, end))

    def _begin(self, slot: str, at: int, unit: Unit) -> ChallengerUnit:
        began, timings = self._context.objectives.timer(), Timings()
        whole, known = registered(self._context.engine, unit)
        batch, kept = self._pipeline.payloads.opened(whole, known)
        prefetched = self._scheduler.prefetched.at(self._model, slot, at)
        timings.stage("read")
        return ChallengerUnit(at, unit, began, kept, len(known), batch, timings, prefetched=prefetched)

    def _pass_time(self, slot: str, unit: Unit) -> bool:
        """Advance time only; labels are kept by the champion's slot."""
        timings, began = Timings(), self._context.objectives.timer()
        effects = self._pipeline.pass_time(slot, unit, timings)
        if effects is None and unit.is_tick:
            # Ticks alone change nothing: no commit for them.
            self._context.cursors[self._model, slot] = unit.last_seq
            return False
        effects = effects or Effects(self._model, slot, unit.last_seq)
        self._commits.commit_unit(unit, effects, timings, began=began)
        return True

    # ---- predictions -----------------------------------------------------------------------------------

    def _predictions(self, slot: str, pending: ChallengerUnit) -> Predictions | None:
        """Answers of a challenger to its unit, asked if need be; None while pending."""
        prefetched = pending.prefetched
        if prefetched is not None:
            if not prefetched.request.has(slot):
                return None
            predictions = prefetched.predictions(slot, pending.unit, pending.kept)
            if predictions is not None:
                return self._taken(slot, pending, prefetched.request.answers[slot], predictions)
            self._scheduler.prefetched.forget(self._model, slot)  # it was asked about others
            pending.prefetched = None
        if pending.request is None:
            self._ask(slot, pending)
            self._context.inference.poll_events()
        if pending.request is None:
            return NO_PREDICTIONS
        if not pending.request.has(slot):
            return None
        predictions = Predictions.of(pending.request, slot)
        return self._taken(slot, pending, pending.request.answers[slot], predictions)

    def _taken(
        self, slot: str, pending: ChallengerUnit, answer: AskAnswer, predictions: Predictions
    ) -> Predictions | None:
        """Process the answer; None where it is owed and the unit young enough to ask again."""
        self._versions.answered(slot, answer)
        if not answer.is_owed or self._backfills.is_expired(pending.unit):
            return predictions
        self._scheduler.prefetched.forget(self._model, slot)
        pending.prefetched = pending.request = None
        pending.pause_s = min(2 * pending.pause_s or FIRST_REST_S, LONGEST_REST_S)
        pending.began = pending.due = self._context.objectives.timer() + pending.pause_s
        return None

    def _ask(self, slot: str, pending: ChallengerUnit) -> None:
        """Ask a challenger about its unit, together with challengers at the same cursor."""
        if not pending.batch.rows or not self._versions.is_asked(slot):
            return
        at = pending.after
        others = [
            other
            for other in self._scheduler.co_scheduled(slot, after=at)
            if self._context.cursors[self._model, other] == at
            and other not in self._pending
            and self._scheduler.prefetched.at(self._model, other, at) is None
        ]
        pending.request = self._scheduler.ask(
            slot, others, pending.unit, pending.kept, pending.batch, after=at
        )

    # ---- verdicts --------------------------------------------------------------------------------------

    def _judge(self, slot: str, pending: ChallengerUnit, predictions: Predictions) -> Effects:
        engine, unit = self._context.engine, pending.unit
        # Another may be champion by now, who answered these records as a challenger.
        champion = version_at(champion_borders(engine, self._model), unit.last_seq)
        answer = stored(engine, champion, unit, pending.batch)
        names = {}
        if self._context.settings.models[self._model].slice_by is not None:
            with engine.connect() as connection:
                names = counted_names(connection, self._model, first=unit.first_seq, last=unit.last_seq)
        pending.timings.stage("shadow")
        effects = at_once(
            self._pipeline.evaluate(
                slot, pending.batch, RecordLocations.of(unit, pending.batch, pending.kept),
                version=slot, predictions=predictions, timings=pending.timings,
                stored={} if answer is None else {CHAMPION: answer}, names=names,
            )
        )  # fmt: skip
        if len(pending.kept) < pending.known:
            effects.counts["unanswered"] += pending.known - len(pending.kept)
        return effects
