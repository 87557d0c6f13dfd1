"""Pipeline of one unit of records: answer, judge, ask, count.

Returns effects; commits nothing.
"""

import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings
from outrider.assertions.window_state import View
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.rotations import Rotation, rotation_before
from outrider.dataops.payloads.payloads import Payloads
from outrider.monitor.engine.asks import AskAnswer, Outputs, again_of
from outrider.monitor.host.client import NOTHING, Failure, HostVerdicts, Offered
from outrider.monitor.settings.config import HostSettings, ModelSettings
from outrider.monitor.stream.answer_costs import note_cost
from outrider.monitor.stream.event_time import are_ahead
from outrider.monitor.stream.units import UNIT_ROWS, Unit, context_s

from .admission import SamplingState, period_us
from .inference import NO_PREDICTIONS, Predictions
from .judged import JudgedPart, JudgedRecords
from .ledger_rows import RecordLocations
from .live_budget import SAVED_S, LiveBudget, TimeBudget
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
from .slot_state import SlotState, Views

CHAMPION = "champion"
ALL_BELIEVED = np.iinfo(np.int64).max
SUSPENSION_S = 3600.0
T = TypeVar("T")
Work = Generator[Sequence[Batch], Sequence[AskAnswer], T]
"""What judges a unit: it may ask the judged version about batches, and goes on with its answers to them."""


def at_once(work: Work[T]) -> T:
    """Result of work that asks nothing."""
    try:
        next(work)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("questions to a model, where nobody answers them")


@dataclass(slots=True)
class Timings:
    """Seconds of one unit per stage."""

    stages: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    """Seconds per assertion and live test."""
    _last: float = field(default_factory=time.perf_counter)

    def stage(self, name: str) -> None:
        """End the current stage under ``name``."""
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + now - self._last
        self._last = now


class Judges(Protocol):
    """Host of assertions and live tests.

    The assertion host, or this process in a replay.
    """

    offered: dict[str, list[Offered]]

    def judge(
        self,
        batch: Batch,
        *,
        assertions: Sequence[str],
        live: Mapping[str, NDArray[np.int64]] = NOTHING,
        seq: NDArray[np.int64] | None = None,
        views: Mapping[str, Sequence[View]] | None = None,
    ) -> HostVerdicts:
        """Verdicts and questions over one block."""

    def judge_answers(
        self, model: str, answered: Mapping[str, tuple[Batch, Batch]]
    ) -> tuple[dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]], list[Failure]]:
        """Verdicts on the answers to questions."""


