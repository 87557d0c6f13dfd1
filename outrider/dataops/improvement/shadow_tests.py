from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from outrider.dataops.state.improvement_tables import ShadowTest
from outrider.dataops.state.tables import table_of

_TEST = table_of(ShadowTest)


@dataclass(frozen=True, slots=True)
class Trial:
    model: str
    version: str
    began_us: int
    champion: str
    """When another version becomes champion, the test ends and a new one begins."""
    after_seq: int
    """Journal block behind which it began."""
    ends_us: int | None
    ends_rows: int | None
    """``ends_us``, ``ends_rows``: time, or number of records, at which it ends; None where it runs
    until the challenger goes."""
    ended_us: int | None
    recommendation: str
    """``promote``, ``keep`` or ``undecided``; empty while it runs."""
    findings: Mapping[str, Any]
    """As of ``shadow_findings.gather``."""

    @property
    def is_running(self) -> bool:
        return self.ended_us is None


def begin(
    connection: Connection,
    *,
    model: str,
    version: str,
    champion: str,
    after_seq: int,
    now_us: int,
    shadow_s: float | None = None,
    shadow_rows: int | None = None,
) -> Trial:
    ends_us = None if shadow_s is None else now_us + int(shadow_s * 1e6)
    test = Trial(model, version, now_us, champion, after_seq, ends_us, shadow_rows, None, "", {})
    connection.execute(insert(_TEST).values(asdict(test)))
    return test


def running(connection: Connection, model: str | None = None) -> list[Trial]:
    query = select(_TEST).where(_TEST.c.ended_us.is_(None)).order_by(_TEST.c.model, _TEST.c.version)
    if model is not None:
        query = query.where(_TEST.c.model == model)
    return [Trial(**row._mapping) for row in connection.execute(query)]


def was_tested(connection: Connection, model: str, version: str) -> bool:
    query = select(_TEST.c.version).where(_TEST.c.model == model, _TEST.c.version == version).limit(1)
    return connection.execute(query).first() is not None


def over(connection: Connection) -> set[tuple[str, str]]:
    """Paused challengers whose test reached its end, as (model, version)."""
    query = select(_TEST.c.model, _TEST.c.version).where(
        _TEST.c.ended_us.is_not(None),
        _TEST.c.ends_us.is_not(None) | _TEST.c.ends_rows.is_not(None),
        _TEST.c.findings["ended_because"].as_string().is_(None),
    )
    return {(row.model, row.version) for row in connection.execute(query)}


def newest(connection: Connection, model: str, version: str | None = None) -> list[Trial]:
    """Newest test of each challenger, running ones first."""
    last = (
        select(_TEST.c.version, func.max(_TEST.c.began_us).label("began_us"))
        .where(_TEST.c.model == model)
        .group_by(_TEST.c.version)
        .subquery()
    )
    is_last = (_TEST.c.version == last.c.version) & (_TEST.c.began_us == last.c.began_us)
    query = (
        select(_TEST).join(last, is_last).where(_TEST.c.model == model)
    )  # findings of older ones stay unread
    if version is not None:
        query = query.where(_TEST.c.version == version)
    found = [Trial(**row._mapping) for row in connection.execute(query)]
    return sorted(found, key=lambda test: (not test.is_running, -test.began_us))


def count_ended(connection: Connection) -> list[tuple[str, str, int]]:
    query = select(_TEST.c.model, _TEST.c.recommendation, func.count()).where(_TEST.c.ended_us.is_not(None))
    rows = connection.execute(query.group_by(_TEST.c.model, _TEST.c.recommendation))
    return [(model, recommendation, count) for model, recommendation, count in rows]


def save(connection: Connection, test: Trial, findings: Mapping[str, Any]) -> None:
    connection.execute(update(_TEST).where(*_key(test)).values(findings=dict(findings)))


def end(
    connection: Connection, test: Trial, *, recommendation: str, findings: Mapping[str, Any], now_us: int
) -> bool:
    done = connection.execute(
        update(_TEST)
        .where(*_key(test), _TEST.c.ended_us.is_(None))
        .values(ended_us=now_us, recommendation=recommendation, findings=dict(findings))
    )
    return done.rowcount > 0


def _key(test: Trial) -> tuple[Any, ...]:
    return (
        _TEST.c.model == test.model,
        _TEST.c.version == test.version,
        _TEST.c.began_us == test.began_us,
    )
