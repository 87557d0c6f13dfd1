"""What is particular to the journal in a SQLite file: bounds, damage, readers in other processes."""

import sqlite3
import threading
from pathlib import Path

import pytest

from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.errors import JournalFull, JournalUnreadable


def block(size: int) -> Entry:
    return Entry("records", "m", 1, bytes(size))


def fill(journal: SqliteJournal, size: int = 20_000) -> int:
    for written in range(1000):
        try:
            journal.append([block(size)], 0)
        except JournalFull:
            return written
    raise AssertionError("the journal never became full")


def test_a_full_journal_refuses_and_recovers_when_blocks_expire(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=600_000)
    written = fill(journal)
    assert written >= 10
    assert len(journal.read(0, limit=1000)) == written
    assert journal.room_bytes() < 20_000
    journal.expire(range(1, 6))
    assert journal.room_bytes() > 60_000
    journal.append([block(20_000)], 0)
    assert len(journal.read(0, limit=1000)) == written - 4
    journal.close()


def test_a_refused_append_writes_none_of_its_entries(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=400_000)
    with pytest.raises(JournalFull, match="journal_max_bytes"):
        journal.append([block(10), block(1_000_000)], 0)
    assert journal.read(0) == []
    assert journal.append([block(10)], 0) == [1]
    journal.close()


def test_too_little_free_disk_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", min_free_bytes=1 << 60)
    with pytest.raises(JournalFull, match="min_free_bytes"):
        journal.append([block(1)], 0)
    assert journal.room_bytes() < 0
    journal.close()


def test_a_reader_sees_commits_of_the_writer_and_cannot_write(tmp_path: Path) -> None:
    writer = SqliteJournal(tmp_path / "journal.db")
    reader = SqliteJournal(tmp_path / "journal.db", read_only=True)
    writer.append([block(3)], 5)
    assert [b.payload for b in reader.read(0)] == [bytes(3)]
    assert reader.uuid == writer.uuid
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.append([block(3)], 5)
    reader.close()
    writer.close()


def test_a_missing_file_is_a_clear_error_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(JournalUnreadable, match="outrider serve"):
        SqliteJournal(tmp_path / "journal.db", read_only=True)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database at all " * 1000)
    with pytest.raises(JournalUnreadable, match="not a readable Outrider journal"):
        SqliteJournal(tmp_path / "journal.db")


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "journal.db")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    with pytest.raises(JournalUnreadable, match="another program"):
        SqliteJournal(tmp_path / "journal.db")


def test_a_damaged_journal_is_a_clear_error(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "journal.db").close()
    raw = bytearray((tmp_path / "journal.db").read_bytes())
    raw[100:8000] = bytes(7900)
    (tmp_path / "journal.db").write_bytes(raw)
    with pytest.raises(JournalUnreadable, match="restore it from a backup"):
        SqliteJournal(tmp_path / "journal.db")


def test_commits_are_synchronous_full_in_wal_mode(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.close()
    journal = SqliteJournal(tmp_path / "journal.db")  # synchronous is per connection, not stored
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    journal.close()


def test_threads_may_share_a_journal(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")

    def append() -> None:
        for _ in range(20):
            journal.append([block(10), block(20)], 0)
            journal.read(0)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.last_seq() == 160
    journal.close()
