import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.typed_text import text_of
from outrider.behavioral_tests.grouping import groups
from outrider.dataops.ledger.group_columns import columns_of
from outrider.dataops.ledger.stated_values import GROUP, OTHERS, StatedValues


def stored_groups(
    judged: Batch, group_by: Sequence[str], stated: StatedValues, minutes_us: NDArray[np.int64]
) -> list[str | None]:
    """Groups of each record as counted, JSON by attribute; None without any."""
    if not group_by or not judged.rows:
        return [None] * judged.rows
    parts = [_counted(judged, attribute, stated, minutes_us) for attribute in group_by]
    mixed, member = np.unique(np.stack([codes for _, codes in parts]), axis=1, return_inverse=True)
    texts = [
        json.dumps(
            {attribute: named[at] for attribute, (named, _), at in zip(group_by, parts, column, strict=True)},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for column in mixed.T.tolist()
    ]
    return [texts[at] for at in member.ravel().tolist()]


def _counted(
    judged: Batch, attribute: str, stated: StatedValues, minutes_us: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.intp]]:
    named, codes = _groups(judged, attribute)
    is_named = stated.meet(GROUP + attribute, pa.array(named, pa.string()).take(pa.array(codes)), minutes_us)
    return [*named, OTHERS], np.where(is_named, codes, len(named))


def _groups(judged: Batch, attribute: str) -> tuple[list[str], NDArray[np.intp]]:
    """Names of the groups of an attribute, and each record's; an absent column is missing."""
    columns = {f"attrs.{name}": _texts(judged, name) for name in columns_of(attribute)}
    return groups(Batch.from_columns(columns, model=judged.model, rows=judged.rows), list(columns))


def _texts(judged: Batch, name: str) -> pa.Array:
    full = f"inputs.{name}" if judged.has(f"inputs.{name}") else f"attrs.{name}"
    return pa.array(text_of(judged, full), pa.string())
