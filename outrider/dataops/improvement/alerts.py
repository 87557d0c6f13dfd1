"""Alerts of Alertmanager as stored, and the signed messages that brought them.

An alert is one by fingerprint and start, however often it is posted. Both tables are bounded.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from outrider.dataops.state.improvement_tables import AlertRow, TakenMessage
from outrider.dataops.state.tables import table_of

from .trigger_signals import FiringAlert
from .triggers import DAY_US

MOST_ALERTS = 200
"""Of each model; the newest stay."""
MESSAGES_US = 900_000_000
"""How long ids of messages are kept: their signatures are good for five minutes before and behind now."""
_ALERT, _MESSAGE = table_of(AlertRow), table_of(TakenMessage)
_KEY = ("model", "fingerprint", "starts_us")


def note_firing(
    connection: Connection, model: str, *, fingerprint: str, starts_us: int, name: str, now_us: int
) -> bool:
    """Note that an alert fires; False for one that is known and still fires."""
    key = _ALERT.c.model == model, _ALERT.c.fingerprint == fingerprint, _ALERT.c.starts_us == starts_us
    known = connection.execute(select(_ALERT.c.resolved_us).where(*key)).first()
    values = {"model": model, "fingerprint": fingerprint, "starts_us": starts_us, "name": name}
    query = insert(_ALERT).values(values | {"received_us": now_us})
    connection.execute(query.on_conflict_do_update(index_elements=_KEY, set_={"received_us": now_us}))
    if known is None:
        _prune(connection, model)
    return known is None


def note_resolved(
    connection: Connection, model: str, *, fingerprint: str, starts_us: int, now_us: int
) -> None:
    """Note that an alert is over."""
    key = _ALERT.c.model == model, _ALERT.c.fingerprint == fingerprint, _ALERT.c.starts_us == starts_us
    connection.execute(update(_ALERT).where(*key, _ALERT.c.resolved_us.is_(None)).values(resolved_us=now_us))


def firing_alerts(
    connection: Connection, model: str, names: Sequence[str], *, now_us: int
) -> list[FiringAlert]:
    """Alerts of these names that are not resolved, and were posted within a day, oldest first."""
    query = select(_ALERT.c.fingerprint, _ALERT.c.starts_us, _ALERT.c.name).where(
        _ALERT.c.model == model,
        _ALERT.c.name.in_(names),
        _ALERT.c.resolved_us.is_(None),
        _ALERT.c.received_us > now_us - DAY_US,
    )
    rows = connection.execute(query.order_by(_ALERT.c.received_us, _ALERT.c.fingerprint))
    return [FiringAlert(f"{row.fingerprint}@{row.starts_us}", row.name) for row in rows]


def take_message(connection: Connection, message: str, *, now_us: int) -> bool:
    """Note a signed message; False for one that was taken before."""
    connection.execute(delete(_MESSAGE).where(_MESSAGE.c.at_us < now_us - MESSAGES_US))
    query = insert(_MESSAGE).values(id=message, at_us=now_us).on_conflict_do_nothing()
    return connection.execute(query).rowcount > 0


def _prune(connection: Connection, model: str) -> None:
    own = _ALERT.c.model == model
    newest = select(_ALERT.c.received_us).where(own).order_by(_ALERT.c.received_us.desc())
    oldest = newest.offset(MOST_ALERTS).limit(1).scalar_subquery()
    count = connection.scalar(select(func.count()).where(own))
    if count is not None and count > MOST_ALERTS:
        connection.execute(delete(_ALERT).where(own, _ALERT.c.received_us <= oldest))
