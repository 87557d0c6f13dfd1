from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.monitor.stream.event_time import are_ahead
from outrider.monitor.stream.units import Unit

ALL_BELIEVED = np.iinfo(np.int64).max


def judged_versions(judged: Batch, version: str | None, *, recorded: bool) -> list[str | None]:
    """Judged version per record: the replica's where it answered, else what production said it ran."""
    if not recorded:
        return [version] * judged.rows
    versions: list[str | None] = judged.column("version").tolist()
    if judged.has("by_replica"):
        by_replica = judged.by_replica.tolist()
        versions = [None if answered else value for answered, value in zip(by_replica, versions, strict=True)]
    return [version if value is None else value for value in versions]


def window_records(
    judged: Batch, versions: Sequence[str | None], unit: Unit, seq: NDArray[np.int64]
) -> Batch:
    """Records of blocks ``seq`` with their judged version, which a next champion may judge.

    Event times too far ahead of receipt become receipt: they would make everything after them late.
    """
    changed: dict[str, pa.Array] = {}
    told = pa.array(versions, pa.string())
    if any(versions) and not judged.arrow("version").cast(pa.string()).equals(told):
        changed["version"] = told
    ahead = ahead_of_receipt(judged, unit, seq)
    if ahead.any():
        changed["ts"] = pc.if_else(pa.array(ahead), judged.arrow("received"), judged.arrow("ts"))
    return judged.with_columns(changed) if changed else judged


def ahead_of_receipt(judged: Batch, unit: Unit, seq: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the records too far ahead of receipt, shape (rows,)."""
    return _are_ahead(judged, seq, unit.max_ahead_us)


def ahead_in_windows(kept: Batch, unit: Unit, seq: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask (rows,) of records whose event time is ahead of receipt; they move no watermark beyond it."""
    return _are_ahead(kept, seq, dict.fromkeys(unit.max_ahead_us, 0))


def _are_ahead(judged: Batch, seq: NDArray[np.int64], bounds_us: dict[int, int]) -> NDArray[np.bool_]:
    if not bounds_us or not judged.rows:
        return np.zeros(judged.rows, dtype=np.bool_)
    bounds = np.full(judged.rows, ALL_BELIEVED, dtype=np.int64)
    for block, bound_us in bounds_us.items():
        bounds[seq == block] = bound_us
    return are_ahead(judged.to_arrow(), bounds)
