"""Replay: judge stored traffic again with other revisions.

Flags are a function of journal, stored answers and revisions, so the live revision finds exactly its live
flags.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from outrider.assertions import Assertion, Batch
from outrider.assertions.windows.state import View
from outrider.dataops.flags import stored_flags as flags
from outrider.dataops.flags.registered_assertions import revisions_by_name
from outrider.dataops.journal.journal import Journal
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger import backfill
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.backfill import SkippedBlocks
from outrider.dataops.ledger.champions import champion_borders, version_at
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.records import count_records
from outrider.dataops.ledger.rotations import rotations
from outrider.dataops.payloads.payloads import Payloads
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import now_us, write
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.host.client import NOTHING, Failure, HostVerdicts, Offered
from outrider.monitor.host.findings_frame import joined
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import HostSettings
from outrider.monitor.stream.stored_answers import answer_cuts, judge_answers, outputs_of, registered, stored
from outrider.monitor.stream.units import Unit, context_s, read_unit, seq_before

from .answers_again import AnswersAgain
from .judged import JudgedRecords
from .ledger_rows import RecordLocations
from .pipeline import CHAMPION, Pipeline, owner_of
from .slot_state import SlotState
from .stages.work import Timings

NEVER = HostSettings(strikes=2**31 - 1)
"""A replay suspends nothing."""


def offered(assertions: Sequence[Assertion]) -> list[Offered]:
    return [
        Offered(j.name, j.revision, j.level, j.description, j.owner, "assertion", j.window, needs=j.needs)
        for j in assertions
    ]


class InProcess:
    """Runner of assertions in this process: the user's own command runs the user's own code."""

    def __init__(self, model: str, assertions: Sequence[Assertion]) -> None:
        self._assertions = {judge.name: judge for judge in assertions}
        self.offered = {model: offered(assertions)}

    def check(
        self,
        batch: Batch,
        *,
        assertions: Sequence[str],
        live: Mapping[str, NDArray[np.int64]] = NOTHING,  # noqa: ARG002 - a replay asks no live tests
        seq: NDArray[np.int64] | None = None,  # noqa: ARG002
        views: Mapping[str, Sequence[View]] | None = None,
    ) -> HostVerdicts:
        verdicts = HostVerdicts()
        for name in assertions:
            judge = self._assertions[name]
            seen = [view.batch for view in (views or {}).get(name, ())] or [batch.own()]
            try:
                found = [judge.findings(one) for one in seen]
                verdicts.found[name] = joined(found, [one.rows for one in seen])
            except Exception as error:  # noqa: BLE001 - reported with the name of the assertion
                verdicts.failures.append(Failure(name, "raised", f"{type(error).__name__}: {error}"))
        return verdicts

    def check_answers(
        self, model: str, answered: Mapping[str, tuple[Batch, Batch]]
    ) -> tuple[dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]], list[Failure]]:
        """Raise: a replay asks no live tests."""
        raise NotImplementedError(f"a replay of {model} asks no live tests, got {sorted(answered)}")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Blocks after ``after`` up to ``until``, and flags of records from ``since_us`` on.

    ``gaps`` are what the champion skipped and is judged by now; flags up to block ``expired`` are not
    compared, because payloads are gone.
    """

    after: int
    until: int
    since_us: int = 0
    gaps: tuple[SkippedBlocks, ...] = ()
    expired: int = 0


@dataclass(slots=True)
class Replayed(ledger.FlagRows):
    records: int = 0
    unanswered: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    failed_units: dict[str, int] = field(default_factory=dict)

    def fired(self) -> dict[str, set[tuple[str, str]]]:
        """Flag subjects by assertion, as (record id, identity without the revision)."""
        found: dict[str, set[tuple[str, str]]] = {}
        for assertion, record, version in self.flags.select("assertion", "record_id", "version"):
            found.setdefault(assertion, set()).add((record, version or ""))
        return found


def stretch(
    journal: Journal,
    assertions: Sequence[Assertion],
    *,
    since_us: int,
    until: int,
    gaps: Sequence[SkippedBlocks] = (),
    expired: int = 0,
) -> Stretch:
    """Stretch that gives the flags since a time, with the earlier blocks that windows need as context."""
    spans = [context_s(judge.window) for judge in assertions if judge.window is not None]
    span_us = int(max(spans, default=0.0) * 1e6)
    whole = journal.read(expired, limit=1) if expired else []
    if whole and spans:
        received_us = present_us(journal.steps(), whole[0].seq, whole[0].received_us)
        since_us = max(since_us, received_us + span_us)
    after = seq_before(journal, since_us - span_us) if since_us else 0
    return Stretch(max(after, min(expired, until)), until, since_us, tuple(gaps), expired)


