"""Registered assertions and live tests by revision, with their suspensions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, select

from outrider.assertions import Group, Window
from outrider.assertions.batch.columns_read import columns_read, is_of_sender
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import AssertionRow, table_of

from .quality import FOREVER_US

_ASSERTION = table_of(AssertionRow)


class OfferedRevision(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def level(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def owner(self) -> str: ...

    @property
    def window(self) -> Window | Group | None: ...

    @property
    def definition(self) -> str:
        """JSON of a live test; empty for an assertion."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Suspended assertion; ``reason`` is empty where strikes suspended."""

    model: str
    assertion: str
    until_us: int
    reason: str


def register_offered(
    connection: Connection, model: str, offered: Sequence[OfferedRevision], *, first_seq: int, now_us: int
) -> None:
    """Store the host's manifest.

    New revisions begin unsuspended, missing ones become inactive, and a returning one has judged nothing
    before ``first_seq``.
    """
    for each in offered:
        own = _ASSERTION.c.name == each.name, _ASSERTION.c.revision == each.revision
        resting = _ASSERTION.c.model == model, ~_ASSERTION.c.active
        connection.execute(_ASSERTION.update().where(*own, *resting).values(first_seq=first_seq))
    connection.execute(_ASSERTION.update().where(_ASSERTION.c.model == model).values(active=False))
    add_revisions(connection, model, offered, is_active=True, first_seq=first_seq, now_us=now_us)
    for each in offered:
        connection.execute(
            _ASSERTION.update()
            .where(
                _ASSERTION.c.model == model,
                _ASSERTION.c.name == each.name,
                _ASSERTION.c.revision == each.revision,
            )
            .values(
                active=True,
                definition=each.definition,
                window_by=_by(each),
                level=each.level,
                description=each.description,  # other words are no other revision
                owner=each.owner,
            )
        )


def add_revisions(
    connection: Connection,
    model: str,
    offered: Sequence[OfferedRevision],
    *,
    is_active: bool,
    first_seq: int = 0,
    now_us: int,
) -> None:
    rows = [
        (
            model, o.name, o.revision, o.kind, o.level, o.description, o.owner, is_active, 0, "", now_us,
            first_seq, o.definition, _by(o), 0, "[]", False,
        )
        for o in offered
    ]  # fmt: skip
    insert_rows(connection, AssertionRow, rows)


def note_judged(connection: Connection, model: str, names: Sequence[str], *, at_us: int) -> None:
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.name.in_(names)
    connection.execute(_ASSERTION.update().where(*own).values(judged_us=at_us))


def note_reads(connection: Connection, model: str, reads: Mapping[str, Sequence[str]]) -> None:
    own = _ASSERTION.c.model == model, _ASSERTION.c.active
    known = select(_ASSERTION.c.name, _ASSERTION.c.reads).where(*own, _ASSERTION.c.name.in_(reads))
    for name, before in connection.execute(known).all():
        columns = columns_read([*json.loads(before), *reads[name]])
        values = {"reads": json.dumps(columns), "of_sender": is_of_sender(columns)}
        connection.execute(_ASSERTION.update().where(*own, _ASSERTION.c.name == name).values(values))


def columns_of_sender(connection: Connection, model: str, names: Sequence[str]) -> list[str]:
    """Columns of those named assertions that read only inputs and attributes."""
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.of_sender
    query = select(_ASSERTION.c.reads).where(*own, _ASSERTION.c.name.in_(names))
    return columns_read(column for reads in connection.scalars(query) for column in json.loads(reads))


def columns_of(connection: Connection, model: str, name: str) -> list[str]:
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.name == name
    reads: str | None = connection.scalar(select(_ASSERTION.c.reads).where(*own))
    return [] if reads is None else list(json.loads(reads))


def kinds_of_active(connection: Connection, model: str) -> dict[str, str]:
    query = select(_ASSERTION.c.name, _ASSERTION.c.kind).where(
        _ASSERTION.c.model == model, _ASSERTION.c.active
    )
    return {row.name: row.kind for row in connection.execute(query)}


def _by(offered: OfferedRevision) -> str:
    return "" if offered.window is None else offered.window.by


def revisions_by_name(connection: Connection, model: str) -> dict[str, list[str]]:
    query = (
        select(_ASSERTION.c.name, _ASSERTION.c.revision)
        .where(_ASSERTION.c.model == model, _ASSERTION.c.kind == "assertion")
        .order_by(_ASSERTION.c.active, _ASSERTION.c.first_seen_us)
    )
    found: dict[str, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.name, []).append(row.revision)
    return found


def suspensions(connection: Connection, model: str | None = None) -> list[Suspension]:
    """Suspensions of active assertions, expired ones included."""
    query = select(
        _ASSERTION.c.model, _ASSERTION.c.name, _ASSERTION.c.suspended_until_us, _ASSERTION.c.suspension
    ).where(_ASSERTION.c.active, _ASSERTION.c.suspended_until_us > 0)
    if model is not None:
        query = query.where(_ASSERTION.c.model == model)
    return [Suspension(*row) for row in connection.execute(query)]


def shift_suspensions(connection: Connection, model: str, *, by_us: int) -> None:
    until = _ASSERTION.c.suspended_until_us
    ends = (_ASSERTION.c.model == model) & (until > 0) & (until < FOREVER_US)
    connection.execute(_ASSERTION.update().where(ends).values(suspended_until_us=until + by_us))
