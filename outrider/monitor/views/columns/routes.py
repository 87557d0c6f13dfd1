"""API of learned columns.

List them, and drop unwanted ones.

Beside the intake itself, whose columns they are; so without SQL, which would delay its first record.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from outrider.dataops.journal.journal import Kind
from outrider.errors import NotFound, SchemaMismatch
from outrider.monitor.http.routes import change, view
from outrider.monitor.intake.column_types import describe
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import GroupCommit
from outrider.monitor.intake.list_columns import width
from outrider.monitor.intake.schema_book import SchemaBook, is_rest

_KINDS: tuple[Kind, ...] = ("records", "labels")


class ForgetWanted(BaseModel):
    """Columns that are to be learned anew."""

    model_config = ConfigDict(extra="forbid")

    model: str
    names: list[str] = Field(min_length=1, max_length=1000)


class LearnedColumn(TypedDict):
    """Column with its type and the number of deciding values."""

    name: str
    type: str
    state: Literal["declared", "settled", "open"]
    values: int | None


class RareField(TypedDict):
    """A field without a column of its own."""

    name: str
    values: int


class ColumnList(TypedDict):
    """Columns of a model, its rare fields, and its limit."""

    model: str
    columns: list[LearnedColumn]
    rare: list[RareField]
    used: int
    limit: int


class Forgotten(TypedDict):
    """Columns that the next value learns anew."""

    model: str
    forgotten: list[str]


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Parts that records are taken with, and the bound of ``[limits]``."""

    book: SchemaBook
    decoder: Decoder
    writer: GroupCommit
    max_columns: int


@view("/v1/columns", scope="read", tag="columns")
def columns(source: ColumnSource, model: str) -> ColumnList:
    """Columns of a model, and the fields that have none of their own."""
    book = source.book
    _check(book, model)
    facts = [one for kind in _KINDS for one in book.facts(kind, model)]
    rare = {name: count for kind in _KINDS for name, count in book.rare(kind, model).items()}
    used = sum(width(one.type) for one in book.facts("records", model) if not is_rest(one.name))
    return {
        "model": model,
        "columns": [
            {"name": one.name, "type": describe(one.type), "state": one.state, "values": one.values}
            for one in facts
        ],
        "rare": [
            {"name": name, "values": count}
            for name, count in sorted(rare.items(), key=lambda item: (-item[1], item[0]))
        ],
        "used": used,
        "limit": source.max_columns,
    }


@change("POST /v1/columns/forget", scope="promote", models="body", tag="columns")
def forget(source: ColumnSource, body: ForgetWanted) -> Forgotten:
    """Drop learned columns; the next value of each learns it anew. What is stored stays as it is."""
    book = source.book
    _check(book, body.model)
    known = {one.name: one for kind in _KINDS for one in book.facts(kind, body.model)}
    for name in body.names:
        if name not in known:
            raise NotFound(f"model {body.model} has no column {name!r}; `outrider columns list` shows them")
        if known[name].state == "declared" and not is_rest(name):
            raise SchemaMismatch(name, f"is declared in [models.{body.model}.columns]: change it there")
    for name in body.names:
        source.decoder.forget("labels" if name.startswith("label.") else "records", body.model, name)
    asyncio.run(source.writer.submit([], 0))  # durable before it is said
    return {"model": body.model, "forgotten": body.names}


def _check(book: SchemaBook, model: str) -> None:
    if model not in book.models:
        raise NotFound(
            f"no model {model!r} in the configuration; there are {', '.join(book.models) or 'none'}"
        )
