"""Text columns as Arrow arrays, for string kernels over whole columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch


def has_text(batch: Batch, name: str) -> NDArray[np.bool_]:
    """Mask of the records with a text, even an empty one.

    Shape (rows,); False if the column is null or absent.
    """
    if not batch.has(name):
        return np.zeros(batch.rows, dtype=np.bool_)
    return ~batch.is_null(name)


def text_column(batch: Batch, name: str) -> pa.Array:
    """Texts of a column; a list of texts is joined by newlines.

    Null or absent values become empty texts (use `has_text` to distinguish them). Raises TypeError if the
    column holds other values.
    """
    if not batch.has(name):
        return pa.array([""] * batch.rows, pa.string())
    column = batch.arrow(name)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array([""] * len(column), pa.string())
    if pa.types.is_list(kind) and _is_text(kind.value_type):
        lists = column.to_pylist()
        return pa.array(["\n".join(text for text in texts or () if text) for texts in lists], pa.string())
    if not _is_text(kind):
        raise TypeError(f"{name} must hold texts or lists of texts, got {kind}")
    return pc.fill_null(column.cast(pa.string()), "")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def split_column(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Elements of a list column, and the row of each."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def words_of(column: pa.Array, *, numbers: bool = False) -> tuple[pa.Array, NDArray[np.int64]]:
    """Lower-case words of each text, and the row of each. With ``numbers`` numbers count as words."""
    other = r"[^\p{L}\p{M}\p{N}]+" if numbers else r"[^\p{L}\p{M}]+"
    plain = pc.replace_substring_regex(pc.utf8_lower(column), other, " ")
    return split_column(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(plain)))
