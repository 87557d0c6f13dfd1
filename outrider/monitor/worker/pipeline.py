"""Pipeline of one unit of records: answer, judge, ask, count. Returns effects; commits nothing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings
from outrider.assertions.profiling.features import TRUNCATED
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.class_words import declared_words
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.first_seen import SeenNames
from outrider.dataops.ledger.profiles import LayoutBook
from outrider.dataops.ledger.rotations import Rotation, rotation_before
from outrider.dataops.ledger.stated_values import ANSWER, LABEL, SLICE, VERSION, StatedValues
from outrider.dataops.payloads.payloads import Payloads
from outrider.monitor.engine.asks import Outputs, again_of
from outrider.monitor.host.client import NOTHING, Failure, HostVerdicts, Offered
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import HostSettings
from outrider.monitor.stream.answer_costs import note_cost
from outrider.monitor.stream.units import UNIT_ROWS, Unit, context_s

from .admission import SamplingState, period_us
from .inference import NO_PREDICTIONS, Predictions
from .judged import JudgedRecords
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
from .stages.host_checks import AssertionHost, check_records
from .stages.measures import minutes_of_records, note_measures
from .stages.stated import CountedValues
from .stages.window_records import ahead_in_windows, ahead_of_receipt, judged_versions, window_records
from .stages.work import Timings, Work, at_once

CHAMPION = "champion"


class Pipeline:
    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        limits: HostSettings,
        *,
        host: AssertionHost,
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
        self.layouts = LayoutBook(classes=known_classes(settings))
        self.stated = StatedValues(name)
        self.remember(self.stated)
        self.seen = SeenNames()
        self.rotations: list[Rotation] = []
        """Changes of the sampled entities, in order."""

    def remember(self, stated: StatedValues) -> None:
        stated.book(VERSION).declare(self.stated.book(VERSION).declared)
        stated.book(SLICE).declare(self._settings.slices)
        for dimension in (ANSWER, LABEL):
            stated.book(dimension).declare(declared_words(self._settings.classes))
        self.stated = stated

    @property
    def unit_rows(self) -> int:
        """Rows that blocks are joined to, fewer where payloads would not fit together."""
        return min(UNIT_ROWS, self.payloads.rows_at_once)

    @property
    def period_us(self) -> int:
        return period_us(context_s(offered.window) for offered in self.offered if offered.window is not None)

    @property
    def offered(self) -> list[Offered]:
        return self._host.offered.get(self.name, [])

    @property
    def suspended(self) -> dict[str, int]:
        """End of each suspension of the champion's assertions in µs of receive time, by name."""
        return self.slots[CHAMPION].suspended

    # ---- a unit with records ---------------------------------------------------------------------------

    def evaluate(
        self,
        slot: str,
        batch: Batch,
        locations: RecordLocations,
        *,
        version: str | None,
        timings: Timings,
        predictions: Predictions = NO_PREDICTIONS,
        digests: NDArray[np.uint64] | None = None,
        may_test: bool = True,
        stored: Mapping[str, Batch] | None = None,
        names: Mapping[tuple[int, int], tuple[str | None, bool]] | None = None,
    ) -> Work[Effects]:
        """Effects of the records of a unit at one slot.

        ``digests`` are given for the champion, whose slot registers the records; ``stored`` are
        answers of other slots; ``may_test=False`` counts sampled questions as shed.
        """
        unit = locations.unit
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot), version=version)
        if predictions.poison:
            effects.counts["poison"] += len(predictions.poison)
            details = {record.row: record.detail for record in predictions.poison}
            locations.note_dead_letters(effects, "poison", details)
            well = np.setdiff1d(np.arange(batch.rows), list(details))
            batch, locations, predictions = batch.take(well), locations.take(well), predictions.take(well)
            digests = None if digests is None else digests[well]
        outputs = predictions.outputs
        judged = self.judged(slot, batch, outputs, stored or {})
        if judged is None:
            effects.counts["unanswered"] += batch.rows
            return effects
        versions: Sequence[str | None] = self.versions(slot, judged.batch, version)
        locations = locations.judged_as(versions)
        if digests is None:
            locations = locations.registered_as(names or {}, slot=owner_of(slot))
        if outputs is not None and version is not None:
            effects.answers += locations.answers(version, batch.with_outputs(outputs))
            note_cost(effects.counts, version, predictions.seconds, batch.rows)
        if predictions.again is not None:
            again = batch.take(predictions.again_rows).with_outputs(predictions.again)
            twice = locations.take(predictions.again_rows)
            effects.answers += twice.answers(again_of(str(version)), again)
        asking = self.asking(effects, unit, may_ask=may_test) if slot == CHAMPION else None
        yield from self._check(effects, judged, locations, version, outputs, asking=asking, timings=timings)
        if digests is not None:
            effects.counts["redacted"] += judged.left_out
            effects.counts["ahead"] += int(ahead_of_receipt(judged.batch, unit, locations.seq).sum())
            minutes = minutes_of_records(locations.seq, unit.received)
            counted = CountedValues.of(self.stated, judged, versions, minutes, self._settings)
            locations = locations.counted_as(counted.versions, counted.slices)
            locations.note_records(effects, judged, digests, counted, self._settings)
            effects.first_seen += self.seen.versions(self.name, counted.versions, minutes)
            effects.first_seen += self.seen.stated(judged.batch, received_us=unit.received_us)
        locations.note_judged(effects, judged.answered)
        if owner_of(slot) == slot or slot == BACKFILL:  # a judge's slot answers for no model
            note_measures(
                effects,
                judged.batch,
                versions=locations.counted,
                seq=locations.seq,
                received=unit.received,
                slices=locations.slices,
                target=self._settings.target,
            )
        self.gather(slot, judged, locations, cut=predictions.cut)
        self._write_profiles(effects, unit)
        effects.counts["records"] += judged.rows
        timings.stage("profile")
        return effects

    def gather(
        self,
        slot: str,
        judged: JudgedRecords,
        locations: RecordLocations,
        *,
        cut: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> None:
        gathered = self._state(slot).profiles
        for part in judged.parts:
            own = locations if part.rows is None else locations.take(part.rows)
            batch = _with_versions(part.batch, own.counted)
            if cut:
                rows = slice(None) if part.rows is None else part.rows
                batch = batch.with_columns({f"inputs.{name}{TRUNCATED}": cut[name][rows] for name in cut})
            gathered.add(batch, own.seq, own.unit.received, own.slices if self._settings.slice_by else None)

    def _write_profiles(self, effects: Effects, unit: Unit, *, is_last: bool = False) -> bool:
        """Add the profiles of finished minutes; True where there were any."""
        found = self._state(effects.slot).profiles.drain(
            effects.slot,
            self.layouts,
            now_us=unit.received_us,
            is_last=is_last or effects.slot == BACKFILL,  # where no ticks come
        )
        effects.profiles += found
        effects.layouts += self.layouts.new_rows()
        return bool(found)

    def check(
        self,
        effects: Effects,
        judged: JudgedRecords,
        locations: RecordLocations,
        version: str | None,
        *,
        timings: Timings,
    ) -> None:
        """Add verdicts of assertions on answered records, with what time releases."""
        at_once(self._check(effects, judged, locations, version, None, timings=timings))

    def judged(
        self, slot: str, batch: Batch, outputs: Outputs | None, stored: Mapping[str, Batch]
    ) -> JudgedRecords | None:
        if owner_of(slot) == CHAMPION:
            return JudgedRecords.of(batch, outputs)
        return (
            None if outputs is None else JudgedRecords.alone(batch.with_outputs(outputs).with_answers(stored))
        )

    def versions(self, slot: str, judged: Batch, version: str | None) -> list[str | None]:
        return judged_versions(judged, version, recorded=owner_of(slot) == CHAMPION)

    def due_at(self, slot: str) -> list[Offered]:
        """Assertions that run at a slot, after the last of their judges."""
        order = [f"{PREFIX}{name}" for name in self._settings.judges]
        here = []
        for offered in self.offered:
            at = max(
                _judges_of(offered),
                key=lambda name: order.index(name) if name in order else len(order),
                default=None,
            )
            if offered.kind == "assertion" and (at == slot or (at is None and not slot.startswith(PREFIX))):
                here.append(offered)
        return here

    def _check(
        self,
        effects: Effects,
        judged: JudgedRecords,
        locations: RecordLocations,
        version: str | None,
        outputs: Outputs | None,
        *,
        timings: Timings,
        asking: Asking | None = None,
    ) -> Work[None]:
        """Stages of a unit: views of windows, questions, verdicts, flags, answers to the questions."""
        slot, unit = effects.slot, locations.unit
        state = self._state(slot)
        self._rotate(effects, unit, timings)
        due = [o for o in self.due_at(slot) if set(_judges_of(o)) <= set(judged.batch.answer_slots)]
        # Suspended ones too: their windows go on.
        kept = window_records(judged.batch, locations.versions, unit, locations.seq)
        views = state.views(due, kept, locations.tags, ahead_in_windows(kept, unit, locations.seq))
        effects.counts["late"] += state.new_late()
        sample, asked = QuestionSample(), locations
        if asking is not None and outputs is not None:
            asked = locations.judged_as([version] * judged.rows)
            sample = self._sample(effects, asking, asked)
        verdicts = self._ask_host(slot, judged, locations, due, views, sample.asked)
        timings.stage("assertions")
        timings.tasks = verdicts.seconds
        effects.reads |= verdicts.reads
        failures = verdicts.failures
        self._flag(effects, verdicts, views, locations)
        if sample.size and outputs is not None and version is not None:
            answered_by = judged.batch.with_outputs(outputs)
            failures = failures + (yield from self._live(effects, verdicts, answered_by, asked, sample))
            timings.stage("live_tests")
        self.strike(effects, failures, unit.received_us)
        self._release(effects, unit, timings)

    def _ask_host(
        self,
        slot: str,
        judged: JudgedRecords,
        locations: RecordLocations,
        due: Sequence[Offered],
        views: Mapping[str, Views | Failure],
        live: Mapping[str, NDArray[np.int64]],
    ) -> HostVerdicts:
        running = [o for o in due if not self.slots[slot].is_suspended(o.name, locations.unit.received_us)]
        names = [o.name for o in running if o.window is None or o.name in views]
        of_running = {name: views[name] for name in names if name in views}
        return check_records(self._host, judged, locations.seq, names=names, views=of_running, live=live)

    def _flag(
        self,
        effects: Effects,
        verdicts: HostVerdicts,
        views: Mapping[str, Views | Failure],
        locations: RecordLocations,
    ) -> None:
        by_name = {o.name: o for o in self.offered}
        effects.ran |= verdicts.found.keys() - {failure.name for failure in verdicts.failures}
        for name, found in verdicts.found.items():
            seen, offered = views.get(name), by_name[name]
            located = locations.of_views(seen) if isinstance(seen, list) else locations
            remark = self.slots[effects.slot].remark(offered.window, locations.unit.received_us)
            located.note(effects, offered, _with_evidence(found, remark) if remark else found)

    # ---- live tests ------------------------------------------------------------------------------------

    def asking(self, effects: Effects, unit: Unit, *, may_ask: bool) -> Asking | None:
        """Advance the budgets of live tests by a unit's blocks; None without live tests."""
        if self.live_budget is None:
            return None
        asking = Asking(probabilities(self.live_budget, unit), may_ask)
        if self.live_budget.is_limited:
            effects.live_budget = self.live_budget.to_dict()
        return asking

    def live_tests(self, slot: str, now_us: int) -> list[str]:
        state = self.slots[slot]
        return [
            o.name for o in self.offered if o.kind == "live_test" and not state.is_suspended(o.name, now_us)
        ]

    def _sample(self, effects: Effects, asking: Asking, locations: RecordLocations) -> QuestionSample:
        names = self.live_tests(effects.slot, locations.unit.received_us)
        sample = draw(names, asking, locations, seed=self._seed)
        if sample.size and not (asking.may_ask and self.time.allows()):
            note_unasked(effects, locations, sample, "shed")
            return QuestionSample()
        return sample

    def _live(
        self,
        effects: Effects,
        found: HostVerdicts,
        judged: Batch,
        locations: RecordLocations,
        sample: QuestionSample,
    ) -> Work[list[Failure]]:
        """Ask the replica about all copies at once, and the host about the answers; returns failures."""
        began = time.perf_counter()
        answers: dict[str, CaseAnswers] = {}
        asked = together(found.questions)
        waits = time.perf_counter()
        replies = (yield [copies.batch for copies in asked]) if asked else []
        waited = time.perf_counter() - waits
        for copies, one in zip(asked, replies, strict=True):
            if one.outputs is not None:
                poison = [record.row for record in one.poison]
                answers |= answered(judged, found.questions, copies, one.outputs, poison)
        compared = {name: (one.before, one.after) for name, one in answers.items()}
        verdicts, failures = self._host.check_answers(self.name, compared) if compared else ({}, [])
        offered = {o.name: o for o in self.offered}
        weight = judged.column("weight")
        note(effects, locations, sample, found.questions, answers, verdicts, offered, weight)
        perturbing = sum(found.seconds.get(name, 0.0) for name in sample.rows)
        # A wait for an engine that was started again is not their doing.
        spent = time.perf_counter() - began - waited + min(waited, SAVED_S)
        self.time.spend(perturbing + spent)
        return failures

    def strike(self, effects: Effects, failures: Sequence[Failure], now_us: int) -> None:
        """Count failures of assertions, and suspend for this slot those with too many in the window."""
        slot = effects.slot
        for failure in failures:
            strike = {"model": self.name, "slot": slot, "assertion": failure.name, "at_us": now_us}
            strike |= {"seq": effects.seq, "reason": failure.reason, "detail": failure.detail}
            effects.strikes.add(1, strike)
            effects.counts[f"strikes:{failure.reason}"] += 1
            until_us = self.slots[slot].strike(failure.name, now_us, self._limits)
            if until_us is not None and slot == CHAMPION:
                effects.suspended[failure.name] = until_us

    # ---- time that passes ------------------------------------------------------------------------------

    def pass_time(self, slot: str, unit: Unit, timings: Timings) -> Effects | None:
        """Effects of a unit without records at one slot; None where time changes nothing."""
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot))
        if unit.step_us:
            # No time before a step of the clock can be compared with one behind it.
            self.close_windows(effects, unit, timings)
            effects.received_us = unit.received_us
            self.shift_clock(effects, unit.step_us)
            return effects
        changes = self._rotate(effects, unit, timings)
        changes |= self._release(effects, unit, timings)
        changes |= self._write_profiles(effects, unit)
        return effects if changes else None

    def shift_clock(self, effects: Effects, by_us: int) -> None:
        effects.step_us = by_us
        self.slots[effects.slot].step(by_us)
        if effects.slot == CHAMPION:
            self.stated.shift(by_us)
        if effects.slot == CHAMPION and self.live_budget is not None:
            self.live_budget.step(by_us)
            if self.live_budget.is_limited:
                effects.live_budget = self.live_budget.to_dict()

    def close_windows(self, effects: Effects, unit: Unit, timings: Timings) -> Effects:
        """Judge what the windows still hold at a slot, and restart them after the skipped
        ``unit``; adds to ``effects``."""
        state = self._state(effects.slot)
        state.restarted_us = unit.received_us
        due = [o for o in self.due_at(effects.slot) if o.window in state.windows]
        self._check_views(effects, unit, due, state.closing_views(due), timings)
        effects.counts["late"] += state.new_late()
        state.restart(unit.received_us)
        self._write_profiles(effects, unit, is_last=True)
        return effects

    def _rotate(self, effects: Effects, unit: Unit, timings: Timings) -> bool:
        """Restart the windows of a slot where other entities are sampled from this unit on."""
        state = self._state(effects.slot)
        last = rotation_before(self.rotations, unit.first_seq)
        if last is None or effects.slot == BACKFILL or last.seq <= state.rotated_seq:
            return False
        state.rotated_seq = last.seq
        if not state.windows:
            return False
        self.close_windows(effects, Unit(self.name, last.seq, last.seq, last.at_us), timings)
        return True

    def _release(self, effects: Effects, unit: Unit, timings: Timings) -> bool:
        """Judge what windows release by the end of a unit; True where there was any."""
        due = [o for o in self.due_at(effects.slot) if o.window is not None]
        views = self._state(effects.slot).views_at(due, unit.received_us)
        return self._check_views(effects, unit, due, views, timings)

    def _check_views(
        self,
        effects: Effects,
        unit: Unit,
        due: Sequence[Offered],
        views: Mapping[str, Views | Failure],
        timings: Timings,
    ) -> bool:
        if not views:
            return False
        nothing = Batch.from_columns({}, model=self.name, rows=0)
        locations = RecordLocations.of(unit, nothing, np.zeros(0, dtype=np.intp))
        verdicts = self._ask_host(effects.slot, JudgedRecords.alone(nothing), locations, due, views, NOTHING)
        self._flag(effects, verdicts, views, locations)
        self.strike(effects, verdicts.failures, unit.received_us)
        timings.stage("assertions")
        return True

    def _state(self, slot: str) -> SlotState:
        return self.slots.setdefault(slot, SlotState())


def owner_of(slot: str) -> str:
    """Slot whose answers are judged at a slot: judges and backfill judge the champion's."""
    return CHAMPION if slot == BACKFILL or slot.startswith(PREFIX) else slot


def known_classes(settings: ModelSettings) -> dict[str, list[str]]:
    if not settings.classes:
        return {}
    names = [str(one) for one in settings.classes]
    return {f"outputs.{settings.target}": names}


def _with_versions(batch: Batch, versions: Sequence[str | None]) -> Batch:
    table = batch.to_arrow()
    at, told = table.schema.get_field_index("version"), pa.array(versions, pa.string())
    if table.column(at).equals(told):
        return batch
    return Batch(table.set_column(at, "version", told), model=batch.model)


def _judges_of(offered: Offered) -> list[str]:
    return [name for name in offered.needs if name.startswith(PREFIX)]


def _with_evidence(found: Findings, remark: dict[str, Any]) -> Findings:
    if not len(found.row):
        return found
    given = found.evidence or [None] * len(found.row)
    return replace(found, evidence=[(one or {}) | remark for one in given])
