"""Alerts of Alertmanager as stored, and the signed messages that brought them.

An alert is one by fingerprint and start, however often it is posted. Both tables are bounded.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update
from sqlalchemy.dialects.sqlite import insert

from outrider.dataops.state.improvement_tables import AlertRow, TakenMessage
from outrider.dataops.state.tables import table_of

from .decision import DAY_US
from .signals import FiringAlert

MOST_ALERTS = 200
MESSAGES_US = 900_000_000
_ALERT, _MESSAGE = table_of(AlertRow), table_of(TakenMessage)
_KEY = ("model", "fingerprint", "starts_us")


@dataclass(frozen=True, slots=True)
class AlertKey:
    model: str
    fingerprint: str
    starts_us: int

    @property
    def row(self) -> ColumnElement[bool]:
        return and_(
            _ALERT.c.model == self.model,
            _ALERT.c.fingerprint == self.fingerprint,
            _ALERT.c.starts_us == self.starts_us,
        )


def note_firing(connection: Connection, key: AlertKey, *, name: str, now_us: int) -> None:
    """Note that an alert fires; a resolved one stays resolved."""
    query = insert(_ALERT).values(asdict(key) | {"name": name, "received_us": now_us})
    connection.execute(query.on_conflict_do_update(index_elements=_KEY, set_={"received_us": now_us}))
    own = _ALERT.c.model == key.model
    newest = select(_ALERT.c.received_us).where(own).order_by(_ALERT.c.received_us.desc())
    oldest = newest.offset(MOST_ALERTS).limit(1).scalar_subquery()
    connection.execute(delete(_ALERT).where(own, _ALERT.c.received_us <= oldest, ~key.row))


def note_resolved(connection: Connection, key: AlertKey, *, now_us: int) -> None:
    connection.execute(
        update(_ALERT).where(key.row, _ALERT.c.resolved_us.is_(None)).values(resolved_us=now_us)
    )


def firing_alerts(
    connection: Connection, model: str, names: Sequence[str], *, now_us: int
) -> list[FiringAlert]:
    query = select(_ALERT.c.fingerprint, _ALERT.c.starts_us, _ALERT.c.name).where(
        _ALERT.c.model == model,
        _ALERT.c.name.in_(names),
        _ALERT.c.resolved_us.is_(None),
        _ALERT.c.received_us > now_us - DAY_US,
    )
    rows = connection.execute(query.order_by(_ALERT.c.received_us, _ALERT.c.fingerprint))
    return [FiringAlert(f"{row.fingerprint}@{row.starts_us}", row.name) for row in rows]


def take_message(connection: Connection, message: str, *, now_us: int) -> bool:
    connection.execute(delete(_MESSAGE).where(_MESSAGE.c.at_us < now_us - MESSAGES_US))
    query = insert(_MESSAGE).values(id=message, at_us=now_us).on_conflict_do_nothing()
    return connection.execute(query).rowcount > 0
