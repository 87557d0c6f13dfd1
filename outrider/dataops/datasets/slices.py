from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.typed_text import text_of, typed_texts
from outrider.errors import nearest


def rows_where(batch: Batch, where: Mapping[str, Any]) -> tuple[NDArray[np.intp], str]:
    """Rows whose attributes have these values; the reason if there are none."""
    kept = np.ones(batch.rows, dtype=np.bool_)
    for name, value in where.items():
        if not batch.has(f"attrs.{name}"):
            columns = batch.to_arrow().schema.names
            known = {column.removeprefix("attrs.") for column in columns if column.startswith("attrs.")}
            return np.flatnonzero(~kept), f"has attrs.{name}{nearest(name, known)}"
        texts = text_of(batch, f"attrs.{name}")
        wanted = value if isinstance(value, str) else typed_texts(pa.array([value]))[0]
        is_there = np.array([text == wanted for text in texts], dtype=np.bool_)
        if batch.rows and not is_there.any():
            known = {text for text in texts if text is not None}
            return np.flatnonzero(is_there), f"has attrs.{name} = {value!r}{nearest(str(value), known)}"
        kept &= is_there
    rows = np.flatnonzero(kept)
    return rows, "" if len(rows) else f"is of {', '.join(f'{k} = {v!r}' for k, v in where.items())} together"
