"""Rows of objects against the whole table."""

from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.dataops.datasets import stored_rows
from outrider.dataops.datasets.stored_rows import Run, VersionRows, rows_at


def packed(rows: int, group_rows: int) -> bytes:
    """An object of that many rows, in groups of so many."""
    buffer = BytesIO()
    table = pa.table({"id": [f"r{row}" for row in range(rows)], "inputs.x": range(rows)})
    pq.write_table(table, buffer, row_group_size=group_rows)
    return buffer.getvalue()


@given(
    rows=st.integers(1, 60),
    group_rows=st.integers(1, 25),
    cut=st.integers(0, 60),
    draws=st.data(),
)
def test_rows_at_positions_are_those_of_the_whole_table(
    rows: int, group_rows: int, cut: int, draws: st.DataObject
) -> None:
    cut = min(cut, rows - 1)
    # the file's second run lies before its first in the object
    runs = [Run(1, 0, cut, rows - cut), Run(1, rows - cut, 0, cut)]
    positions = draws.draw(st.lists(st.integers(0, rows - 1), min_size=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "_TAKEN_ROWS", 7)
        found = rows_at(packed(rows, group_rows), runs, [(1, at) for at in positions], ["inputs.x"])
    assert found.column_names == ["inputs.x"]
    assert found.column(0).to_pylist() == [(at + cut) % rows for at in positions]


@given(rows=st.integers(1, 60), draws=st.data())
def test_rows_that_are_gone_are_left_out(rows: int, draws: st.DataObject) -> None:
    gone = sorted(draws.draw(st.sets(st.integers(0, rows - 1))))
    data = packed(rows, 25)
    stored = VersionRows("", [Run(1, 0, 0, rows)], {1: np.array(gone, np.int64)})
    found = stored.read(data, pq.read_schema(pa.BufferReader(data)))
    assert found.column("inputs.x").to_pylist() == [row for row in range(rows) if row not in gone]