def skipped(engine: Engine, model: str) -> list[SkippedBlocks]:
    with engine.connect() as connection:
        return backfill.gaps(connection, model)


def replay(
    engine: Engine,
    journal: Journal,
    model: str,
    settings: ModelSettings,
    assertions: Sequence[Assertion],
    which: Stretch,
    *,
    slot: str = CHAMPION,
    again: AnswersAgain | None = None,
    payloads: Payloads | None = None,
    progress: Callable[[int], None] = lambda _records: None,
) -> Replayed:
    """Judge stored records with the given assertions; changes nothing.

    ``again`` asks versions in place of their stored answers, equal within hardware noise; records whose
    payloads are gone count as unanswered.
    """
    pipeline = Pipeline(
        model,
        settings,
        NEVER,
        host=InProcess(model, assertions),
        payloads=payloads,
    )
    with engine.connect() as connection:
        pipeline.rotations = rotations(connection, model)
    result = Replayed()
    cuts = [] if slot == CHAMPION else answer_cuts(engine, model, slot, which.after, which.until)
    for run in runs(which, slot, champion_borders(engine, model)):
        state = pipeline.slots.setdefault(run.slot, SlotState())
        state.skipped_us = run.skipped_us
        for unit in _units(journal, model, run, pipeline, cuts):
            effects = Effects(model, run.slot, unit.last_seq, owner=owner_of(run.slot))
            if unit.batch is None:
                effects = pipeline.pass_time(run.slot, unit, Timings()) or effects
                if unit.step_us and run.slot == CHAMPION:
                    for judge in [name for name in pipeline.slots if name.startswith(PREFIX)]:
                        _take(result, pipeline.pass_time(judge, unit, Timings()) or effects, which)
            else:
                version = slot if slot != CHAMPION else version_at(run.borders, unit.last_seq)
                _check(engine, pipeline, unit, version, effects, result, again=again)
            _take(result, effects, which)
            progress(result.records)
        if run.leaves_us is not None:
            skip = Unit(model, run.until, run.until, run.leaves_us)
            for left in (run.slot, *(name for name in pipeline.slots if name.startswith(PREFIX))):
                effects = Effects(model, left, run.until, owner=owner_of(left))
                _take(result, pipeline.close_windows(effects, skip, Timings()), which)
    return result


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks judged in order at one slot, after ``after`` up to ``until``."""

    slot: str
    after: int
    until: int
    borders: Sequence[tuple[int, str]]
    """Champion version after each block."""
    skipped_us: int = 0
    leaves_us: int | None = None
    """Time at which the windows restarted after them; None where they continue."""


def runs(which: Stretch, slot: str, borders: Sequence[tuple[int, str]]) -> Iterator[BlockRun]:
    """Runs of the stream between its jumps, then skipped ranges, where the champion alone is judged."""
    jumps = {gap.after_seq: gap.created_us for gap in which.gaps}
    for after, until in backfill.stretches(which.gaps, which.after, which.until):
        yield BlockRun(slot, after, until, borders, leaves_us=jumps.get(until))
    if slot != CHAMPION:
        return
    at_once: dict[int, list[SkippedBlocks]] = {}
    for gap in which.gaps:
        if which.after < gap.until_seq <= which.until:
            at_once.setdefault(gap.created_us, []).append(gap)
    for skipped_us, parts in at_once.items():
        judged_by = [(part.after_seq, part.version) for part in parts if part.version is not None]
        leaves_us = None if parts[-1].done_us is None else skipped_us
        yield BlockRun(backfill.SLOT, parts[0].after_seq, parts[-1].at_seq, judged_by, skipped_us, leaves_us)


def _take(result: Replayed, effects: Effects, which: Stretch) -> None:
    places = effects.flags.select("ts_us", "seq")
    effects.flags = effects.flags.where(ts >= which.since_us and seq > which.expired for ts, seq in places)
    result.extend_flags(effects)
    for assertion, detail in effects.strikes.select("assertion", "detail"):
        result.failures.setdefault(assertion, detail)
        result.failed_units[assertion] = result.failed_units.get(assertion, 0) + 1


def judged_until(engine: Engine, model: str, slot: str) -> int:
    """Last block whose verdicts are committed; later ones are the running worker's."""
    with engine.connect() as connection:
        return cursor(connection, model, slot)


