"""Restore of a slot's state after a restart: windows from checkpoints and journal, the open minute of
profiles from the journal."""

from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.assertions import Group, Window
from outrider.assertions.windows.state import WindowState
from outrider.dataops.journal.journal import Journal
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.champions import version_at
from outrider.dataops.ledger.checkpoints import read_checkpoints
from outrider.dataops.ledger.records import counted_names
from outrider.dataops.ledger.stored_profiles import last_profiled, slices_of_slot
from outrider.monitor.host.client import Offered
from outrider.monitor.stream.stored_answers import answer_cuts, outputs_of, registered, stored
from outrider.monitor.stream.units import context_s, read_unit, seq_before

from .ledger_rows import RecordLocations
from .pipeline import CHAMPION, Pipeline, owner_of
from .slot_state import SlotState, window_digest
from .stages.window_records import ahead_in_windows, window_records

UNPROFILED_US = 600_000_000
"""Receive time before the cursor that is read again where nothing is profiled yet."""
Windows = dict[Window | Group, int]
"""Block of each window's state."""


def restore_slot(
    engine: Engine,
    journal: Journal,
    pipeline: Pipeline,
    slot: str,
    at: int,
    borders: Sequence[tuple[int, str]],
    *,
    begin: int = 0,
) -> None:
    """Restore the windows of a slot, from their checkpoint to the cursor ``at``, and its unprofiled
    records; ``begin`` is the block after which the windows restarted."""
    state = pipeline.slots.setdefault(slot, SlotState())
    with engine.connect() as connection:
        state.profiles.slices = dict.fromkeys(reversed(slices_of_slot(connection, pipeline.name, slot)))
    judges = pipeline.due_at(slot)
    windows = list(dict.fromkeys(o.window for o in judges if o.window is not None))
    profiled = min(max(begin, _profiled(engine, journal, pipeline.name, slot, at)), at)
    starts: Windows = {}
    if windows and at > begin:
        kept = _restore_windows(engine, pipeline.name, slot, state, windows, begin, at)
        new = [window for window in windows if window not in kept]
        starts = kept | dict.fromkeys(new, max(begin, _seq_of_context(journal, new, at)))
    first = min([profiled, *starts.values()])
    # A unit never spans a change of the champion: its stored answers are one version's.
    cuts = sorted({seq for seq, _ in borders if first < seq < at} | {profiled, *starts.values(), at})
    if owner_of(slot) != CHAMPION:
        cuts = sorted({*cuts, *answer_cuts(engine, pipeline.name, slot, first, at)})
    after = first
    for until in (cut for cut in cuts if cut > first):
        version = slot if owner_of(slot) != CHAMPION else version_at(borders, until)
        due = [o for o in judges if o.window in starts and starts[o.window] < until]
        _feed(
            engine, journal, pipeline, slot, due, version,
            after=after, until=until, is_profiled=profiled < until,
        )  # fmt: skip
        after = until
    state.new_late()  # counted before the restart


def _feed(
    engine: Engine,
    journal: Journal,
    pipeline: Pipeline,
    slot: str,
    offered: Sequence[Offered],
    version: str | None,
    *,
    after: int,
    until: int,
    is_profiled: bool,
) -> None:
    """Feed windows and profiles blocks that were judged before."""
    state = pipeline.slots[slot]
    most = pipeline.unit_rows
    while (unit := read_unit(journal, pipeline.name, after, max_rows=most, until=until)) is not None:
        after = unit.last_seq
        if unit.batch is not None:
            batch, kept = pipeline.payloads.opened(*registered(engine, unit))
            answer = stored(engine, version, unit, batch)
            outputs = None if answer is None else outputs_of(answer)
            judged = pipeline.judged(slot, batch, outputs, {})
            if judged is not None:
                versions = pipeline.versions(slot, judged.batch, version)
                locations = RecordLocations.of(unit, batch, kept, versions)
                seen = window_records(judged.batch, versions, unit, locations.seq)
                state.views(offered, seen, locations.tags, ahead_in_windows(seen, unit, locations.seq))
                if is_profiled:
                    with engine.connect() as connection:
                        names = counted_names(
                            connection, pipeline.name, first=unit.first_seq, last=unit.last_seq
                        )
                    pipeline.gather(slot, judged, locations.registered_as(names, slot=owner_of(slot)))
        state.views_at(offered, unit.received_us)


def _profiled(engine: Engine, journal: Journal, model: str, slot: str, at: int) -> int:
    """Block after which a slot's records are in no stored profile; at most ten minutes back, because
    records wait for a layout."""
    if slot == BACKFILL or not at:
        return at  # it writes each unit's
    with engine.connect() as connection:
        last = last_profiled(connection, model, slot)
    if last is not None:
        return last
    here = journal.read(at - 1, limit=1)
    return seq_before(journal, here[0].received_us - UNPROFILED_US) if here else at


def _restore_windows(
    engine: Engine,
    model: str,
    slot: str,
    state: SlotState,
    windows: Sequence[Window | Group],
    begin: int,
    at: int,
) -> Windows:
    """Load the checkpoints between ``begin`` and ``at``, with their blocks."""
    with engine.connect() as connection:
        found = read_checkpoints(connection, model, slot)
    restored: Windows = {}
    for window in windows:
        seq, payload = found.get(window_digest(window), (0, b""))
        if begin < seq <= at:
            state.windows[window] = WindowState.restore(window, payload)
            restored[window] = seq
    return restored


def _seq_of_context(journal: Journal, windows: Sequence[Window | Group], at: int) -> int:
    """Block after which the context of windows without a checkpoint begins."""
    if not windows:
        return at
    here = journal.read(at - 1, limit=1)
    received_us = here[0].received_us if here else 0
    span_us = int(max(context_s(window) for window in windows) * 1e6)
    return seq_before(journal, received_us - span_us)
