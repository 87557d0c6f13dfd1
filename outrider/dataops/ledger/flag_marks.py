"""Marks of judged records, a byte per row of a block, before thinning.

Marks name no record, so erasing the record suffices.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.dataops.state.rows import replace_rows
from outrider.dataops.state.tables import JudgedBlock, table_of

from .stated_values import OTHERS

Marks = NDArray[np.uint8]
JUDGED = 1
LEVEL_BITS = {"info": 2, "warning": 4, "critical": 8}
FLAGGED = sum(LEVEL_BITS.values())
_JUDGED_BLOCK = table_of(JudgedBlock)


def judged_marks(rows: NDArray[np.int64]) -> Marks:
    """Marks of a block whose ``rows`` were judged and not flagged, ascending.

    Examples
    --------
    >>> judged_marks(np.array([0, 2])).tolist()
    [1, 0, 1]
    """
    marks = np.zeros(int(rows[-1]) + 1, dtype=np.uint8)
    marks[rows] = JUDGED
    return marks


def store_marks(
    connection: Connection,
    model: str,
    slot: str,
    marks: dict[tuple[str, int], Marks],
    flags: Iterable[tuple[str | None, int, int, str]],
) -> None:
    """Store marks by counted version and block, with their flags; flags on earlier blocks change their
    marks."""
    found = list(flags)
    earlier = {(version, seq) for version, seq, *_ in found if version is not None} - marks.keys()
    for seq in sorted({seq for _, seq in earlier}):
        for version, own in _stored(connection, model, slot, seq).items():
            if (version, seq) in earlier or version == OTHERS:
                marks.setdefault((version, seq), own)
    for judged, seq, row, level in found:
        for version in (judged or "", OTHERS):
            marked = marks.get((version, seq))
            if marked is not None and row < len(marked) and marked[row]:
                marked[row] |= LEVEL_BITS[level]
    rows = [(model, seq, slot, version, own.tobytes()) for (version, seq), own in marks.items()]
    replace_rows(connection, JudgedBlock, rows)


def _stored(connection: Connection, model: str, slot: str, seq: int) -> dict[str, Marks]:
    query = select(_JUDGED_BLOCK.c.version, _JUDGED_BLOCK.c.marks).where(
        _JUDGED_BLOCK.c.model == model,
        _JUDGED_BLOCK.c.slot == slot,
        _JUDGED_BLOCK.c.seq == seq,
    )
    return {row.version: np.frombuffer(row.marks, dtype=np.uint8).copy() for row in connection.execute(query)}