def records_in(journal: Journal, model: str, which: Stretch) -> int:
    return journal.count_records(which.after, which.until, model=model)


def count_expired(engine: Engine, model: str, expired: int, *, since_us: int) -> int:
    with engine.connect() as connection:
        return count_records(connection, model, until=expired, since_us=since_us)


def versions_in(engine: Engine, model: str) -> list[str]:
    return sorted({version for _, version in champion_borders(engine, model)})


def write_back(engine: Engine, model: str, assertions: Sequence[Assertion], found: Replayed) -> int:
    """Store a replay's findings next to the flags of other revisions; returns the number of new flags.

    Counters keep what was counted live.
    """
    with write(engine) as connection:
        return flags.add_replayed(connection, model, offered(assertions), found, now_us=now_us())


def stored_flags(
    engine: Engine, model: str, assertion: str, revision: str, which: Stretch, *, slot: str = CHAMPION
) -> set[tuple[str, str]]:
    """Stored flags of one revision in a stretch, as (record id, judged version)."""
    with engine.connect() as connection:
        found = flags.stored_flags(
            connection, model, assertion, revision,
            slot=slot, after=which.expired, until=which.until, since_us=which.since_us,
        )  # fmt: skip
    # what of the backfill was judged since lies behind what is compared
    newer = [(gap.at_seq, gap.until_seq) for gap in which.gaps]
    return {
        (flag.record_id, flag.version or "")
        for flag in found
        if not any(after < flag.seq <= until for after, until in newer)
    }


def stored_revisions(engine: Engine, model: str) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return revisions_by_name(connection, model)


def _check(
    engine: Engine,
    pipeline: Pipeline,
    unit: Unit,
    version: str | None,
    effects: Effects,
    result: Replayed,
    *,
    again: AnswersAgain | None,
) -> None:
    assert unit.batch is not None
    whole, known = registered(engine, unit)
    batch, kept = pipeline.payloads.opened(whole, known)
    result.unanswered += len(known) - len(kept)
    outputs: Outputs | None
    if again is not None and version is not None:
        outputs = again.outputs(version, batch)
    else:
        answer = stored(engine, version, unit, batch)
        outputs = None if answer is None else outputs_of(answer)
    judged = pipeline.judged(effects.slot, batch, outputs, {})
    if judged is None:
        result.unanswered += batch.rows
        return
    locations = RecordLocations.of(unit, batch, kept, pipeline.versions(effects.slot, judged.batch, version))
    pipeline.check(effects, judged, locations, version, timings=Timings())
    if effects.slot == CHAMPION:
        _check_with_judges(engine, pipeline, judged, locations, version, effects)
    result.records += batch.rows


def _check_with_judges(
    engine: Engine,
    pipeline: Pipeline,
    judged: JudgedRecords,
    locations: RecordLocations,
    version: str | None,
    effects: Effects,
) -> None:
    """Run the assertions that need judges on the judges' live answers."""
    answers = judge_answers(engine, locations.unit, judged.batch)
    for slot in answers:
        found = Effects(effects.model, slot, effects.seq, owner=owner_of(slot))
        with_answers = judged.with_answers(answers)
        pipeline.check(found, with_answers, locations, version, timings=Timings())
        effects.extend_flags(found)
        effects.strikes.extend(found.strikes)


def _units(
    journal: Journal, model: str, run: BlockRun, pipeline: Pipeline, cuts: Sequence[int]
) -> Iterator[Unit]:
    """Units of a run; none spans a change of the champion, a cut or a rotation."""
    after, max_rows = run.after, pipeline.unit_rows
    borders = sorted({*(seq for seq, _ in run.borders), *cuts, *(one.seq for one in pipeline.rotations)})
    for until in [*(seq for seq in borders if after < seq < run.until), run.until]:
        while (unit := read_unit(journal, model, after, max_rows=max_rows, until=until)) is not None:
            after = unit.last_seq
            yield unit
