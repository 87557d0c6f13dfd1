"""Worker's units: a model's consecutive journal blocks that fit together."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch, Group, Window
from outrider.assertions.windows.window import MIN_IDLE_S
from outrider.dataops.journal.journal import Block, Journal
from outrider.dataops.journal.stored_rows import StoredRows, read_stored
from outrider.dataops.state.clock import present_us

from .event_time import max_ahead_us

READ_BLOCKS = 64
UNIT_ROWS = 1024
SPAN_US = int(MIN_IDLE_S * 1e6)


@dataclass(slots=True)
class Unit:
    """Consecutive blocks' records as a batch, with the label blocks between; ``seq`` and ``row``
    locate every record, shape (rows,)."""

    model: str
    first_seq: int
    last_seq: int
    received_us: int
    batch: Batch | None = None
    seq: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    row: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    labels: list[tuple[int, int, StoredRows]] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    unreadable_rows: int = 0
    received: dict[int, int] = field(default_factory=dict)
    max_ahead_us: dict[int, int] = field(default_factory=dict)
    """Bound on event time ahead of receipt, for blocks where some are ahead."""
    step_us: int = 0
    """Step of the clock; such a unit is a border, and holds nothing else."""

    @property
    def is_tick(self) -> bool:
        return self.batch is None and not self.labels and not self.unreadable


def read_unit(
    journal: Journal,
    model: str,
    after: int,
    *,
    max_rows: int,
    until: int | None = None,
    period_us: int | None = None,
) -> Unit | None:
    """Next unit of a model after block ``after``, or None.

    Stops before a block of another schema, ``max_rows`` (one block is always taken whole), more than a
    second of receive time, a step of the clock, block ``until``, and the end of a period.
    """
    blocks = journal.read(after, limit=READ_BLOCKS, model=model)
    if until is not None:
        blocks = [block for block in blocks if block.seq <= until]
    if not blocks:
        return None
    if blocks[0].kind == "step":
        border = blocks[0]
        return Unit(model, border.seq, border.seq, border.received_us, step_us=int(border.payload))
    at = next((at for at, block in enumerate(blocks) if block.kind == "step"), len(blocks))
    blocks = [block for block in blocks[:at] if block.received_us - blocks[0].received_us < SPAN_US]
    if period_us is not None:
        blocks = [b for b in blocks if b.received_us // period_us == blocks[0].received_us // period_us]
    unit = Unit(model, blocks[0].seq, blocks[0].seq, blocks[0].received_us)
    parts: list[_Part] = []
    for block in blocks:
        if not _absorb(unit, block, parts, max_rows):
            break
        unit.last_seq, unit.received_us = block.seq, block.received_us
        unit.received[block.seq] = block.received_us
    if parts:
        unit.batch = Batch.concat([batch for _, batch, _ in parts])
        unit.seq = np.concatenate([np.full(len(rows), seq, dtype=np.int64) for seq, _, rows in parts])
        unit.row = np.concatenate([rows for _, _, rows in parts]).astype(np.int64)
    return unit


_Part: TypeAlias = tuple[int, Batch, NDArray[np.intp]]


def _absorb(unit: Unit, block: Block, parts: list[_Part], max_rows: int) -> bool:
    """Add one block to the unit; False where it must begin the next."""
    if block.damage:
        _give_up(unit, block, block.damage)
        return True
    try:
        if block.kind == "labels":
            unit.labels.append((block.seq, block.received_us, read_stored(block.payload)))
        elif block.kind == "records":
            stored = read_stored(block.payload)
            if not len(stored.rows):
                return True  # all of them were erased
            batch = stored.batch
            bound_us = max_ahead_us(batch.to_arrow())
            if parts and parts[0][1].schema_digest != batch.schema_digest:
                return False
            if parts and sum(part.rows for _, part, _ in parts) + batch.rows > max_rows:
                return False
            parts.append((block.seq, batch, stored.rows))
            if bound_us is not None:
                unit.max_ahead_us[block.seq] = bound_us
    except (pa.ArrowException, OSError, KeyError, StopIteration) as error:
        _give_up(unit, block, f"{type(error).__name__}: {error}")
    return True


def _give_up(unit: Unit, block: Block, reason: str) -> None:
    unit.unreadable.append((block.seq, reason))
    unit.unreadable_rows += block.rows if block.kind == "records" else 0


class Backlog:
    """Records behind one cursor, each block counted in and out once."""

    def __init__(self, journal: Journal, model: str, cursor: int) -> None:
        self._journal = journal
        self._model = model
        self._cursor = self._last = cursor
        self._records = 0

    def records(self, cursor: int) -> int:
        last = self._journal.last_seq()
        self._records += self._journal.count_records(self._last, last, model=self._model)
        self._records -= self._journal.count_records(self._cursor, cursor, model=self._model)
        self._cursor, self._last = cursor, last
        if cursor >= last:
            self._records = 0  # also when blocks expired before they were counted off
        return self._records


def context_s(window: Window | Group) -> float:
    """Seconds of receive time that a context spans; a group has no bound, so one fed for longer than a
    hundred pauses restarts."""
    if isinstance(window, Group):
        return 100 * window.wait_s
    if window.seconds is not None:
        return window.seconds + window.lateness_s + window.idle_s
    # An entity may pause for idle_s before each of the rows that it is remembered by.
    return (window.capacity - 1) * window.idle_s + window.lateness_s


def seq_before(journal: Journal, received_us: int, *, after: int = 0) -> int:
    """Last block before a time by the present, non-decreasing clock, by bisection; ``after`` where
    there is none."""
    low, high, steps = after, journal.last_seq(), journal.steps()
    while low < high:
        middle = (low + high + 1) // 2
        following = journal.read(middle - 1, limit=1)
        if following and present_us(steps, following[0].seq, following[0].received_us) < received_us:
            low = following[0].seq
        else:
            high = middle - 1
    return low
