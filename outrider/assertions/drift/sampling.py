"""Sample of records: weights, effective size, blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .reading import arrow_of

Floats = NDArray[np.float64]
BLOCKS = 20
"""Number of blocks of the reference, each held out in turn."""
FEWEST_BLOCKS = 5
_PER_BLOCK = 20


@dataclass(frozen=True, slots=True)
class WindowSample:
    """Rows of a reference or a current window.

    Attributes
    ----------
    rows
        Number of records.
    weights
        Weight of each record, shape (rows,), scaled so that their sum is ``effective``; None if all are 1.
    effective
        Effective sample size: number of entities if known, less if weights are uneven.
    order
        Rows sorted by block, shape (rows,); None if they already are.
    starts
        First row of each block in that order, shape (blocks,).
    """

    rows: int
    weights: Floats | None
    effective: float
    order: NDArray[np.int64] | None
    starts: NDArray[np.int64]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts)

    def of_rows(self, is_kept: NDArray[np.bool_]) -> float:
        """Total weight of the rows that are kept."""
        return float(is_kept.sum() if self.weights is None else self.weights[is_kept].sum())


def sample_of(rows: int, weight: Any | None, entity: Any | None) -> WindowSample:
    """Sample in which each entity counts once.

    Parameters
    ----------
    weight
        1 / probability of having been captured, column of numbers > 0.
    entity
        Column with the entity (user, camera, patient); records without one are entities of their own.

    Raises
    ------
    ValueError
        If a weight is missing, infinite or not above 0, or an entity is a list or an object.

    References
    ----------
    Kish, "Survey Sampling", 1965, section 11.7: the effective size of a weighted sample.
    """
    weights = None if weight is None else _weights(weight)
    if entity is None:
        effective = float(rows) if weights is None else _effective(weights)
        return WindowSample(rows, _scaled(weights, effective), effective, None, block_starts(rows, effective))
    codes, first = _entities(entity)
    sizes = np.bincount(codes)
    own = np.ones(rows) if weights is None else weights
    of_entity = np.bincount(codes, own) / sizes
    effective = _effective(of_entity) if rows else 0.0
    order = np.argsort(first[codes], kind="stable")
    wanted = block_starts(len(sizes), effective)
    starts = np.searchsorted(np.argsort(np.argsort(first))[codes][order], wanted)
    return WindowSample(rows, _scaled(own / sizes[codes], effective), effective, order, np.unique(starts))


def _weights(column: Any) -> Floats:
    array = arrow_of(column)
    if not pa.types.is_integer(array.type) and not pa.types.is_floating(array.type):
        raise ValueError(f"weights above 0 expected, found {array.type}")
    found = array.to_numpy(zero_copy_only=False).astype(np.float64)
    wrong = ~(np.isfinite(found) & (found > 0))
    if wrong.any():
        raise ValueError(f"weights above 0 expected, found {found[wrong][0]} in {int(wrong.sum())} records")
    weights: Floats = found
    return weights


def _entities(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Index of each record's entity, and the first record of each entity."""
    given = arrow_of(column)
    if pa.types.is_nested(given.type):
        raise ValueError(f"entities as texts or numbers expected, found {given.type}")
    array = given if pa.types.is_dictionary(given.type) else pc.dictionary_encode(given)
    codes = pc.fill_null(array.indices.cast("int64"), -1).to_numpy(zero_copy_only=False)
    alone = codes < 0
    if alone.any():
        codes = codes.copy()
        codes[alone] = len(array.dictionary) + np.arange(alone.sum())
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, first


def _effective(weights: Floats) -> float:
    total = float(weights.sum())
    return total * total / float((weights**2).sum()) if len(weights) else 0.0


def _scaled(weights: Floats | None, effective: float) -> Floats | None:
    return None if weights is None else weights * (effective / max(float(weights.sum()), 1e-300))


def block_starts(units: int, effective: float) -> NDArray[np.int64]:
    """First unit of each block.

    Parameters
    ----------
    units
        Number of entities, records or windows, in order.
    effective
        Effective number of records in total.
    """
    blocks = min(max(FEWEST_BLOCKS, min(BLOCKS, int(effective) // _PER_BLOCK)), max(units, 1))
    return np.arange(blocks) * units // blocks
