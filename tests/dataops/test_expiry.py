"""Expiry takes what is old and nobody needs, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.dataops.journal import expiry
from outrider.dataops.journal.expiry import Around, Stream, near
from outrider.dataops.journal.journal import BlockInfo, Entry, SqliteJournal
from outrider.dataops.journal.stored_rows import has_row, pack_rows, read_rows
from outrider.dataops.state.database import write

S = 1_000_000


def batch(rows: int, first: int = 0) -> Batch:
    frame = pd.DataFrame({"id": [f"r{first + n}" for n in range(rows)], "x": np.arange(rows) / 2})
    images = np.arange(rows * 4, dtype=np.float32).reshape(rows, 2, 2)
    made = Batch.from_pandas(frame, model="toy", inputs=["x"], outputs=[], id="id")
    return made.with_columns({"inputs.image": images, "attrs.words": [["a"] * n for n in range(rows)]})


class Stored:
    """Records by hand: four to a block, a second apart."""

    def __init__(self, engine: Engine, blocks: int) -> None:
        self.engine = engine
        self.blocks = [BlockInfo(seq, "records", "toy", seq * 4 * S, 4, 100) for seq in range(1, blocks + 1)]
        rows = [
            {"id": f"r{4 * seq + row}", "seq": seq, "row": row, "ts": (4 * seq + row) * S}
            for seq in range(1, blocks + 1)
            for row in range(4)
        ]
        sql = (
            "INSERT INTO record (model, id, seq, row, ts_us, digest, weight)"
            " VALUES ('toy', :id, :seq, :row, :ts, 0, 1)"
        )
        with write(engine) as connection:
            connection.execute(text(sql), rows)

    def execute(self, sql: str, **values: Any) -> None:
        with write(self.engine) as connection:
            connection.execute(text(sql), values)

    def flag(self, seq: int, row: int, record: str) -> None:
        self.execute(
            "INSERT INTO flag (id, model, record_id, assertion, revision, slot, severity, level, seq, row,"
            " ts_us) VALUES (:id, 'toy', :record, 'a', '1', 'champion', 1, 'warning', :seq, :row, 0)",
            id=f"f{seq}-{row}",
            record=record,
            seq=seq,
            row=row,
        )

    def kept(self, first: int, last: int, around: Around) -> dict[int, list[int]]:
        with self.engine.connect() as connection:
            found = expiry.kept_rows(connection, "toy", self.blocks[first - 1 : last], around)
        return {seq: rows.tolist() for seq, rows in found.items()}

    def needed_from(self, *slots: str) -> int:
        with self.engine.connect() as connection:
            return expiry.needed_from(connection, "toy", slots=slots)


@pytest.fixture
def stored(engine: Engine) -> Stored:
    return Stored(engine, 10)


def test_a_flag_keeps_its_neighbours_across_blocks_and_slices(stored: Stored) -> None:
    stored.flag(5, 1, "r21")
    assert stored.kept(1, 10, Around(2, 60)) == {4: [3], 5: [0, 1, 2, 3]}
    assert stored.kept(4, 4, Around(2, 60)) == {4: [3]}  # the flag lies behind this slice
    assert stored.kept(6, 6, Around(3, 60)) == {6: [0]}  # and before this one
    assert stored.kept(1, 10, Around(0, 60)) == {5: [1]}
    assert stored.kept(1, 10, Around(5, 1.0)) == {5: [0, 1, 2]}  # none further away than a second


def test_members_label_requests_and_dataset_rows_stay_without_neighbours(stored: Stored) -> None:
    stored.flag(5, 1, "r21")
    stored.execute(
        "INSERT INTO flag_record (flag_id, record_id, model, seq, row) VALUES ('f5-1', 'r9', 'toy', 2, 1)"
    )
    stored.execute(
        "INSERT INTO label_request (model, record_id, policy, reason, probability, round, created_us,"
        " position, population, is_audit, floor) VALUES ('toy', 'r30', 'random', '', 1, 1, 0, 0, 1, 0, 1)"
    )
    stored.execute(
        "INSERT INTO dataset_row (dataset, file, number, position, record_id, part, digest)"
        " VALUES ('d', 1, 1, 0, 'r40', 'train', x'00')"
    )
    found = stored.kept(1, 10, Around(1, 60))
    assert found == {2: [0, 1, 2], 5: [0, 1, 2], 7: [2], 10: [0]}


def test_nothing_is_taken_that_a_living_slot_has_not_passed(stored: Stored) -> None:
    assert stored.needed_from() == 0  # nothing was judged yet
    stored.execute(
        "INSERT INTO cursor VALUES ('toy', 'champion', 9), ('toy', '2', 5), ('other', 'champion', 1)"
    )
    assert stored.needed_from() == 9  # version 2 is no challenger any more
    stored.execute(
        "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note, source)"
        " VALUES ('toy', '2', 'challenger', '', 0, 0, '', '{}')"
    )
    assert stored.needed_from() == 5
    stored.execute("INSERT INTO cursor VALUES ('toy', 'judge.tone', 4)")
    assert stored.needed_from() == 5
    assert stored.needed_from("judge.tone") == 4
    stored.execute("INSERT INTO window_checkpoint VALUES ('toy', 'champion', 'w', 3, x'00')")
    assert stored.needed_from() == 3
    stored.execute("INSERT INTO window_checkpoint VALUES ('toy', 'gone', 'w', 1, x'00')")
    assert stored.needed_from() == 3
    stored.execute(
        "INSERT INTO backfill (model, slot, reason, after_seq, until_seq, records, at_seq, passed,"
        " created_us) VALUES ('toy', 'champion', 'slo', 1, 7, 9, 2, 0, 0)"
    )
    assert stored.needed_from() == 2
    stored.execute("UPDATE backfill SET done_us = 1")
    assert stored.needed_from() == 3


def test_records_whose_followers_are_not_judged_yet_wait(stored: Stored) -> None:
    with stored.engine.connect() as connection:
        assert expiry.judged_neighbours(connection, "toy", 10, Around(0, 5)) == 10
        assert expiry.judged_neighbours(connection, "toy", 10, Around(5, 5)) == 8
        assert expiry.judged_neighbours(connection, "toy", 10, Around(4, 5)) == 9
        assert expiry.judged_neighbours(connection, "toy", 1, Around(5, 5)) == 0


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.data())
def test_neighbours_agree_with_a_slow_loop(gaps: list[int], data: st.DataObject) -> None:
    times = np.cumsum(np.array(gaps, dtype=np.int64)) * S
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(gaps), max_size=len(gaps))))
    around = Around(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 12)))
    stream = Stream(np.arange(len(gaps)), np.zeros(len(gaps), dtype=np.int64), times)
    slow = [
        any(
            chosen[other]
            and abs(at - other) <= around.rows
            and abs(times[at] - times[other]) <= around.seconds * S
            for other in range(len(gaps))
        )
        for at in range(len(gaps))
    ]
    assert near(stream, chosen, around).tolist() == slow


def test_a_packed_block_is_smaller_and_its_rows_keep_their_numbers() -> None:
    whole = batch(50)
    packed = pack_rows(whole.to_ipc(), np.array([3, 40]))
    assert len(packed) < len(whole.to_ipc()) / 3
    read = read_rows(packed)
    assert (read.rows, read.model, read.schema_digest) == (50, "toy", whole.schema_digest)
    assert [row for row in range(60) if has_row(read, row)] == [3, 40]
    for row in (3, 40):
        assert read.slice(row, 1).to_records() == whole.slice(row, 1).to_records()
        assert np.array_equal(
            read.slice(row, 1).tensor("inputs.image"), whole.slice(row, 1).tensor("inputs.image")
        )
    again = read_rows(pack_rows(packed, np.array([40])))
    assert [row for row in range(50) if has_row(again, row)] == [40]
    assert read_rows(whole.to_ipc()).to_arrow().equals(whole.to_arrow())


def test_the_journal_forgets_in_one_commit_and_remembers_how_far(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    whole = batch(8).to_ipc()
    with SqliteJournal(path) as journal:
        entries = [Entry("records", model, 8, whole) for model in ("a", "b", "a", "a")]
        journal.append([*entries, Entry("tick", "", 0, b"")], 7)
        outline = journal.outline("a", after=0, until=4, limit=9, rows=99)
        assert [(one.seq, one.rows, one.bytes) for one in outline] == [(n, 8, len(whole)) for n in (1, 3, 4)]
        assert [one.seq for one in journal.outline("a", after=1, until=3, limit=9, rows=99)] == [3]
        assert [one.seq for one in journal.outline("a", after=0, until=4, limit=9, rows=9)] == [1, 3]
        used = journal.used_bytes()
        small = pack_rows(whole, np.array([2]))
        assert journal.expire([1], kept={3: (1, small)}, through={"a": 3}) == 1
        assert journal.used_bytes() <= used
    with SqliteJournal(path) as journal:
        assert journal.expired_through() == {"a": 3}
        assert [(block.seq, block.kind) for block in journal.read(0, model="a")] == [
            (3, "kept"),
            (4, "records"),
            (5, "tick"),
        ]
        assert journal.count_records(0, 9, model="a") == 8
        assert has_row(read_rows(journal.get(3).payload), 2)
        with pytest.raises(KeyError, match="it expired"):
            journal.get(1)


def test_answers_go_with_their_blocks(stored: Stored) -> None:
    for version in ("1", "2", "judge"):
        for seq in (1, 2, 3):
            stored.execute("INSERT INTO answer VALUES ('toy', :v, :s, x'00')", v=version, s=seq)
    stored.execute("INSERT INTO answer VALUES ('other', '1', 1, x'00')")
    with write(stored.engine) as connection:
        assert expiry.forget_answers(connection, "toy", [1, 3]) == 6
    with stored.engine.connect() as connection:
        left = connection.execute(text("SELECT model, version, seq FROM answer ORDER BY 1, 2")).all()
    assert [tuple(row) for row in left] == [
        ("other", "1", 1),
        ("toy", "1", 2),
        ("toy", "2", 2),
        ("toy", "judge", 2),
    ]
