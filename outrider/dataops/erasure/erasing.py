"""Erasure from a data folder that no other process uses.

Every step may be done again, and what is to go stays noted until all has gone: killed anywhere, the next
start finishes it. The journal, which tells what quotes a record, comes behind all that may quote one.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from outrider.dataops.datasets.erased import ErasableRows, erasable_rows, erase_rows
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, open_database, write
from outrider.dataops.state.erasure_tables import ErasedContext, ErasedHash
from outrider.dataops.state.rows import insert_rows

from .compaction import check_room, compact, room_in
from .files import NOBODYS, erase_files, erase_payloads
from .hashes import HashKey
from .journal_blocks import erase_blocks
from .pending import PendingErasure, forget, keep_found, note_backups, note_done, note_hashes, pending
from .replayed import hash_rows, named, tell_backups
from .search import search
from .state_rows import count_rows, erase_rows_of, name_gone
from .target import ErasureTarget, Found, UnknownSubject
from .texts import Quotations

DATABASE, JOURNAL = "state.db", "journal.db"
STEPS = ("found", "datasets", "files", "state", "journal", "payloads", "compacted journal", "compacted state")


@dataclass(frozen=True, slots=True)
class Place:
    """Data folder, and files elsewhere that may hold records."""

    folder: Path
    elsewhere: Sequence[Path] = ()
    reached: Callable[[str], None] = field(default=lambda _: None)
    """Called with each of `STEPS` once it is done."""

    @property
    def objects(self) -> LocalObjects:
        return LocalObjects(self.folder / "objects")

    def open(self) -> Engine:
        """Database, whose freed pages are zeroed."""
        engine = open_database(f"sqlite:///{self.folder / DATABASE}")
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA secure_delete = ON").close())
        return engine


def preview(place: Place, wanted: ErasureTarget) -> dict[str, int]:
    """Numbers of an erasure that is not carried out; UnknownSubject where nothing is stored of it."""
    engine = place.open()
    try:
        with SqliteJournal(place.folder / JOURNAL, read_only=True) as journal, engine.connect() as connection:
            found = search(connection, journal, place.objects, wanted)
            quoted = _quotations(found, wanted)
            in_files = erase_files(place.folder, place.elsewhere, found, quoted, dry_run=True)
            if found.is_nothing and not any(in_files[name] for name in in_files.keys() - NOBODYS):
                raise UnknownSubject(_unknown(wanted))
            name_gone(connection, wanted, found)
            counts = _counts(found) + count_rows(connection, found, quoted)
            connection.rollback()
        rows = _erasable(engine, found)
    finally:
        engine.dispose()
    counts += in_files
    counts["payloads"] += erase_payloads(place.folder, found.payloads, dry_run=True)
    counts["dataset_rows"], counts["quarantined"] = rows.rows, rows.quarantined
    counts["dataset_versions"] = len(rows.versions)
    return {name: count for name, count in sorted(counts.items()) if count}


def complete(place: Place) -> list[str]:
    """Carry out all pending erasures; returns their ids.

    No other process may use the folder. OutriderError without room on the disk: nothing has changed, or
    the rest stays pending.
    """
    waiting = pending(place.folder)
    if not waiting:
        return []
    check_room([place.folder / JOURNAL, place.folder / DATABASE])
    with room_in(place.folder):
        _complete(place, waiting)
    return [one.id for one in waiting]


def _complete(place: Place, waiting: Sequence[PendingErasure]) -> None:
    for one in waiting:
        if one.wanted.key:
            HashKey(bytes.fromhex(one.wanted.key)).keep(place.folder)
    key = HashKey.of_folder(place.folder)
    for one in waiting:
        _erase(place, one, key)
    _note_backups(place, waiting)
    compact(place.folder / JOURNAL)
    place.reached("compacted journal")
    compact(place.folder / DATABASE)
    place.reached("compacted state")
    for one in waiting:
        forget(place.folder, one)


def _note_backups(place: Place, waiting: Sequence[PendingErasure]) -> None:
    backups = tell_backups(place.folder)
    engine = place.open()
    try:
        with write(engine) as connection:
            for one in waiting:
                note_backups(connection, one, backups)
    finally:
        engine.dispose()


def _erase(place: Place, one: PendingErasure, key: HashKey) -> None:
    engine = place.open()
    try:
        with SqliteJournal(place.folder / JOURNAL) as journal:
            with engine.connect() as connection:
                if one.wanted.key:
                    one = replace(one, wanted=named(connection, journal, place.objects, one.wanted))
                found = search(connection, journal, place.objects, one.wanted)
            rows = _erasable(engine, found)
            one = keep_found(
                place.folder, one, found, (f"{model}@{version}" for model, version in rows.models)
            )
            place.reached("found")
            for model, ids in sorted(found.ids.items()):
                erase_rows(engine, place.objects, sorted(ids), model=model, is_alone=True)
            place.reached("datasets")
            quoted = _quotations(found, one.wanted)
            counts = _counts(found) + erase_files(place.folder, place.elsewhere, found, quoted)
            counts["dataset_rows"], counts["quarantined"] = rows.rows, rows.quarantined
            counts["dataset_versions"] = len(rows.versions)
            counts["payloads"] += erase_payloads(place.folder, found.payloads, dry_run=True)
            place.reached("files")
            _erase_state(engine, one, found, quoted, counts, key)
            place.reached("state")
            erase_blocks(journal, found)
            place.reached("journal")
    finally:
        engine.dispose()
    erase_payloads(place.folder, found.payloads)
    place.reached("payloads")


def _erasable(engine: Engine, found: Found) -> ErasableRows:
    """Dataset rows of all models: an id is a record of its model alone."""
    each = [erasable_rows(engine, sorted(ids), model=model) for model, ids in sorted(found.ids.items())]
    return ErasableRows(
        sum(one.rows for one in each),
        [version for one in each for version in one.versions],
        sorted({trained for one in each for trained in one.models}),
        sum(one.quarantined for one in each),
    )


def _erase_state(
    engine: Engine, one: PendingErasure, found: Found, quoted: Quotations, counts: Counter[str], key: HashKey
) -> None:
    with write(engine) as connection:
        name_gone(connection, one.wanted, found)
        counts += erase_rows_of(connection, found, quoted)
        insert_rows(connection, ErasedContext, sorted(found.contexts))
        _forget_contexts(connection, found)
        note_hashes(connection, one, found, key, now_us=now_us())
        insert_rows(connection, ErasedHash, hash_rows(one.wanted, one.id))
        told: dict[str, Any] = {"counts": {name: count for name, count in counts.items() if count}}
        told |= {"unreadable_blocks": found.unreadable, "models": list(one.models)}
        told["backups"] = []
        note_done(connection, one, told, now_us=now_us())


def _forget_contexts(connection: Connection, found: Found) -> None:
    places = [
        (model, seq, row) for model, own in found.records.items() for seq, rows in own.items() for row in rows
    ]
    if places:
        connection.exec_driver_sql(
            "DELETE FROM erased_context WHERE model = ? AND like_seq = ? AND like_row = ?", places
        )


def _quotations(found: Found, wanted: ErasureTarget) -> Quotations:
    names = {*wanted.subjects, *wanted.records, *found.all_ids}
    return Quotations(names, found.values, wanted.model)


def _counts(found: Found) -> Counter[str]:
    rows = {"journal_records": found.records, "journal_labels": found.labels}
    counts = Counter(
        {
            name: sum(len(rows) for own in kind.values() for rows in own.values())
            for name, kind in rows.items()
        }
    )
    counts["waiting_sides"], counts["waiting_calls"] = len(found.halves), len(found.notes)
    return counts


def _unknown(wanted: ErasureTarget) -> str:
    named = [name[:80] for name in (*wanted.subjects, *wanted.records)]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    of_model = f" of {wanted.model}" if wanted.model else ""
    return (
        f"{', '.join(named[:3])}{more}: nothing is stored of it{of_model}; expected the entity of records "
        "(--subject) or their id (--record), as they were sent"
    )
