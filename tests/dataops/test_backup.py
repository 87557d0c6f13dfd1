"""Backups: consistent while others write, checked to the bit, and never written over anything."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.dataops.backup.backup import back_up
from outrider.dataops.backup.manifest import BackupDamaged, Manifest, load_manifest
from outrider.dataops.backup.restore import restore
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.errors import OutriderError
from tests.databases import place_database
from tests.soak import PATIENCE_S
from tests.table_rows import append


def silent(_what: str, _done: int, _total: int) -> None: ...


class Data:
    """A data folder in use: both databases stay open, as in a service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = SqliteJournal(folder / "journal.db")
        place_database(folder / "state.db")
        self.engine = open_database(f"sqlite:///{folder / 'state.db'}", journal_uuid=self.journal.uuid)
        self.objects = LocalObjects(folder / "objects")
        (folder / "key").write_text("secret")
        (folder / "key").chmod(0o600)
        (folder / "run").mkdir()
        (folder / "run" / "server.json").write_text("{}")
        (folder / "proposals").mkdir()
        (folder / "proposals" / "toy.json").write_text("{}")

    def step(self, number: int) -> int:
        """A block, and its judgement."""
        (seq,) = self.journal.append([Entry("records", "toy", 5, b"x" * 2000)], number)
        effects = Effects("toy", "champion", seq)
        for row in range(5):
            values = ("toy", f"r{seq}-{row}", seq, row, 0, 0, None, None, None, None, 1.0, None)
            append(effects.records, values)
        with write(self.engine) as connection:
            ledger.apply(connection, effects)
        return seq

    def back_up(self, to: Path, progress: Any = silent) -> Manifest:
        return back_up(self.folder, to, release="1", now_us=7, progress=progress)

    def close(self) -> None:
        self.engine.dispose()
        self.journal.close()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Data]:
    (tmp_path / "data").mkdir()
    made = Data(tmp_path / "data")
    yield made
    made.close()


def test_what_is_restored_is_what_was_backed_up(data: Data, tmp_path: Path) -> None:
    for number in range(20):
        data.step(number)
    digest = data.objects.put(b"weights")
    manifest = data.back_up(tmp_path / "copy")
    assert load_manifest(tmp_path / "copy") == manifest
    assert (manifest.contents.records, manifest.contents.journal_last_seq) == (100, 20)
    assert manifest.contents.tables["record"] == 100
    names = {entry.path for entry in manifest.files}
    assert names == {
        "journal.db",
        "state.db",
        "key",
        "proposals/toy.json",
        f"objects/{digest[:2]}/{digest}",
    }
    again = restore(tmp_path / "copy", tmp_path / "new", progress=silent)
    assert again == manifest
    assert (tmp_path / "new" / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert LocalObjects(tmp_path / "new" / "objects").get(digest) == b"weights"
    with SqliteJournal(tmp_path / "new" / "journal.db") as journal:
        assert journal.uuid == data.journal.uuid
        assert journal.append([Entry("tick", "", 0, b"")], 21) == [21]
        engine = open_database(
            f"sqlite:///{tmp_path / 'new' / 'state.db'}",
            journal_uuid=journal.uuid,
            journal_last_seq=lambda: 20,
        )
        engine.dispose()


def test_a_backup_under_load_ends_and_is_consistent(data: Data, tmp_path: Path) -> None:
    for number in range(400):
        data.step(number)
    stop = threading.Event()
    steps: list[int] = []

    def load() -> None:
        while not stop.is_set():
            steps.append(data.step(1000))

    def progress(what: str, _done: int, _total: int) -> None:
        """Others go on writing while it is copied."""
        before, deadline = len(steps), time.monotonic() + PATIENCE_S
        while len(steps) == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    writer = threading.Thread(target=load)
    writer.start()
    try:
        made = data.back_up(tmp_path / "copy", progress)
    finally:
        stop.set()
        writer.join()
    contents = made.contents
    assert contents.journal_last_seq >= contents.cursors["toy/champion"] >= 400
    assert contents.tables["record"] == 5 * contents.cursors["toy/champion"]
    assert contents.records == 5 * contents.journal_last_seq
    restore(tmp_path / "copy", tmp_path / "new", progress=silent)


def test_what_expires_during_a_backup_is_still_there_for_the_copy_to_judge(
    data: Data, tmp_path: Path
) -> None:
    (judged,) = data.journal.append([Entry("records", "toy", 5, b"x" * 2000)], 1)  # and not judged yet

    def progress(what: str, _done: int, _total: int) -> None:
        if what == "copying state.db" and data.journal.read(0, limit=1):
            with write(data.engine) as connection:
                ledger.apply(connection, Effects("toy", "champion", judged))
            data.journal.expire([judged], through={"toy": judged})

    made = data.back_up(tmp_path / "copy", progress)
    assert not data.journal.read(0, limit=1)
    assert (made.contents.cursors, made.contents.records) == ({}, 5)


def test_nothing_is_ever_overwritten(data: Data, tmp_path: Path) -> None:
    data.step(1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OutriderError, match="is not empty"):
        data.back_up(tmp_path / "full")
    with pytest.raises(OutriderError, match="lies in the data folder"):
        data.back_up(data.folder / "copy")
    (tmp_path / "empty").mkdir()
    data.back_up(tmp_path / "empty")
    with pytest.raises(OutriderError, match="is not empty and nothing is overwritten"):
        restore(tmp_path / "empty", data.folder, progress=silent)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "empty", "full"]