class Pipeline:
    """Judges units of one model."""

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        limits: HostSettings,
        *,
        host: Judges,
        seed: int = 0,
        time_budget: TimeBudget | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self.name = name
        self._seed = seed
        self.time = time_budget or TimeBudget()
        self.live_budget: LiveBudget | None = None
        self.payloads = payloads or Payloads.none()
        self._settings = settings
        self._limits = limits
        self._host = host
        self.slots: dict[str, SlotState] = {CHAMPION: SlotState()}
        self.standing = SamplingState()
        """Where the sampling of the champion's stream stands."""
        self.rotations: list[Rotation] = []
        """Where other entities were sampled than before, in order."""

    @property
    def unit_rows(self) -> int:
        """Rows that blocks are joined to.

        Fewer where their payloads would not fit together.
        """
        return min(UNIT_ROWS, self.payloads.rows_at_once)

    @property
    def period_us(self) -> int:
        """Time for which one sample of entities stands."""
        return period_us(context_s(judge.window) for judge in self.offered if judge.window is not None)

    @property
    def offered(self) -> list[Offered]:
        """Assertions and live tests of this model."""
        return self._host.offered.get(self.name, [])

    @property
    def suspended(self) -> dict[str, int]:
        """End of each suspension of the champion's assertions, by name.

        In µs of receive time.
        """
        return self.slots[CHAMPION].suspended

    def judge(
        self,
        slot: str,
        unit: Unit,
        batch: Batch,
        kept: NDArray[np.intp],
        *,
        version: str | None,
        timings: Timings,
        said: Predictions = NO_PREDICTIONS,
        digests: NDArray[np.uint64] | None = None,
        ask_live: bool = True,
        stored: Mapping[str, Batch] | None = None,
    ) -> Work[Effects]:
        """Effects of a unit's records for one slot.

        ``batch`` holds the rows ``kept`` of the unit.

        Parameters
        ----------
        version
            Whose answers are judged; None where the model has no replica.
        said
            What it answers to each row of ``batch``.
        digests
            Content digests of ``batch``; given for the champion, whose slot registers the records.
        ask_live
            False sheds live tests (backlog); their sampled questions are counted as shed.
        stored
            Answers of other slots to the same records, by slot.
        """
        owner = owner_of(slot)
        effects = Effects(self.name, slot, unit.last_seq, owner=owner)
        place = RecordLocations.of(unit, batch, kept)
        if said.poison:
            rows = np.array([p.row for p in said.poison], dtype=np.intp)
            effects.counts["poison"] += len(said.poison)
            for record in said.poison:
                effects.dead_letters.append(place.dead_letter(record.row, "poison", record.detail))
            well = np.setdiff1d(np.arange(batch.rows), rows)
            batch, kept, said = batch.take(well), kept[well], said.take(well)
            digests = None if digests is None else digests[well]
            place = RecordLocations.of(unit, batch, kept)
        outputs = said.outputs
        judged = self.judged(slot, batch, outputs, stored or {})
        if owner != CHAMPION and judged is None:
            effects.counts["unanswered"] += batch.rows
            return effects
        assert judged is not None
        if outputs is not None and version is not None:
            effects.answers += place.answers(self.name, version, batch.with_outputs(outputs))
            note_cost(effects.counts, said.seconds, batch.rows)
        if said.again is not None:
            rows = said.again_rows
            again = batch.take(rows).with_outputs(said.again)
            twice = RecordLocations.of(unit, again, kept[rows])
            effects.answers += twice.answers(self.name, again_of(str(version)), again)
        place.versions = self.versions(slot, judged.batch, version)
        asking = self.asking(effects, unit, may_ask=ask_live) if slot == CHAMPION else None
        yield from self._assess(effects, judged, place, version, outputs, asking=asking, timings=timings)
        if digests is not None:
            effects.counts["ahead"] += int(_ahead(judged.batch, place.unit, place.seq).sum())
            predicted = judged.texts(f"outputs.{self._settings.target}")
            effects.records += place.records(judged.batch, digests, predicted, self._settings.slice_by)
        state = self.slots.setdefault(slot, SlotState())
        for part in judged.parts:
            effects.sketches += state.sketches.update(part.batch, unit.received_us)
        effects.counts["records"] += judged.rows
        timings.stage("sketch")
        return effects

    def asking(self, effects: Effects, unit: Unit, *, may_ask: bool) -> Asking | None:
        """Advance the budgets of live tests by a unit's blocks.

        None where nobody set them up.
        """
        if self.live_budget is None:
            return None
        asking = Asking(probabilities(self.live_budget, unit), may_ask)
        if self.live_budget.is_limited:
            effects.live_budget = self.live_budget.to_dict()
        return asking

    def versions(self, slot: str, judged: Batch, version: str | None) -> list[str | None]:
        """Judged version of every record."""
        return _versions(judged, version, recorded=owner_of(slot) == CHAMPION)

    def stamped(
        self, slot: str, judged: JudgedRecords, version: str | None, unit: Unit, seq: NDArray[np.int64]
    ) -> Batch:
        """Records of a unit with block numbers, for windows."""
        return _for_windows(judged.batch, self.versions(slot, judged.batch, version), unit, seq)

    def tick(self, slot: str, unit: Unit, timings: Timings) -> Effects | None:
        """Effects of a unit without records, or None.

        Time has passed; None when that changes nothing.
        """
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot))
        if unit.step_us:
            return self._cross(effects, unit, timings)
        has_left = self._rotate(effects, unit, timings)
        return effects if self._pass_time(effects, slot, unit, timings) or has_left else None

    def judge_with(
        self,
        slot: str,
        unit: Unit,
        judged: JudgedRecords,
        kept: NDArray[np.intp],
        *,
        version: str | None,
        timings: Timings,
    ) -> Effects:
        """Effects of a judge slot's assertions on records.

        With the answers of judges beside them.
        """
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot))
        place = RecordLocations.of(unit, judged.batch, kept, self.versions(CHAMPION, judged.batch, version))
        self.assess(effects, judged, place, version, timings=timings)
        return effects

    def due_at(self, slot: str) -> list[Offered]:
        """Assertions that run at a slot.

        Behind the last of their judges, in the judges' order.
        """
        order = [f"{PREFIX}{name}" for name in self._settings.judges]
        here = []
        for judge in self.offered:
            at = max(
                _judges_of(judge),
                key=lambda name: order.index(name) if name in order else len(order),
                default=None,
            )
            if judge.kind == "assertion" and (at == slot or (at is None and not slot.startswith(PREFIX))):
                here.append(judge)
        return here

    def judged(
        self, slot: str, batch: Batch, outputs: Outputs | None, stored: Mapping[str, Batch]
    ) -> JudgedRecords | None:
        """The records with the answers under judgement; None where there are none."""
        if owner_of(slot) == CHAMPION:
            return JudgedRecords.of(batch, outputs)
        return (
            None if outputs is None else JudgedRecords.alone(batch.with_outputs(outputs).with_answers(stored))
        )

    def assess(
        self,
        effects: Effects,
        judged: JudgedRecords,
        place: "RecordLocations",
        version: str | None,
        *,
        timings: Timings,
    ) -> None:
        """Judge the answered records of one unit.

        And those that its passing of time releases.
        """
        at_once(self._assess(effects, judged, place, version, None, timings=timings))

    def _assess(
        self,
        effects: Effects,
        judged: JudgedRecords,
        place: "RecordLocations",
        version: str | None,
        outputs: Outputs | None,
        *,
        timings: Timings,
        asking: Asking | None = None,
    ) -> Work[None]:
        """The same, with live tests where somebody asks for them."""
        slot = effects.slot
        now_us = place.unit.received_us
        state = self.slots.setdefault(slot, SlotState())
        self._rotate(effects, place.unit, timings)
        judges = [o for o in self.due_at(slot) if set(_judges_of(o)) <= set(judged.batch.answer_slots)]
        # Suspended ones too: their windows go on.
        kept = _for_windows(judged.batch, place.versions, place.unit, place.seq)
        views = state.views(judges, kept, place.tags)
        effects.counts["late"] += state.new_late()
        plain = [o.name for o in judges if o.window is None]
        asked = place.judging([version] * judged.rows)
        sample = QuestionSample()
        if asking is not None and outputs is not None:
            sample = self._sample(effects, asking, asked)
        judgement, failures = self._ask_host(slot, judged, place, views, plain, sample.asked)
        timings.stage("assertions")
        timings.tasks = judgement.seconds
        by_name = {o.name: o for o in self.offered}
        for name, found in judgement.found.items():
            seen = views.get(name)
            located = place.of_views(seen) if isinstance(seen, list) else place
            self._note(effects, located, by_name[name], found)
        if sample.size and outputs is not None and version is not None:
            answered_by = judged.batch.with_outputs(outputs)
            failures += yield from self._live(effects, judgement, answered_by, asked, sample)
            timings.stage("live_tests")
        self.strike(effects, failures, now_us)
        self._pass_time(effects, slot, place.unit, timings)

    def _pass_time(self, effects: Effects, slot: str, unit: Unit, timings: Timings) -> bool:
        """Judge what windows give up by the end of the unit without a new record; whether there was any."""
        state = self.slots.setdefault(slot, SlotState())
        judges = [o for o in self.due_at(slot) if o.window is not None]
        return self._held(effects, unit, state.views_at(judges, unit.received_us), timings)

    def leave(self, effects: Effects, unit: Unit, timings: Timings) -> Effects:
        """Judge the held records of a slot and restart its windows.

        ``unit`` is skipped.

        Adds to ``effects`` and returns them.
        """
        state = self.slots.setdefault(effects.slot, SlotState())
        state.restarted_us = unit.received_us
        judges = [o for o in self.due_at(effects.slot) if o.window in state.windows]
        self._held(effects, unit, state.closing_views(judges), timings)
        effects.counts["late"] += state.new_late()
        state.restart(unit.received_us)
        return effects

    def _cross(self, effects: Effects, unit: Unit, timings: Timings) -> Effects:
        """Begin anew at a step of the clock: no time before it can be compared with one behind it."""
        self.leave(effects, unit, timings)
        effects.received_us = unit.received_us
        self.stepped(effects, unit.step_us)
        return effects

    def stepped(self, effects: Effects, by_us: int) -> None:
        """Shift a slot over a step of the clock."""
        effects.step_us = by_us
        self.slots[effects.slot].step(by_us)
        if effects.slot == CHAMPION and self.live_budget is not None:
            self.live_budget.step(by_us)
            if self.live_budget.is_limited:
                effects.live_budget = self.live_budget.to_dict()

    def _rotate(self, effects: Effects, unit: Unit, timings: Timings) -> bool:
        """Let the windows of a slot begin anew where other entities were sampled from this unit on."""
        state = self.slots.setdefault(effects.slot, SlotState())
        last = rotation_before(self.rotations, unit.first_seq)
        if last is None or effects.slot == BACKFILL or last.seq <= state.rotated_seq:
            return False
        state.rotated_seq = last.seq
        if not state.windows:
            return False
        self.leave(effects, Unit(self.name, last.seq, last.seq, last.at_us), timings)
        return True

    def _held(
        self, effects: Effects, unit: Unit, views: Mapping[str, Views | Failure], timings: Timings
    ) -> bool:
        """Judge views that no new record gave; whether there were any."""
        if not views:
            return False
        slot, judges = effects.slot, self.due_at(effects.slot)
        nothing = Batch.from_columns({}, model=self.name, rows=0)
        place = RecordLocations.of(unit, nothing, np.zeros(0, dtype=np.intp))
        judgement, failures = self._ask_host(slot, JudgedRecords.alone(nothing), place, views, [], NOTHING)
        by_name = {o.name: o for o in judges}
        for name, found in judgement.found.items():
            seen = views[name]
            assert isinstance(seen, list)
            self._note(effects, place.of_views(seen), by_name[name], found)
        self.strike(effects, failures, unit.received_us)
        timings.stage("assertions")
        return True

    def _note(self, effects: Effects, place: RecordLocations, judge: Offered, found: Findings) -> None:
        """Add what an assertion found; its evidence says what the slot has to remark."""
        said = self.slots[effects.slot].remark(judge.window, place.unit.received_us)
        if said and len(found.row):
            evidence = [(given or {}) | said for given in found.evidence or [None] * len(found.row)]
            found = replace(found, evidence=evidence)
        place.note(effects, judge, found)

    def _ask_host(
        self,
        slot: str,
        judged: JudgedRecords,
        place: "RecordLocations",
        views: Mapping[str, Views | Failure],
        plain: Sequence[str],
        live: Mapping[str, NDArray[np.int64]],
    ) -> tuple[HostVerdicts, list[Failure]]:
        """Verdicts of those assertions that are not suspended, and who gave none."""
        suspended, now_us = self.slots[slot].suspended, place.unit.received_us
        due = {name: given for name, given in views.items() if suspended.get(name, 0) <= now_us}
        failures = [given for given in due.values() if isinstance(given, Failure)]
        seen = {name: given for name, given in due.items() if isinstance(given, list)}
        active = [name for name in plain if judged.rows and suspended.get(name, 0) <= now_us]
        if not (active or seen or live):
            return HostVerdicts(), failures
        # In the order of the file, windowed or not: a replay finds the same one running.
        whole = {*seen, *active} if judged.is_whole else set(seen)
        names = [o.name for o in self.offered if o.name in whole]
        judgement = HostVerdicts()
        if names or live:
            judgement = self._host.judge(judged.batch, assertions=names, live=live, seq=place.seq, views=seen)
        if active and not judged.is_whole:
            self._judge_parts(judged, active, judgement)
        return judgement, failures + judgement.failures

    def _judge_parts(self, judged: JudgedRecords, names: Sequence[str], judgement: HostVerdicts) -> None:
        """Add the verdicts of assertions of single records, which see one side's answers at a time."""
        found: dict[str, list[tuple[JudgedPart, Findings]]] = {}
        failed: dict[str, Failure] = {}
        for part in judged.parts:
            told = self._host.judge(part.batch, assertions=names)
            for name, seconds in told.seconds.items():
                judgement.seconds[name] = judgement.seconds.get(name, 0.0) + seconds
            for name, findings in told.found.items():
                found.setdefault(name, []).append((part, findings))
            failed |= {failure.name: failure for failure in told.failures}
        judgement.found |= {name: judged.found(parts) for name, parts in found.items()}
        judgement.failures += failed.values()  # one strike for a unit, as ever

    def live_tests(self, slot: str, now_us: int) -> list[str]:
        """Live tests that are not suspended in a slot."""
        suspended = self.slots[slot].suspended
        return [o.name for o in self.offered if o.kind == "live_test" and suspended.get(o.name, 0) <= now_us]

    def _sample(self, effects: Effects, asking: Asking, place: RecordLocations) -> QuestionSample:
        """Records that live tests ask about; none when they must wait for everything else."""
        names = self.live_tests(effects.slot, place.unit.received_us)
        sample = draw(names, asking, place, seed=self._seed)
        if sample.size and not (asking.may_ask and self.time.allows()):
            note_unasked(effects, place, sample, "shed")
            return QuestionSample()
        return sample

    def _live(
        self,
        effects: Effects,
        judgement: HostVerdicts,
        judged: Batch,
        place: "RecordLocations",
        sample: QuestionSample,
    ) -> Work[list[Failure]]:
        """Let the replica answer all copies at once, and the host judge its answers; who failed at that."""
        began = time.perf_counter()
        answers: dict[str, CaseAnswers] = {}
        asked = together(judgement.questions)
        waits = time.perf_counter()
        said = (yield [copies.batch for copies in asked]) if asked else []
        waited = time.perf_counter() - waits
        for copies, one in zip(asked, said, strict=True):
            if one.outputs is not None:
                without = [record.row for record in one.poison]
                answers |= answered(judged, judgement.questions, copies, one.outputs, without)
        compared = {name: (one.before, one.after) for name, one in answers.items()}
        verdicts, failures = self._host.judge_answers(self.name, compared) if compared else ({}, [])
        offered = {o.name: o for o in self.offered}
        weight = judged.column("weight")
        note(effects, place, sample, judgement.questions, answers, verdicts, offered, weight)
        perturbing = sum(judgement.seconds.get(name, 0.0) for name in sample.rows)
        # A wait for an engine that was started again is not their doing.
        spent = time.perf_counter() - began - waited + min(waited, SAVED_S)
        self.time.spend(perturbing + spent)
        return failures

    def strike(self, effects: Effects, failures: list[Failure], now_us: int) -> None:
        """Count failures of assertions.

        Suspend those with too many in the window, for this slot.
        """
        state = self.slots[effects.slot]
        for failure in failures:
            effects.strikes.append(
                (self.name, failure.name, now_us, effects.seq, failure.reason, failure.detail, effects.slot)
            )
            effects.counts[f"strikes:{failure.reason}"] += 1
            recent = state.strikes.setdefault(failure.name, deque())
            recent.append(now_us)
            while recent[0] < now_us - self._limits.strike_window_s * 1e6:
                recent.popleft()
            if len(recent) >= self._limits.strikes:
                state.suspended[failure.name] = int(now_us + SUSPENSION_S * 1e6)
                if effects.slot == CHAMPION:
                    effects.suspended[failure.name] = state.suspended[failure.name]
                recent.clear()

    def restore_strikes(self, strikes: list[tuple[str, int]], suspended: dict[str, int]) -> None:
        """Restore the champion's strikes, (assertion, time) in order."""
        state = self.slots[CHAMPION]
        for name, at_us in strikes:
            state.strikes.setdefault(name, deque()).append(at_us)
        state.suspended = dict(suspended)


