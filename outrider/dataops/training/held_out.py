"""Rows that judge candidates, found among the rows to learn from."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import row_hashes
from outrider.dataops.loaders.mapped_rows import MappedRows

from .learned_rows import hashes_of


def held_out_among(learned: Sequence[MappedRows], judging: Sequence[MappedRows]) -> list[str]:
    """Sentences with counts of learned rows that judge too.

    Those of a judging entity, and judging rows themselves.

    A row is another one's where both have its id and equal inputs: imported tables may count from zero.
    """
    found = []
    for rows in learned:
        for judge in judging:
            if not len(rows) or not len(judge):
                continue
            shared = _of_entities(rows, judge)
            same = _same_rows(rows, judge)
            for mask, what in ((shared, "whose entity is"), (same & ~shared, "that are")):
                if count := int(mask.sum()):
                    first = rows.take(np.flatnonzero(mask)[:1])["id"][0]
                    found.append(
                        f"{count} of {len(rows)} rows of {rows.id} {what} in {judge.id} (first id {first})"
                    )
    return found


def _of_entities(rows: MappedRows, judge: MappedRows) -> NDArray[np.bool_]:
    if "entity" not in rows.columns or "entity" not in judge.columns:
        return np.zeros(len(rows), np.bool_)
    mine, theirs = hashes_of(rows, "entity"), hashes_of(judge, "entity")
    shared: NDArray[np.bool_] = np.isin(mine, theirs[theirs != 0]) & (mine != 0)
    return shared


def _same_rows(rows: MappedRows, judge: MappedRows) -> NDArray[np.bool_]:
    mine, theirs = hashes_of(rows, "id"), hashes_of(judge, "id")
    both = np.intersect1d(mine, theirs)
    found = np.zeros(len(rows), np.bool_)
    if not len(both):
        return found
    names = sorted(name for name in rows.columns if name.startswith("inputs.") and name in judge.columns)
    place, other = (np.flatnonzero(np.isin(hashes, both)) for hashes in (mine, theirs))
    pairs = _pairs(rows, place, mine, names), _pairs(judge, other, theirs, names)
    found[place] = np.isin(pairs[0], pairs[1])
    return found


def _pairs(
    rows: MappedRows, places: NDArray[np.int64], ids: NDArray[np.uint64], names: Sequence[str]
) -> NDArray[np.uint64]:
    """Hash of id and inputs of some rows, read in steps."""
    whole = []
    for start in range(0, len(places), 4096):
        some = places[start : start + 4096]
        table: pa.Table = rows.gather(some)
        total = ids[some].copy()
        for name in names:
            total += row_hashes(table.column(name).combine_chunks(), name)
        whole.append(total)
    return np.concatenate([np.empty(0, np.uint64), *whole])
