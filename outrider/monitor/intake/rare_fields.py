"""Rare fields without a column of their own: one JSON object per record and part."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions.batch import REST


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)


def rest_column(sent: pa.Array | None, members: Mapping[int, dict[str, Any]], rows: int) -> pa.Array:
    """JSON objects of rows with rare fields; ``sent`` is what the sender put into the column itself."""
    texts: list[str | None] = [None] * rows if sent is None else sent.to_pylist()
    for row, fields in members.items():
        texts[row] = as_json(_object(texts[row]) | fields)
    return pa.array(texts, pa.string())


def merged_rest(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    """Rare fields of both sides; the first side's counts where both have one."""
    pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
    both = [one if two is None else two if one is None else _joined(one, two) for one, two in pairs]
    return pa.array(both, pa.string())


def _joined(first: str, second: str) -> str:
    return json.dumps(_object(second) | _object(first), sort_keys=True)


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {REST: text}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")
