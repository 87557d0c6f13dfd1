"""Text form in which the database stores answers and labels.

Numbers and booleans are written plainly; a text is quoted only if it would be read as another type: ``1`` and
``"1"``. Lists are stored as their length and a hash, since the text would repeat the payload.
"""

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch.columns import row_hashes, values_of

from .matching import number_of, same

if TYPE_CHECKING:
    from outrider.assertions.batch import Batch

NO_NUMBER = "nan"
"""Text of NaN: wrong as an answer, ignored as a label."""
_NOT_FINITE = {NO_NUMBER: float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_BOOLEANS = {"true": True, "false": False}
_MAYBE_READ_AS_OTHER = r'^(?:["+\-.0-9]|true$|false$|nan$|inf$)'


def typed_texts(column: pa.Array) -> list[str | None]:
    """Values as stored text, None for null.

    Whole floats are written without a decimal point, so that 3 and 3.0 are equal.

    Examples
    --------
    >>> typed_texts(pa.array([3.0, 0.5, None])), typed_texts(pa.array(["cat", "3"]))
    (['3', '0.5', None], ['cat', '"3"'])
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return typed_texts(column.dictionary_decode())
    if pa.types.is_list(kind):
        lengths = pc.list_value_length(column).to_pylist()
        hashes = row_hashes(column, "").tolist()
        return [
            None if length is None else f"{length} element{'s' * (length != 1)} #{digest:016x}"
            for length, digest in zip(lengths, hashes, strict=True)
        ]
    if pa.types.is_floating(kind):
        values = column.to_pylist()
        return [None if v is None else str(int(v)) if float(v).is_integer() else str(v) for v in values]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        cast: list[str | None] = column.cast(pa.string()).to_pylist()
        return cast
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found: list[str | None] = column.to_pylist()
        doubtful = pc.fill_null(pc.match_substring_regex(column, _MAYBE_READ_AS_OTHER), False)
        for row in np.flatnonzero(doubtful.to_numpy(zero_copy_only=False)).tolist():
            found[row] = _quoted(found[row] or "")
        return found
    import pandas as pd

    return [None if pd.api.types.is_scalar(v) and pd.isna(v) else str(v) for v in values_of(column)]


def read_typed(text: str | None) -> Any:
    """Value that a stored text represents.

    Examples
    --------
    >>> read_typed("3"), read_typed('"3"'), read_typed("true"), read_typed("cat")
    (3, '3', True, 'cat')
    """
    if text is None:
        return None
    if text.startswith('"'):
        return _unquoted(text)
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    number = number_of(text)
    return _NOT_FINITE.get(text, text) if number is None or isinstance(number, bool) else number


def plain_text(text: str | None) -> str | None:
    """Stored text without its quotes, for display.

    Examples
    --------
    >>> plain_text('"3"'), plain_text("3"), plain_text("cat")
    ('3', '3', 'cat')
    """
    return _unquoted(text) if text is not None and text.startswith('"') else text


def is_wrong(predicted: str | None, label: str | None, *, is_number: bool | None = None) -> bool | None:
    """True if a stored answer contradicts its label.

    None if one is missing, if the target is declared numeric, or if it is undeclared and a value is
    fractional.

    Examples
    --------
    >>> is_wrong("true", "1"), is_wrong("cat", "dog"), is_wrong("cat", None), is_wrong("0.52", "0.5")
    (False, True, None, None)
    """
    if predicted is None or label is None or is_number:
        return None
    answer, truth = read_typed(predicted), read_typed(label)
    if is_number is None and any(
        isinstance(value, float) and math.isfinite(value) and value % 1 for value in (answer, truth)
    ):
        return None
    return not same(answer, truth)


def _quoted(text: str) -> str:
    read = read_typed(text)
    return text if isinstance(read, str) and read == text else json.dumps(text, ensure_ascii=False)


def _unquoted(text: str) -> str:
    try:
        read = json.loads(text)
    except ValueError:  # a text that begins with a quote, as it was held before texts were quoted
        return text
    return read if isinstance(read, str) else text


def text_of(batch: "Batch", name: str) -> list[str | None]:
    """Values of a column as display text, None for null."""
    if not batch.has(name):
        return [None] * batch.rows
    column = batch.arrow(name)
    if pa.types.is_string(column.type):
        texts: list[str | None] = column.to_pylist()
        return texts
    return typed_texts(column)
