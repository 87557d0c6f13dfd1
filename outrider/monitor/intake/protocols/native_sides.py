"""Records with one side: ``POST /v1/records?join=true`` joins equal ids."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.monitor.intake.pending_blocks import Side
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.intake.request_parts import RequestPart

from .base import HalfPart

_NAMELESS = "is missing: with join=true, a record meets its other side by id"


def split(parts: Sequence[RequestPart], rejected: Rejections) -> tuple[list[RequestPart], list[HalfPart]]:
    """Whole records and unmatched sides; sides without an id are rejected.

    A record with inputs and no outputs is a request, one with outputs and no inputs a response.
    """
    whole: list[RequestPart] = []
    halves: list[HalfPart] = []
    for part in parts:
        asked, said = _filled(part, "inputs"), _filled(part, "outputs")
        rows: dict[Side | None, list[int]] = {}
        for row, (has_inputs, has_outputs) in enumerate(zip(asked, said, strict=True)):
            side: Side | None = "request" if has_inputs else "response"
            rows.setdefault(None if has_inputs == has_outputs else side, []).append(row)
        for kind, members in rows.items():
            chosen = part if len(rows) == 1 else part.take(members)
            if kind is None:
                whole.append(chosen)
                continue
            named, unnamed = _by_name(chosen)
            rejected.add_rows(
                np.array(unnamed, np.int64), "id", _NAMELESS, indices=chosen.indices, model=part.model
            )
            if named:
                halves.append(HalfPart("", kind, chosen.take(named) if unnamed else chosen))
    return whole, halves


def _filled(part: RequestPart, prefix: str) -> list[bool]:
    """Rows with a value in any field of ``prefix``."""
    if prefix in part.fields:
        return [bool(fields) for fields in part.fields[prefix]]
    filled = pa.array([False] * len(part.indices))
    for name, values in part.columns.items():
        if name.startswith(f"{prefix}."):
            if isinstance(values, pa.Array):
                filled = pc.or_(filled, values.is_valid())
            else:
                filled = pc.or_(filled, pa.array([value is not None for value in values]))
    found: list[bool] = filled.to_pylist()
    return found


def _by_name(part: RequestPart) -> tuple[list[int], list[int]]:
    ids = part.system.get("id")
    given = (
        ids.is_valid().to_pylist() if isinstance(ids, pa.Array) else [id_ is not None for id_ in ids or ()]
    )
    given = given or [False] * len(part.indices)
    return [row for row, has in enumerate(given) if has], [row for row, has in enumerate(given) if not has]
