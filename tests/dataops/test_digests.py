"""Digests of rows against their definition, value by value."""

import struct
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.dataops.datasets.digests import digests_of

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1])
REAL = st.floats(width=64) | st.sampled_from([0.0, -0.0, float("nan")])
TEXT = st.text(max_size=5)
ROWS = st.lists(
    st.tuples(
        st.none() | WHOLE,
        st.none() | st.integers(0, 2**64 - 1),
        st.none() | REAL,
        st.none() | st.booleans(),
        st.none() | TEXT,
        st.none() | st.binary(max_size=3),
        st.none() | st.lists(st.floats(width=32), max_size=3),
        st.none() | st.integers(0, 4),
    ),
    max_size=8,
)
KINDS = {
    "inputs.whole": pa.int64(),
    "inputs.size": pa.uint64(),
    "inputs.real": pa.float64(),
    "inputs.truth": pa.bool_(),
    "inputs.text": pa.string(),
    "inputs.bytes": pa.binary(),
    "inputs.list": pa.list_(pa.float32()),
    "label.label": pa.int64(),
}


def real(value: float) -> bytes:
    return struct.pack("<d", float("nan") if value != value else value + 0.0)


def cell(name: str, value: Any) -> bytes:
    key = blake2b(name.encode(), digest_size=8).digest()
    if isinstance(value, float) or (isinstance(value, int) and float(value) == value):
        return key + b"f" + real(float(value))
    if isinstance(value, int):
        return key + b"i" + (value % 2**64).to_bytes(8, "little")
    kind, content = b"t", value
    if isinstance(value, str):
        kind, content = b"s", value.encode()
    if isinstance(value, list):
        kind, content = b"l", b"".join(map(real, value))
    return bytes(key + kind + struct.pack("<Q", len(content)) + content)


def told(row: dict[str, Any], *, labels: bool) -> bytes:
    """Digest by definition: numbers by name, then the others by name, nulls left out."""
    there = {name: row[name] for name in sorted(row) if row[name] is not None}
    there = {name: value for name, value in there.items() if name.startswith("label.") == labels}
    numbers = [name for name, value in there.items() if isinstance(value, (bool, int, float))]
    order = numbers + [name for name in there if name not in numbers]
    return sha256(b"".join(cell(name, there[name]) for name in order)).digest()


@given(rows=ROWS, chunks=st.integers(1, 3))
def test_digests_are_those_of_the_definition(rows: list[tuple[Any, ...]], chunks: int) -> None:
    columns = {
        name: pa.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(KINDS.items())
    }
    table = pa.table(columns)
    step = max(1, -(-len(rows) // chunks))
    pieces = [table.slice(start, step) for start in range(0, len(rows), step)]
    expected = [told(row, labels=False) + told(row, labels=True) for row in table.to_pylist()]
    assert digests_of(pa.concat_tables(pieces) if pieces else table) == expected


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.float32(), pa.float64(), pa.bool_()])
def test_digests_do_not_depend_on_the_width_of_numbers(kind: pa.DataType) -> None:
    of = digests_of(pa.table({"inputs.a": pa.array([1, 0], pa.int64())}))
    assert digests_of(pa.table({"inputs.a": pa.array(np.array([1, 0])).cast(kind)})) == of
