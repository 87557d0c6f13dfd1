"""Rows inserted in blocks against rows inserted one by one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, select
from sqlmodel import SQLModel

from outrider.dataops.state.improvement_tables import DatasetRow
from outrider.dataops.state.rows import add_to_rows, insert_rows, update_rows
from outrider.dataops.state.tables import Cursor, columns_of, table_of

SHARED = st.none() | st.text(max_size=2) | st.integers(0, 1) | st.booleans()


@st.composite
def rows_of(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows of a dataset whose columns are shared by all, by some or by none."""
    count = draw(st.integers(1, 130))
    columns: dict[str, list[Any]] = {}
    for name in columns_of(DatasetRow):
        few = draw(st.lists(SHARED, min_size=1, max_size=2))
        columns[name] = [few[row % len(few)] for row in range(count)]
    columns |= {"dataset": ["d"] * count, "file": [1] * count, "number": [1] * count}
    columns |= {"position": list(range(count)), "part": ["train"] * count, "record_id": ["id"] * count}
    columns |= {"digest": [bytes([row]) for row in range(count)]}
    return list(zip(*columns.values(), strict=True))


@given(rows=rows_of())
def test_rows_in_blocks_are_those_inserted_one_by_one(rows: list[tuple[Any, ...]]) -> None:
    engine = create_engine("sqlite://")
    table = table_of(DatasetRow)
    SQLModel.metadata.create_all(engine, tables=[table])
    found = []
    for parts in ([rows], [[row] for row in rows]):
        with engine.begin() as connection:
            for part in parts:
                insert_rows(connection, DatasetRow, part)
            found.append(connection.exec_driver_sql(f"SELECT * FROM {table.name} ORDER BY position").all())
            connection.execute(table.delete())
    assert list(map(repr, found[0])) == list(map(repr, found[1]))  # 1, 1.0 and true are equal, but not alike
    engine.dispose()


def test_a_block_adds_to_a_row_as_often_as_it_names_it() -> None:
    engine = create_engine("sqlite://")
    table = table_of(Cursor)
    SQLModel.metadata.create_all(engine, tables=[table])
    with engine.begin() as connection:
        add_to_rows(connection, Cursor, [("m", str(row % 3), row) for row in range(120)])
        found = {slot: seq for slot, seq in connection.execute(select(table.c.slot, table.c.seq))}  # noqa: C416 - rows are no pairs to mypy
        assert found == {str(slot): sum(range(slot, 120, 3)) for slot in range(3)}
        update_rows(
            connection, Cursor, [(row, "m", str(row)) for row in range(2)], "seq", where=("model", "slot")
        )
        found = {slot: seq for slot, seq in connection.execute(select(table.c.slot, table.c.seq))}  # noqa: C416 - rows are no pairs to mypy
        assert found == {"0": 0, "1": 1, "2": sum(range(2, 120, 3))}
    engine.dispose()