@pytest.mark.parametrize("name", ["journal.db", "state.db", "key", "proposals/toy.json"])
def test_one_flipped_bit_is_found_and_nothing_is_restored(data: Data, tmp_path: Path, name: str) -> None:
    data.step(1)
    data.back_up(tmp_path / "copy")
    path = tmp_path / "copy" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BackupDamaged, match=f"{name} has SHA-256"):
        restore(tmp_path / "copy", tmp_path / "new", progress=silent)
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]


def test_what_is_missing_is_named(data: Data, tmp_path: Path) -> None:
    data.step(1)
    digest = data.objects.put(b"weights")
    data.back_up(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "objects")
    (tmp_path / "copy" / "key").unlink()
    with pytest.raises(BackupDamaged, match=rf"(?s)key is missing.*{digest} is missing"):
        restore(tmp_path / "copy", tmp_path / "new", progress=silent)
    with pytest.raises(BackupDamaged, match="is no backup"):
        restore(data.folder, tmp_path / "new", progress=silent)


def test_a_manifest_cannot_lead_out_of_the_folder(data: Data, tmp_path: Path) -> None:
    data.step(1)
    data.back_up(tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"key"', '"../key"'))
    shutil.copy(tmp_path / "copy" / "key", tmp_path / "key")
    with pytest.raises(BackupDamaged, match="leads out of the folder"):
        restore(tmp_path / "copy", tmp_path / "new", progress=silent)


def test_links_of_a_backup_are_refused_and_odd_modes_left_behind(data: Data, tmp_path: Path) -> None:
    data.step(1)
    data.back_up(tmp_path / "backup")
    objects = sorted(file for file in (tmp_path / "backup").rglob("*") if file.is_file())
    for file in objects:
        file.chmod(0o6777)
    restore(tmp_path / "backup", tmp_path / "restored", progress=silent)
    modes = {file.stat().st_mode & 0o7777 for file in (tmp_path / "restored").rglob("*") if file.is_file()}
    assert modes == {0o600}
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "backup" / "state.db").rename(elsewhere)
    (tmp_path / "backup" / "state.db").symlink_to(elsewhere)
    with pytest.raises(BackupDamaged, match=r"state\.db is or lies behind a symbolic link"):
        restore(tmp_path / "backup", tmp_path / "again", progress=silent)
    assert not (tmp_path / "again").exists()


def test_damaged_objects_are_named_and_kept(data: Data, tmp_path: Path) -> None:
    data.step(1)
    digest = data.objects.put(b"weights")
    path = data.folder / "objects" / digest[:2] / digest
    path.write_bytes(b"weighty")
    assert data.back_up(tmp_path / "copy").damaged == (digest,)
    restore(tmp_path / "copy", tmp_path / "new", progress=silent)


def test_databases_that_do_not_belong_together_are_no_backup(data: Data, tmp_path: Path) -> None:
    data.step(1)
    with sqlite3.connect(data.folder / "state.db") as database:
        database.execute("UPDATE meta SET value = 'other' WHERE key = 'journal_uuid'")
    database.close()
    with pytest.raises(BackupDamaged, match="belongs to journal other"):
        data.back_up(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    with pytest.raises(OutriderError, match="nothing to back up"):
        back_up(tmp_path / "nobody", tmp_path / "copy", release="1", now_us=1, progress=silent)
