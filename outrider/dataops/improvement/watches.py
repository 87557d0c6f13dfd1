"""Watches over new champions, beside the former ones.

The replaced champion goes on answering as ``former``. Only a promotion begins a watch, so a rollback never
rolls forward by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.slot_names import OTHER_SLOTS
from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import FORMER, Model
from outrider.dataops.state.improvement_tables import ModelVersion, Watch
from outrider.dataops.state.tables import Answer, Cursor, Record, WindowCheckpoint, table_of

_WATCH, _VERSION = table_of(Watch), table_of(ModelVersion)
BY_WATCH = "watch"


@dataclass(frozen=True, slots=True)
class WatchRow:
    model: str
    version: str
    began_us: int
    former: str
    after_seq: int
    """Records behind this journal block are compared."""
    until_seq: int | None
    """Last block that the former champion answers; None while it does."""
    records: int
    """Records that both have answered."""
    proposed_us: int | None
    ended_us: int | None
    outcome: str
    """``kept``, ``proposed``, ``rolled_back`` or ``superseded``; empty while it runs."""
    findings: Mapping[str, Any]

    @property
    def is_running(self) -> bool:
        return self.ended_us is None


def follow_promotion(
    connection: Connection, before: Model | None, promoted: Model, *, records: int, now_us: int
) -> None:
    """End a model's watch and begin the next, in the promotion's transaction.

    A return to the version watched as ``former`` is a rollback and begins none; nor does a version of
    another kind of cursor. ``records`` 0 begins none.
    """
    if before is None or before.version == promoted.version:
        return
    model, version = promoted.model, promoted.version
    known = running(connection, model)
    for watch in known:
        close(connection, watch, champion=version, now_us=now_us)
    is_return = any(watch.former == version for watch in known)
    if not records or is_return or before.version.startswith(OTHER_SLOTS):
        return
    for table in (table_of(Cursor), table_of(WindowCheckpoint)):
        # Of its time as a challenger: it goes on where the champion is, not where it was then.
        connection.execute(delete(table).where(table.c.model == model, table.c.slot == before.version))
    note = f"beside version {version} while that is watched"
    models.set_status(connection, model, before.version, FORMER, now_us=now_us, note=note)
    after_seq = cursor(connection, model, "champion")
    values = {"model": model, "version": version, "began_us": now_us, "former": before.version}
    values |= {"after_seq": after_seq, "records": 0, "outcome": "", "findings": {}}
    connection.execute(insert(_WATCH).values(values))


def close(connection: Connection, watch: WatchRow, *, champion: str | None, now_us: int) -> None:
    back = champion == watch.former
    why = f"version {champion} is champion now" if champion else "there is no champion any more"
    findings = dict(watch.findings) | {"ended_because": why}
    end(connection, watch, "rolled_back" if back else "superseded", findings, now_us=now_us)


def end(
    connection: Connection, watch: WatchRow, outcome: str, findings: Mapping[str, Any], *, now_us: int
) -> bool:
    done = connection.execute(
        update(_WATCH)
        .where(*_key(watch), _WATCH.c.ended_us.is_(None))
        .values(ended_us=now_us, outcome=outcome, findings=dict(findings))
    )
    if done.rowcount:
        retire(connection, watch, now_us=now_us)
    return done.rowcount > 0


def retire(connection: Connection, watch: WatchRow, *, now_us: int, until_seq: int | None = None) -> None:
    """Retire the former champion, behind block ``until_seq`` where the watch goes on for labels."""
    if until_seq is not None:
        still = update(_WATCH).where(*_key(watch), _WATCH.c.ended_us.is_(None)).values(until_seq=until_seq)
        if not connection.execute(still).rowcount:
            return
    former = _VERSION.c.model == watch.model, _VERSION.c.version == watch.former, _VERSION.c.status == FORMER
    note = f"version {watch.version} took over"
    connection.execute(update(_VERSION).where(*former).values(status="retired", changed_us=now_us, note=note))


def save(connection: Connection, watch: WatchRow, findings: Mapping[str, Any], *, records: int) -> bool:
    """Save the findings so far; False where the watch has ended since."""
    values = {"findings": dict(findings), "records": records}
    still = update(_WATCH).where(*_key(watch), _WATCH.c.ended_us.is_(None)).values(values)
    return connection.execute(still).rowcount > 0


def propose(connection: Connection, watch: WatchRow, *, now_us: int) -> bool:
    """Note the proposal of a rollback; False where already noted."""
    open_ = _WATCH.c.proposed_us.is_(None), _WATCH.c.ended_us.is_(None)
    return (
        connection.execute(update(_WATCH).where(*_key(watch), *open_).values(proposed_us=now_us)).rowcount > 0
    )


def running(connection: Connection, model: str | None = None) -> list[WatchRow]:
    query = select(_WATCH).where(_WATCH.c.ended_us.is_(None)).order_by(_WATCH.c.model, _WATCH.c.began_us)
    if model is not None:
        query = query.where(_WATCH.c.model == model)
    return [WatchRow(**row._mapping) for row in connection.execute(query)]


def newest(connection: Connection, model: str, *, limit: int = 20) -> list[WatchRow]:
    query = select(_WATCH).where(_WATCH.c.model == model)
    rows = connection.execute(query.order_by(_WATCH.c.began_us.desc()).limit(limit))
    return [WatchRow(**row._mapping) for row in rows]


def was_rolled_back(connection: Connection, model: str, version: str) -> bool:
    """True for a version that a watch has rolled back: nothing promotes it again by itself."""
    query = select(_WATCH.c.findings).where(
        _WATCH.c.model == model, _WATCH.c.version == version, _WATCH.c.outcome == "rolled_back"
    )
    return any(findings.get("by") == BY_WATCH for findings in connection.scalars(query))


def count_ended(connection: Connection) -> list[tuple[str, str, int]]:
    query = select(_WATCH.c.model, _WATCH.c.outcome, func.count()).where(_WATCH.c.ended_us.is_not(None))
    rows = connection.execute(query.group_by(_WATCH.c.model, _WATCH.c.outcome))
    return [(model, outcome, count) for model, outcome, count in rows]


def answered_records(connection: Connection, watch: WatchRow, *, until: int) -> int:
    """Records answered by the former champion, up to ``until``."""
    record, answer = table_of(Record), table_of(Answer)
    blocks = select(answer.c.seq).where(
        answer.c.model == watch.model,
        answer.c.version == watch.former,
        answer.c.seq > watch.after_seq,
        answer.c.seq <= until,
    )
    query = select(func.count()).where(record.c.model == watch.model, record.c.seq.in_(blocks))
    return int(connection.scalar(query) or 0)


def _key(watch: WatchRow) -> tuple[Any, ...]:
    return (
        _WATCH.c.model == watch.model,
        _WATCH.c.version == watch.version,
        _WATCH.c.began_us == watch.began_us,
    )
