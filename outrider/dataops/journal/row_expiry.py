"""Expiry of old records' rows in ``state.db``, in short transactions.

A hash of each id stays, to detect repeats and late labels. A record stays if a dataset, quarantine or label
request names it, if it was flagged and labelled, if its flag was reviewed, if an open incident began with it,
or if it is a member of such a flag or of a younger one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from outrider.dataops.state.folder_secret import HASH_BYTES, keyed_hash, secret_beside

T = TypeVar("T")
HOUR_US = 3_600_000_000
DAY_US = 86_400_000_000
_CHUNK = 500
_KEPT = (
    "SELECT record_id FROM label_request WHERE model = :model AND record_id IN (SELECT id FROM expiring)",
    "SELECT record_id FROM dataset_row WHERE record_id IN (SELECT id FROM expiring)",
    "SELECT record_id FROM quarantine WHERE record_id IN (SELECT id FROM expiring) AND state != 'dropped'",
    "SELECT l.record_id FROM label l WHERE l.model = :model AND l.record_id IN (SELECT id FROM expiring)"
    " AND EXISTS (SELECT 1 FROM flag f WHERE f.model = l.model AND f.record_id = l.record_id)",
    "SELECT f.record_id FROM flag f JOIN review v ON v.flag_id = f.id"
    " WHERE f.model = :model AND f.record_id IN (SELECT id FROM expiring)",
    "SELECT first_record FROM incident"
    " WHERE model = :model AND status != 'resolved' AND first_record IN (SELECT id FROM expiring)",
)
_MEMBERS = (
    "SELECT m.record_id AS member, f.record_id AS flagged FROM flag_record m JOIN flag f ON f.id = m.flag_id"
    " WHERE m.model = :model AND m.record_id IN (SELECT id FROM expiring)"
)
_GONE = (
    "DELETE FROM flag_record WHERE flag_id IN"
    " (SELECT id FROM flag WHERE model = :model AND record_id IN (SELECT id FROM expiring))",
    "DELETE FROM flag_record WHERE model = :model AND record_id IN (SELECT id FROM expiring)",
    "DELETE FROM flag WHERE model = :model AND record_id IN (SELECT id FROM expiring)",
    "DELETE FROM weak_label WHERE model = :model AND record_id IN (SELECT id FROM expiring)",
    "DELETE FROM label WHERE model = :model AND record_id IN (SELECT id FROM expiring)",
    "DELETE FROM live_answer WHERE model = :model AND record_id IN (SELECT id FROM expiring)"
    " AND test IN (SELECT name FROM assertion WHERE model = :model AND kind = 'live_test')",
    "DELETE FROM record WHERE model = :model AND id IN (SELECT id FROM expiring)",
)
_LOOSE = (
    "DELETE FROM dead_letter WHERE rowid IN"
    " (SELECT rowid FROM dead_letter WHERE model = :model AND seq <= :until LIMIT :most)",
    "DELETE FROM strike WHERE id IN"
    " (SELECT id FROM strike WHERE model = :model AND seq <= :until LIMIT :most)",
    "DELETE FROM label WHERE rowid IN (SELECT l.rowid FROM label l WHERE l.model = :model AND l.seq <= :until"
    " AND NOT EXISTS (SELECT 1 FROM record r WHERE r.model = l.model AND r.id = l.record_id) LIMIT :most)",
)


class RowPlace(NamedTuple):
    seq: int
    row: int


START = RowPlace(0, -1)


@dataclass(frozen=True, slots=True)
class RowSlice:
    last: RowPlace
    gone: int


def id_hash(secret: bytes, model: str, record_id: str) -> bytes:
    """Keyed by the data folder's secret, so that ids cannot be guessed."""
    name = f"{model}\0{record_id}".encode("utf-8", "surrogatepass")
    return keyed_hash(secret, blake2b(name, digest_size=HASH_BYTES).digest())


