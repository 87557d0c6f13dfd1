"""What an erasure does to each column of ``state.db``."""

from typing import Any, get_args

import pytest
from sqlalchemy import JSON, Column, Engine, Float, Integer, LargeBinary, String, Table

from outrider.dataops.erasure.state_rows import erase_rows_of, name_gone
from outrider.dataops.erasure.target import ErasureTarget, Found
from outrider.dataops.erasure.texts import Quotations
from outrider.dataops.state.columns import ROW_FACTS, Erase, erase_facts
from outrider.dataops.state.database import write
from outrider.dataops.state.layout import METADATA, columns_with

TABLES = METADATA.sorted_tables
COLUMNS = [column for table in TABLES for column in table.c]
SECRET = "Zoe Mueller called"


def facts_of(table: Table) -> set[Erase]:
    return {fact for column in table.c for fact in erase_facts(column)}


def test_every_column_says_what_erasure_does_to_it() -> None:
    silent = [str(column) for column in COLUMNS if not erase_facts(column)]
    assert silent == [], 'write erase="kept", or what erasure does, into the Field of the column'


def test_every_fact_is_one_of_some_column() -> None:
    assert {fact for table in TABLES for fact in facts_of(table)} == {*get_args(Erase)}


def test_content_goes_with_its_row_only_where_rows_go() -> None:
    stay = [
        table.name for table in TABLES if "with_row" in facts_of(table) and not facts_of(table) & {*ROW_FACTS}
    ]
    assert stay == []


def test_names_in_counts_are_dimensions() -> None:
    named = {*columns_with("class", "label_slice", "group")}
    assert [str(column) for column, _ in named if not column.primary_key] == []
    sums = [one for column, _ in named for one in column.table.c if not one.primary_key]
    assert {type(one.type) for one in sums} <= {Integer, Float}


@pytest.mark.parametrize("column", [column for column, _ in columns_with("quotes")], ids=str)
def test_column_that_quotes_loses_the_quotation(engine: Engine, column: Column[Any]) -> None:
    row = {one.name: value_of(one) for one in column.table.c}
    quote = {"said": SECRET} if isinstance(column.type, JSON) else SECRET
    with write(engine) as connection:
        connection.execute(column.table.insert().values(row | {column.name: quote}))
        name_gone(connection, ErasureTarget(records=("none",)), Found())
        counts = erase_rows_of(connection, Found(), Quotations([], [SECRET]))
        assert counts["quotations"] == 1
        assert SECRET not in str(connection.execute(column.table.select()).all())


def value_of(column: Column[Any]) -> object:
    if isinstance(column.type, JSON):
        return {}
    if isinstance(column.type, LargeBinary):
        return b""
    return "" if isinstance(column.type, String) else 0
