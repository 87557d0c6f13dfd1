"""Labels that name an entity and a time.

Each belongs to the entity's latest record at or before that time. Which record that is does not depend on the
order in which records and labels came: a label waits for its record, and goes over to a later one that was
late itself.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

_LATEST = (
    "SELECT r.id FROM record r WHERE r.model = label.model AND r.entity = label.entity"
    " AND r.ts_us <= label.ts_us ORDER BY r.ts_us DESC, r.seq DESC, r.row DESC LIMIT 1"
)
_UPDATE = (
    f"UPDATE label SET record_id = coalesce(({_LATEST}), '')"
    " WHERE model = ? AND entity = ? AND entity IS NOT NULL AND ts_us >= ?"
)
Seen = tuple[str, int]
"""An entity, and a time of it in µs."""


def concerned(
    connection: Connection, model: str, *, records: Iterable[Seen], labels: Iterable[Seen]
) -> dict[str, int]:
    """Entities whose labels new rows concern, with the time of each.

    Parameters
    ----------
    records
        Entity and ``ts`` of the new records that have one.
    labels
        Entity and time of the new labels that name one.
    """
    since: dict[str, int] = {}
    for entity, ts_us in labels:
        since[entity] = min(ts_us, since.get(entity, ts_us))
    fresh: dict[str, int] = {}
    for entity, ts_us in records:
        fresh[entity] = min(ts_us, fresh.get(entity, ts_us))
    for entity in _labelled(connection, model, list(fresh)):
        since[entity] = min(fresh[entity], since.get(entity, fresh[entity]))
    return since


def resolve(connection: Connection, model: str, since: Mapping[str, int]) -> None:
    """Resolve labels to records, behind rows just written in this transaction.

    Parameters
    ----------
    since
        As from :func:`concerned`, before these rows: a new record concerns no label of an earlier time.
    """
    if since:
        connection.exec_driver_sql(_UPDATE, [(model, entity, ts_us) for entity, ts_us in since.items()])


def latest_records(connection: Connection, model: str, labels: Iterable[Seen]) -> list[str]:
    """Registered records to which labels of entities would belong now."""
    query = (
        "SELECT id FROM record WHERE model = ? AND entity = ? AND ts_us <= ?"
        " ORDER BY ts_us DESC, seq DESC, row DESC LIMIT 1"
    )
    found = (connection.exec_driver_sql(query, (model, *one)).scalar() for one in labels)
    return [record for record in found if record is not None]


def _labelled(connection: Connection, model: str, entities: Sequence[str]) -> Iterable[str]:
    """Entities with labels among these; most models have none, which one query tells."""
    some = "SELECT 1 FROM label WHERE model = ? AND entity IS NOT NULL LIMIT 1"
    if not entities or connection.exec_driver_sql(some, (model,)).first() is None:
        return
    query = (
        "SELECT DISTINCT entity FROM label WHERE model = ? AND entity IS NOT NULL"
        " AND entity IN (SELECT value FROM json_each(?))"
    )
    yield from connection.exec_driver_sql(query, (model, json.dumps(entities))).scalars().all()