def owner_of(slot: str) -> str:
    """Slot whose answers are judged at a slot.

    Judges and the backfill speak of the champion's.
    """
    return CHAMPION if slot == BACKFILL or slot.startswith(PREFIX) else slot


def _judges_of(judge: Offered) -> list[str]:
    """Slots of the judges whose answers an assertion needs."""
    return [name for name in judge.needs if name.startswith(PREFIX)]


def _versions(judged: Batch, version: str | None, *, recorded: bool) -> list[str | None]:
    """Judged version per record: the replica's where it answered, else what production said it ran."""
    if not recorded:
        return [version] * judged.rows
    said: list[str | None] = judged.column("version").tolist()
    if judged.has("by_replica"):
        by_replica = judged.by_replica.tolist()
        said = [None if answered else value for answered, value in zip(by_replica, said, strict=True)]
    return [version if value is None else value for value in said]


def _for_windows(judged: Batch, versions: Sequence[str | None], unit: Unit, seq: NDArray[np.int64]) -> Batch:
    """The records with their judged version: what is held back may be judged under the next champion.

    A challenger judges records that say which version production ran: that is not the one that is judged.
    Event times too far ahead of receipt become receipt: they would make everything late behind them.
    """
    changed: dict[str, pa.Array] = {}
    told = pa.array(versions, pa.string())
    if any(versions) and not judged.arrow("version").cast(pa.string()).equals(told):
        changed["version"] = told
    ahead = _ahead(judged, unit, seq)
    if ahead.any():
        changed["ts"] = pc.if_else(pa.array(ahead), judged.arrow("received"), judged.arrow("ts"))
    return judged.with_columns(changed) if changed else judged


def _ahead(judged: Batch, unit: Unit, seq: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Records of blocks ``seq`` whose event time is too far ahead of receipt, shape (rows,)."""
    if not unit.max_ahead_us or not judged.rows:
        return np.zeros(judged.rows, dtype=np.bool_)
    bounds = np.full(judged.rows, ALL_BELIEVED, dtype=np.int64)
    for block, bound_us in unit.max_ahead_us.items():
        bounds[seq == block] = bound_us
    return are_ahead(judged.to_arrow(), bounds)
