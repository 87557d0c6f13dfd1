"""Bits that flip on the disk: no block is read as another than was written, and the rest stays readable."""

import random
import sqlite3
from pathlib import Path

import pytest

from outrider.dataops.journal.journal import Block, Entry, SqliteJournal
from outrider.errors import JournalUnreadable
from tests.soak import rounds

FLIPS = rounds(400)


def filled(path: Path) -> list[Block]:
    """A journal of small and large blocks of two models."""
    rng = random.Random(3)
    with SqliteJournal(path) as journal:
        for number in range(60):
            size = rng.choice([50, 900, 20_000, 70_000])
            model = rng.choice(["a", "b"])
            journal.append([Entry("records", model, number, rng.randbytes(size))], 1_000_000 + number)
        return journal.read(0, limit=1000)


def read_all(path: Path, model: str | None = None) -> list[Block]:
    with SqliteJournal(path, read_only=True) as journal:
        found: list[Block] = []
        while blocks := journal.read(found[-1].seq if found else 0, model=model):
            found += blocks
        return found


def test_a_flipped_bit_is_never_taken_for_what_was_written(tmp_path: Path) -> None:
    written = {block.seq: block for block in filled(tmp_path / "journal.db")}
    whole = (tmp_path / "journal.db").read_bytes()
    rng = random.Random(5)
    told = 0
    for number in range(FLIPS):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged)
        try:
            found = read_all(path)
        except (JournalUnreadable, sqlite3.DatabaseError):
            told += 1  # the first pages: the file as a whole is no journal any more
            continue
        finally:
            for name in tmp_path.glob(f"{number}.db*"):
                name.unlink()
        good = [block for block in found if not block.damage]
        assert all(block == written[block.seq] for block in good)
        assert len({block.seq for block in found}) == len(found)
        assert len(good) >= len(written) - 8  # those of one page at most
        told += len(good) < len(written)  # else the bit was in space that holds nothing
    assert told > FLIPS / 2  # most of the file is payload


@pytest.mark.parametrize("model", [None, "a"])
def test_blocks_on_a_broken_page_are_told_one_by_one(tmp_path: Path, model: str | None) -> None:
    path = tmp_path / "journal.db"
    written = [block for block in filled(path) if model in (None, block.model)]
    database = sqlite3.connect(path)
    size = database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    whole = path.read_bytes()
    # Leaves of tables begin with 0x0D; most are of blocks, as their table is the largest.
    leaves = [at for at in range(size, len(whole), size) if whole[at] == 0x0D]
    data = bytearray(path.read_bytes())
    data[leaves[len(leaves) // 2]] = 0x77
    path.write_bytes(data)
    found = read_all(path, model)
    damaged = [block for block in found if block.damage]
    assert damaged
    assert all("cannot be read" in block.damage for block in damaged)
    good = [block for block in found if not block.damage]
    assert all(block in written for block in good)
    assert found[-1].seq == written[-1].seq or found[-1].damage


def test_a_damaged_block_cannot_be_got(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        journal.append([Entry("records", "a", 3, b"x" * 5000), Entry("records", "a", 1, b"y")], 7)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"x" * 4000, b"x" * 3999 + b"z", 1))
    with SqliteJournal(path) as journal:
        with pytest.raises(KeyError, match="damaged"):
            journal.get(1)
        assert journal.get(2).payload == b"y"
        assert [bool(block.damage) for block in journal.read(0)] == [True, False]
        journal.append([Entry("records", "a", 1, b"z")], 8)  # the service goes on
        assert journal.read(2)[0].payload == b"z"
