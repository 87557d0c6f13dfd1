"""Columns of a mapped Arrow file, read by offset.

Arrow aligns every buffer to 8 bytes, so the whole file is an array of any type of numbers, and a row of any
batch is one index into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor

Places = NDArray[np.int64]


class PlacedColumn(Protocol):
    def take(self, batch: Places, row: Places) -> NDArray[Any] | list[Any]: ...


def placed_column(file: pa.Buffer, kind: pa.DataType, chunks: Sequence[pa.Array]) -> PlacedColumn | None:
    """None if values are neither of one width nor texts."""
    if (array := _array_type(kind)) is not None:
        return _FixedColumn.of(file, chunks, array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _TextColumn.of(file, chunks, np.int64 if pa.types.is_large_string(kind) else np.int32)
    return None


@dataclass(frozen=True, slots=True)
class _Validity:
    bits: NDArray[np.uint8]
    firsts: Places
    """Bit of the file with the first row of each batch; -1 if all rows are valid."""

    @classmethod
    def of(cls, file: pa.Buffer, arrays: Sequence[pa.Array]) -> "_Validity":
        firsts = []
        for array in arrays:
            buffer = array.buffers()[0]
            is_full = buffer is None or not array.null_count
            firsts.append(-1 if is_full else (buffer.address - file.address) * 8 + array.offset)
        return cls(np.frombuffer(file, np.uint8), np.array(firsts, np.int64))

    def nulls(self, batch: Places, row: Places) -> NDArray[np.bool_] | None:
        first = self.firsts[batch]
        some = first >= 0
        if not some.any():
            return None
        null = np.zeros(len(batch), np.bool_)
        null[some] = ~_bits(self.bits, first[some] + row[some])
        return null if null.any() else None


@dataclass(frozen=True, slots=True)
class _FixedColumn:
    file: NDArray[Any]
    """The whole file as values of this type; as bytes for truth values."""
    firsts: Places
    validity: _Validity
    shape: tuple[int, ...]
    is_bool: bool

    @classmethod
    def of(
        cls, file: pa.Buffer, chunks: Sequence[pa.Array], kind: tuple[np.dtype[Any], tuple[int, ...]]
    ) -> "_FixedColumn":
        dtype, shape = kind
        size = int(np.prod(shape, dtype=np.int64))
        arrays = [chunk.storage if shape else chunk for chunk in chunks]
        firsts = []
        for array in arrays:
            values = array.values if shape else array
            place = values.buffers()[1].address - file.address if len(values) else 0
            first = place * 8 if dtype == np.bool_ else place // dtype.itemsize
            firsts.append(first + (array.offset * size if shape else array.offset))
        whole = _as(file, np.dtype(np.uint8) if dtype == np.bool_ else dtype)
        validity = _Validity.of(file, arrays)
        return cls(whole, np.array(firsts, np.int64), validity, shape, dtype == np.bool_)

    def take(self, batch: Places, row: Places) -> NDArray[Any]:
        size = int(np.prod(self.shape, dtype=np.int64))
        at = self.firsts[batch] + row * size
        if self.is_bool:
            values: NDArray[Any] = _bits(self.file, at)
        elif not self.shape:
            values = self.file[at]
        else:
            values = np.empty((len(at), size), self.file.dtype)
            for place, first in enumerate(at.tolist()):
                values[place] = self.file[first : first + size]
            values = values.reshape((len(at), *self.shape))
        null = self.validity.nulls(batch, row)
        return values if null is None else _with_nulls(values, null)


@dataclass(frozen=True, slots=True)
class _TextColumn:
    bytes: NDArray[np.uint8]
    offsets: NDArray[Any]
    firsts: Places
    data: Places
    validity: _Validity

    @classmethod
    def of(cls, file: pa.Buffer, chunks: Sequence[pa.Array], dtype: type[np.integer[Any]]) -> "_TextColumn":
        firsts, data = [], []
        for chunk in chunks:
            _, offsets, texts = chunk.buffers()
            place = offsets.address - file.address if len(chunk) else 0
            firsts.append(place // np.dtype(dtype).itemsize + chunk.offset)
            data.append(0 if texts is None or not texts.size else texts.address - file.address)
        whole = np.frombuffer(file, np.uint8)
        places = np.array(firsts, np.int64), np.array(data, np.int64)
        return cls(whole, _as(file, np.dtype(dtype)), *places, _Validity.of(file, chunks))

    def take(self, batch: Places, row: Places) -> list[Any]:
        at = self.firsts[batch] + row
        begins = self.offsets[at].astype(np.int64)
        lengths = self.offsets[at + 1].astype(np.int64) - begins
        null = self.validity.nulls(batch, row)
        if null is not None:
            lengths[null] = 0
        ends = np.concatenate([[0], np.cumsum(lengths)])
        # The byte of each letter: where its text begins, and how far it is from there.
        letters = np.repeat(self.data[batch] + begins - ends[:-1], lengths) + np.arange(ends[-1])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self.bytes[letters])]
        texts = pa.Array.from_buffers(pa.large_string(), len(at), buffers).to_numpy(zero_copy_only=False)
        if null is not None:
            texts[null] = None
        values: list[Any] = texts.tolist()
        return values


def _with_nulls(values: NDArray[Any], null: NDArray[np.bool_]) -> NDArray[Any]:
    if values.dtype.kind == "M":
        values[null] = np.datetime64("NaT")
        return values
    found = values if values.dtype.kind == "f" else values.astype(np.float64)
    found[null] = np.nan
    return found


def _bits(bits: NDArray[np.uint8], at: Places) -> NDArray[np.bool_]:
    values: NDArray[np.bool_] = ((bits[at >> 3] >> (at & 7).astype(np.uint8)) & 1).astype(np.bool_)
    return values


def _as(file: pa.Buffer, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(file, np.uint8)[: file.size // dtype.itemsize * dtype.itemsize].view(dtype)


def _array_type(kind: pa.DataType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Numpy type and shape of a column's values, None if not of one width."""
    if is_tensor(kind):
        inner = _array_type(kind.value_type)
        return None if inner is None or inner[0] == np.bool_ else (inner[0], tuple(kind.shape))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype()), ()
    if pa.types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]"), ()
    return None