def note_ages(connection: Connection, model: str, blocks: Iterable[tuple[int, int]]) -> None:
    """Receive times of new blocks, in order. The last of each hour is kept."""
    last = {received_us // HOUR_US: (seq, received_us) for seq, received_us in blocks}
    for hour, (seq, received_us) in last.items():
        same = "DELETE FROM block_age WHERE model = ? AND received_us >= ? AND received_us < ?"
        connection.exec_driver_sql(same, (model, hour * HOUR_US, (hour + 1) * HOUR_US))
        connection.exec_driver_sql(
            "INSERT OR REPLACE INTO block_age VALUES (?, ?, ?)", (model, seq, received_us)
        )


def old_rows(connection: Connection, model: str, is_old: Callable[[int, int], bool]) -> int:
    """Last block whose rows may expire. 0 during jobs and for running shadow tests."""
    given = {"model": model}
    busy = "SELECT 1 FROM job WHERE model = :model AND status IN ('queued', 'running', 'waiting') LIMIT 1"
    if connection.exec_driver_sql(busy, given).first() is not None:
        return 0
    marks = connection.exec_driver_sql("SELECT seq, received_us FROM block_age WHERE model = :model", given)
    until = max((seq for seq, received_us in marks if is_old(seq, received_us)), default=0)
    tests = "SELECT min(after_seq) FROM shadow_test WHERE model = :model AND ended_us IS NULL"
    running = connection.exec_driver_sql(tests, given).scalar()
    return until if running is None else min(until, int(running))


def expire_rows(
    connection: Connection, model: str, *, after: RowPlace, until: int, limit: int, now_us: int
) -> RowSlice | None:
    """Expire the next ``limit`` records; None after the last."""
    query = (
        "SELECT id, seq, row FROM record WHERE model = :model AND seq >= :seq AND seq <= :until"
        " AND (seq, row) > (:seq, :row) ORDER BY seq, row LIMIT :limit"
    )
    given = {"model": model, "until": until, "limit": limit} | after._asdict()
    rows = connection.exec_driver_sql(query, given).all()
    if not rows:
        return None
    # What stays is no sample of the traffic: as evidence of both versions the block is gone as a whole.
    connection.exec_driver_sql("DELETE FROM judged_block WHERE model = ? AND seq <= ?", (model, rows[-1].seq))
    gone = _gone(connection, model, [row.id for row in rows])
    _choose(connection, gone)
    for statement in _GONE:
        connection.exec_driver_sql(statement, given)
    if gone:
        secret = secret_beside(connection)
        hashes = [(id_hash(secret, model, id_), now_us // DAY_US) for id_ in gone]
        connection.exec_driver_sql("INSERT OR REPLACE INTO expired_record (hash, day) VALUES (?, ?)", hashes)
    return RowSlice(RowPlace(rows[-1].seq, rows[-1].row), len(gone))


def expire_loose(connection: Connection, model: str, *, until: int, most: int) -> int:
    """Dead letters, strikes and labels without a record; returns their number."""
    given = {"model": model, "until": until, "most": most}
    gone = sum(connection.exec_driver_sql(statement, given).rowcount for statement in _LOOSE)
    connection.exec_driver_sql("DELETE FROM block_age WHERE model = :model AND seq < :until", given)
    return gone


def forget_hashes(connection: Connection, *, before_day: int, after: bytes, limit: int) -> bytes | None:
    """Returns the last hash that was visited."""
    query = "SELECT hash, day FROM expired_record WHERE hash > ? ORDER BY hash LIMIT ?"
    rows = connection.exec_driver_sql(query, (after, limit)).all()
    old = [(row.hash,) for row in rows if row.day < before_day]
    if old:
        connection.exec_driver_sql("DELETE FROM expired_record WHERE hash = ?", old)
    return bytes(rows[-1].hash) if rows else None


def expired_ids(connection: Connection, model: str, ids: Iterable[str]) -> set[str]:
    asked = list(ids)
    if not asked or connection.exec_driver_sql("SELECT 1 FROM expired_record LIMIT 1").first() is None:
        return set()
    secret = secret_beside(connection)
    by_hash = {id_hash(secret, model, id_): id_ for id_ in asked}
    found: set[str] = set()
    for part in _parts(list(by_hash)):
        query = f"SELECT hash FROM expired_record WHERE hash IN ({', '.join('?' * len(part))})"
        found |= {by_hash[bytes(row.hash)] for row in connection.exec_driver_sql(query, tuple(part))}
    return found


def _gone(connection: Connection, model: str, ids: Sequence[str]) -> list[str]:
    """Records among these that may expire, in order."""
    _choose(connection, ids)
    given = {"model": model}
    kept = {found for query in _KEPT for found in connection.exec_driver_sql(query, given).scalars()}
    here = set(ids)
    pairs = [(row.member, row.flagged) for row in connection.exec_driver_sql(_MEMBERS, given)]
    while found := {member for member, flagged in pairs if flagged in kept or flagged not in here} - kept:
        kept |= found
    return [id_ for id_ in ids if id_ not in kept]


def _choose(connection: Connection, ids: Sequence[str]) -> None:
    """Ids in a temporary table, so that statements keep their text."""
    connection.exec_driver_sql("CREATE TEMP TABLE IF NOT EXISTS expiring (id TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.exec_driver_sql("DELETE FROM expiring")
    if ids:
        connection.exec_driver_sql("INSERT INTO expiring VALUES (?)", [(id_,) for id_ in ids])


def _parts(values: Sequence[T]) -> Iterable[Sequence[T]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
