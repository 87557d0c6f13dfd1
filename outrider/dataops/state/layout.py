"""All tables of ``state.db``."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column
from sqlmodel import SQLModel

from . import (  # noqa: F401 - they fill the metadata
    access_tables,
    erasure_tables,
    improvement_tables,
    series_tables,
    tables,
)
from .columns import Erase, erase_facts

METADATA = SQLModel.metadata


def columns_with(*facts: Erase) -> Iterator[tuple[Column[Any], Erase]]:
    """Columns with one of some facts, and this fact."""
    for table in METADATA.sorted_tables:
        for column in table.c:
            yield from ((column, fact) for fact in erase_facts(column) if fact in facts)
