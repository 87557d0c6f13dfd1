"""Backfill: jumps over a backlog, judged later in slack time.

A jump, its range and the verdicts of open windows commit together; slots that follow the champion pass a gap
whole.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass

from outrider.dataops.ledger import backfill
from outrider.dataops.ledger.backfill import OWED, SLOT, SkippedBlocks
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.state.clock import newest_before, present_us
from outrider.dataops.state.database import write
from outrider.monitor.engine.asks import LATE, AskAnswer, Priority
from outrider.monitor.stream.units import Unit, read_unit, seq_before

from .champion import evaluate_unit, prepare
from .commits import Commits
from .context import WorkerContext
from .inference import NO_PREDICTIONS, Predictions
from .judged import is_answered
from .pending_unit import ChampionUnit
from .pipeline import CHAMPION, owner_of
from .slot_restore import restore_slot
from .slot_state import SlotState
from .stages.work import Timings, at_once

log = logging.getLogger("outrider.worker")
KEPT = 0.4
"""Share of the objective that the oldest record after a jump may have used up."""


FIRST_REST_S, LONGEST_REST_S = 10.0, 3600.0
"""Pause before an unanswered unit is asked again, and its limit; the limit holds at once for a version
that held up its process, which it may do this often within an hour."""


@dataclass(slots=True)
class _Rest:
    version: str
    until: float
    pause_s: float
    is_late: bool


class Backfills:
    def __init__(self, context: WorkerContext, commits: Commits) -> None:
        self._context = context
        self._commits = commits
        self._gaps: dict[str, list[SkippedBlocks]] = {}
        self._waiting: dict[str, ChampionUnit] = {}
        self._rests: dict[str, _Rest] = {}
        for model in context.pipelines:
            self._read(model)

    def start(self) -> None:
        """Restore the slots' state from before a restart; the champion's cursors are restored already."""
        for model, pipeline in self._context.pipelines.items():
            if not self._gaps[model]:
                continue
            gap = self._next(model)
            at = 0 if gap is None else gap.at_seq
            same = [] if gap is None else self._together(gap)
            begin = same[0].after_seq if same else 0
            borders = [(one.after_seq, one.version) for one in same if one.version is not None]
            step = newest_before(self._context.journal.steps(), at)
            if step is not None and step.seq > begin:
                begin = step.seq
            restore_slot(
                self._context.engine, self._context.journal, pipeline, SLOT, at, borders, begin=begin
            )

    # ---- the way of the stream -------------------------------------------------------------------------

    def restarted(self, model: str, at: int) -> tuple[int, int]:
        """Block and time at which the windows of a slot at cursor ``at`` restarted; zeros if never."""
        step = newest_before(self._context.journal.steps(), at)
        border = (0, 0) if step is None else (step.seq, step.received_us)
        return max(backfill.restarted(self._gaps[model], at), border)

    def end(self, model: str, at: int) -> int | None:
        """End of the skipped range right after cursor ``at``, or None."""
        return backfill.end_of_gap(self._gaps[model], at)

    def before(self, model: str, at: int, until: int) -> int:
        return backfill.before_gap(self._gaps[model], at, until)

    def skip(self, model: str) -> bool:
        """Move the champion's cursor past old records; False where nothing would be skipped."""
        objectives, journal = self._context.objectives, self._context.journal
        slo_s = objectives.slo_s(model)
        assert slo_s is not None
        at, now_us = self._context.cursors[model, CHAMPION], objectives.now_us()
        until = seq_before(journal, int(now_us - KEPT * slo_s * 1e6), after=at)
        records = journal.count_records(at, until, model=model)
        if not records:
            return False
        with self._commits.transaction(
            self._closing(model, CHAMPION, until, now_us), at_us=now_us
        ) as connection:
            backfill.skip(
                connection, model, after_seq=at, until_seq=until, records=records, now_us=now_us, version=None
            )
        self._read(model)
        self._context.metrics.skipped(model)
        log.warning(
            "%s: %d records cannot be judged within %g s and are skipped; they are judged later",
            model, records, slo_s,
        )  # fmt: skip
        return True

    def leave(self, unit: Unit, answer: AskAnswer) -> None:
        """Move the champion's cursor past an unanswered unit, to ask again later."""
        model, now_us = unit.model, self._context.objectives.now_us()
        at, until = self._context.cursors[model, CHAMPION], unit.last_seq
        records = self._context.journal.count_records(at, until, model=model)
        last = self._gaps[model][-1] if self._gaps[model] else None
        with self._commits.transaction(
            self._closing(model, CHAMPION, until, now_us), at_us=now_us
        ) as connection:
            if last is not None and (last.reason, last.until_seq, last.done_us) == (OWED, at, None):
                backfill.extend(connection, last, until_seq=until, records=records)
            else:
                backfill.skip(
                    connection, model, after_seq=at, until_seq=until, records=records, now_us=now_us,
                    version=None, reason=OWED,
                )  # fmt: skip
        self._read(model)
        self._rest(model, answer)

    def wake(self, model: str, version: str) -> None:
        rest = self._rests.get(model)
        if rest is not None and not (rest.is_late and rest.version == version):
            del self._rests[model]

    def owed_records(self, model: str) -> int:
        return sum(
            gap.records - gap.passed
            for gap in self._gaps[model]
            if gap.done_us is None and gap.reason == OWED
        )

    def pass_gap(self, model: str, slot: str, end: int) -> None:
        """Move a slot that follows the champion past a gap."""
        skipped_us = next(gap.created_us for gap in self._gaps[model] if gap.until_seq == end)
        self._commits.commit(self._closing(model, slot, end, skipped_us), at_us=skipped_us)

    def _closing(self, model: str, slot: str, end: int, at_us: int) -> Effects:
        at = self._context.cursors[model, slot]
        effects = Effects(model, slot, end, owner=owner_of(slot))
        effects.received_us = at_us
        pipeline = self._context.pipelines[model]
        pipeline.close_windows(effects, Unit(model, at, end, at_us), Timings())
        if by_us := sum(step.by_us for step in self._context.journal.steps() if at < step.seq <= end):
            pipeline.shift_clock(effects, by_us)
        return effects

    # ---- what was skipped ------------------------------------------------------------------------------

    def step(self, *, resting: Container[str] = ()) -> bool:
        """Judge one unit of the earliest skipped range; returns whether there was one.

        While payloads are fetched, the next range proceeds.
        """
        now = self._context.objectives.timer()
        rests = {model for model, rest in self._rests.items() if now < rest.until}
        models = (m for m in self._context.pipelines if m not in resting and m not in rests)
        waiting = [gap for model in models if (gap := self._next(model)) is not None]
        return any(self._advance(gap) for gap in sorted(waiting, key=lambda gap: gap.created_us))

    def waiting_records(self, model: str) -> int:
        return sum(gap.records - gap.passed for gap in self._gaps[model] if gap.done_us is None)

    def _advance(self, gap: SkippedBlocks) -> bool:
        model = gap.model
        if not self._context.versions[model].is_ready:
            return False  # or what was skipped would be handed over to nobody
        pipeline, champion = self._context.pipelines[model], self._context.versions[model].champion
        if gap.version != champion:
            with write(self._context.engine) as connection:
                backfill.hand_over(connection, gap, champion, now_us=self._context.objectives.now_us())
            self._read(model)
            return True
        pending = self._unit(gap)
        unit, timings = pending.unit, pending.timings
        if not self._is_answered(pending, is_owed=gap.reason == OWED):
            self._waiting[model] = pending
            return False
        if (owed := self._owed(pending)) is not None:
            self._context.versions[model].answered(owed.version, owed)
            self._rest(model, owed)
            return False
        self._rests.pop(model, None)
        state = pipeline.slots.setdefault(SLOT, SlotState())
        state.skipped_us = gap.created_us
        state.suspended |= pipeline.suspended
        rest = read_unit(self._context.journal, model, unit.last_seq, max_rows=1, until=gap.until_seq)
        rows = 0 if unit.batch is None else unit.batch.rows
        effects = self._judge(pending)
        effects.received, effects.received_us = unit.received, unit.received_us
        effects.counts["backfilled"] += effects.counts["records"]
        passed = gap.passed + self._context.journal.count_records(gap.at_seq, unit.last_seq, model=model)
        done_us = None
        if rest is None:
            effects.seq, done_us = gap.until_seq, self._context.objectives.now_us()
            effects.counts["shed:expired"] += gap.records - passed  # left the journal before
            passed = gap.records
            if self._together(gap)[-1].id == gap.id:
                pipeline.close_windows(
                    effects, Unit(model, unit.last_seq, gap.until_seq, unit.received_us), timings
                )
        with self._commits.transaction(effects, timings, at_us=unit.received_us) as connection:
            backfill.advance(connection, gap, at_seq=effects.seq, passed=passed, done_us=done_us)
        self._read(model)
        self._context.objectives.worked(model, SLOT, pending.began, rows=rows)
        return True

    def _unit(self, gap: SkippedBlocks) -> ChampionUnit:
        pending = self._waiting.pop(gap.model, None)
        if pending is not None and pending.after == gap.at_seq:
            return pending
        if pending is not None and pending.request is not None:
            self._context.inference.cancel(pending.request)
        max_rows = min(
            self._context.pipelines[gap.model].unit_rows, self._context.objectives.max_rows(gap.model, SLOT)
        )
        unit = read_unit(self._context.journal, gap.model, gap.at_seq, max_rows=max_rows, until=gap.until_seq)
        unit = unit or Unit(gap.model, gap.until_seq, gap.until_seq, gap.created_us)
        return ChampionUnit(gap.at_seq, unit, self._context.objectives.timer())

    def _is_answered(self, pending: ChampionUnit, *, is_owed: bool) -> bool:
        unit, versions = pending.unit, self._context.versions[pending.unit.model]
        if unit.batch is None or self.is_expired(unit):
            return True
        if is_owed and versions.champion in versions.failures:
            return False
        if pending.prepared is None:
            pipeline = self._context.pipelines[unit.model]
            if not pipeline.payloads.is_ready(unit.batch):
                return False
            pending.prepared = prepare(pipeline, unit, 1.0, seed=0)
            pending.timings.stage("read")
        if pending.version != versions.champion:  # or it was never asked
            if pending.request is not None:
                self._context.inference.cancel(pending.request)
            pending.version, pending.request, asked = versions.champion, None, pending.prepared.batch
            if pending.version is not None and asked.rows and versions.is_asked(pending.version):
                pending.request = self._context.inference.begin(
                    [pending.version], asked, priority=Priority.BACKFILL
                )
                self._context.inference.poll_events()
        return pending.is_answered

    def _owed(self, pending: ChampionUnit) -> AskAnswer | None:
        """Missing answer to a unit; None where it can be judged."""
        if pending.request is None or pending.version is None or pending.unit.batch is None:
            return None
        answer = pending.request.answers[pending.version]
        is_owed = answer.is_owed and not is_answered(pending.unit.batch)
        return answer if is_owed and not self.is_expired(pending.unit) else None

    def _rest(self, model: str, answer: AskAnswer) -> None:
        """Pause a model's backfill."""
        last, is_late = self._rests.get(model), answer.failure.startswith(LATE)
        pause_s = FIRST_REST_S if last is None else min(2 * last.pause_s, LONGEST_REST_S)
        pause_s = LONGEST_REST_S if is_late else pause_s
        until = self._context.objectives.timer() + pause_s
        self._rests[model] = _Rest(answer.version, until, pause_s, is_late)

    def is_expired(self, unit: Unit) -> bool:
        received_us = present_us(self._context.journal.steps(), unit.last_seq, unit.received_us)
        age_s = (self._context.objectives.now_us() - received_us) / 1e6
        return age_s > self._context.settings.models[unit.model].latency.backfill_s

    def _judge(self, pending: ChampionUnit) -> Effects:
        unit, shed, predictions = pending.unit, 0, NO_PREDICTIONS
        if unit.batch is not None and self.is_expired(unit):
            shed, unit.batch = unit.batch.rows, None  # its labels stand
        elif pending.request is not None and pending.version is not None:
            predictions = Predictions.of(pending.request, pending.version)
            self._context.versions[unit.model].answered(
                pending.version, pending.request.answers[pending.version]
            )
        pending.timings.stage("shadow")
        effects = at_once(
            evaluate_unit(
                self._context.engine, self._context.pipelines[unit.model], unit, pending.timings,
                target=self._context.settings.models[unit.model].target, prepared=pending.prepared,
                version=pending.version, predictions=predictions, slot=SLOT,
            )
        )  # fmt: skip
        effects.counts["shed:expired"] += shed
        return effects

    def _read(self, model: str) -> None:
        with self._context.engine.connect() as connection:
            self._gaps[model] = backfill.gaps(connection, model)

    def _next(self, model: str) -> SkippedBlocks | None:
        return next((gap for gap in self._gaps[model] if gap.done_us is None), None)

    def _together(self, gap: SkippedBlocks) -> list[SkippedBlocks]:
        """Ranges of one jump in order, one for each version that judged part of it."""
        return [one for one in self._gaps[gap.model] if one.created_us == gap.created_us]
