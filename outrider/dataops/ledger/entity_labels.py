"""Labels that name an entity and a time.

Each belongs to the entity's latest record at or before that time, in whatever order both came: a label waits
for its record, and moves to a later one.
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


def concerned(
    connection: Connection, model: str, *, records: Iterable[Seen], labels: Iterable[Seen]
) -> dict[str, int]:
    """Entities whose labels new rows concern, with the time of each."""
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
    """Resolve labels to records, after this transaction's rows; ``since`` is from :func:`concerned`."""
    if since:
        connection.exec_driver_sql(_UPDATE, [(model, entity, ts_us) for entity, ts_us in since.items()])


def latest_records(connection: Connection, model: str, labels: Iterable[Seen]) -> list[str]:
    query = (
        "SELECT id FROM record WHERE model = ? AND entity = ? AND ts_us <= ?"
        " ORDER BY ts_us DESC, seq DESC, row DESC LIMIT 1"
    )
    found = (connection.exec_driver_sql(query, (model, *one)).scalar() for one in labels)
    return [record for record in found if record is not None]


def _labelled(connection: Connection, model: str, entities: Sequence[str]) -> Iterable[str]:
    """Entities with labels among these; one query says that there are none."""
    some = "SELECT 1 FROM label WHERE model = ? AND entity IS NOT NULL LIMIT 1"
    if not entities or connection.exec_driver_sql(some, (model,)).first() is None:
        return
    query = (
        "SELECT DISTINCT entity FROM label WHERE model = ? AND entity IS NOT NULL"
        " AND entity IN (SELECT value FROM json_each(?))"
    )
    yield from connection.exec_driver_sql(query, (model, json.dumps(entities))).scalars().all()
