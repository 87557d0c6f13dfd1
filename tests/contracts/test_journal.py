"""What every journal must do, whatever it is made of."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.dataops.journal.journal import Entry, Half, Journal, SqliteJournal

Open = Callable[[], Journal]


def open_sqlite(folder: Path) -> Journal:
    return SqliteJournal(folder / "journal.db", max_bytes=None)


backends = {"sqlite": open_sqlite}


@pytest.fixture(params=sorted(backends))
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the same journal, as often as asked."""
    opened: list[Journal] = []

    def reopen() -> Journal:
        opened.append(backends[request.param](tmp_path))
        return opened[-1]

    yield reopen
    for journal in opened:
        journal.close()


def record(payload: bytes = b"x", model: str = "m", rows: int = 1) -> Entry:
    return Entry("records", model, rows, payload)


def test_an_empty_journal_has_no_blocks_and_last_seq_zero(reopen: Open) -> None:
    journal = reopen()
    assert journal.last_seq() == 0
    assert journal.read(0) == []
    assert journal.schemas() == []


def test_what_is_appended_is_read_in_order(reopen: Open) -> None:
    journal = reopen()
    seqs = journal.append([record(b"a"), Entry("labels", "m", 3, b"b")], 10)
    seqs += journal.append([Entry("tick", "", 0, b"")], 20)
    blocks = journal.read(0)
    assert [block.seq for block in blocks] == seqs
    assert seqs == sorted(set(seqs))
    assert [(b.kind, b.model, b.received_us, b.rows, b.payload) for b in blocks] == [
        ("records", "m", 10, 1, b"a"),
        ("labels", "m", 10, 3, b"b"),
        ("tick", "", 20, 0, b""),
    ]
    assert journal.last_seq() == seqs[-1]
    assert journal.get(seqs[1]) == blocks[1]


def test_reading_goes_on_after_a_sequence_number_and_stops_at_the_limit(reopen: Open) -> None:
    journal = reopen()
    seqs = journal.append([record(bytes([i])) for i in range(10)], 0)
    assert [b.seq for b in journal.read(seqs[2], limit=4)] == seqs[3:7]
    assert journal.read(seqs[-1]) == []


def test_a_model_reads_its_own_blocks_and_the_ticks(reopen: Open) -> None:
    journal = reopen()
    journal.append([record(model="a"), record(model="b"), Entry("tick", "", 0, b"")], 0)
    assert [b.model for b in journal.read(0, model="a")] == ["a", ""]


def test_records_of_a_model_are_counted_without_labels_and_ticks(reopen: Open) -> None:
    journal = reopen()
    entries = [record(rows=2), record(model="b", rows=9), Entry("labels", "m", 7, b""), record(rows=3)]
    seqs = journal.append([*entries, Entry("tick", "", 0, b"")], 0)
    assert journal.count_records(0, seqs[-1], model="m") == 5
    assert journal.count_records(seqs[0], seqs[-1], model="m") == 3
    assert journal.count_records(seqs[0], seqs[2], model="m") == 0
    assert journal.count_records(0, 0, model="nobody") == 0


def test_an_unknown_block_is_a_key_error(reopen: Open) -> None:
    with pytest.raises(KeyError, match="block 7"):
        reopen().get(7)


def test_blocks_uuid_and_schemas_survive_reopening(reopen: Open) -> None:
    journal = reopen()
    journal.append([Entry("records", "m", 1, b"a", digest="d1", schema=b"s1")], 0)
    journal.append([Entry("records", "m", 1, b"b", digest="d1", schema=b"s1")], 0)
    journal.append([Entry("records", "m", 1, b"c", digest="d2", schema=b"s2")], 0)
    before = (journal.uuid, journal.read(0), journal.schemas())
    journal.close()
    again = reopen()
    assert (again.uuid, again.read(0), again.schemas()) == before
    assert [(s.digest, s.payload, s.first_seq) for s in again.schemas()] == [
        ("d1", b"s1", 1),
        ("d2", b"s2", 3),
    ]


def test_expired_blocks_are_gone_and_their_numbers_are_never_reused(reopen: Open) -> None:
    journal = reopen()
    seqs = journal.append([record(), record(), record()], 0)
    assert journal.expire([*seqs[1:], 999]) == 2
    journal.close()
    again = reopen()
    assert again.last_seq() == seqs[-1]
    assert again.append([record()], 0)[0] > seqs[-1]
    assert [b.seq for b in again.read(0)] == [seqs[0], seqs[-1] + 1]


def test_large_blocks_are_read_a_few_at_a_time_and_none_is_skipped(reopen: Open) -> None:
    journal = reopen()
    seqs = journal.append([record(bytes(12_000_000)) for _ in range(5)], 0)
    read: list[int] = []
    while blocks := journal.read(read[-1] if read else 0):
        assert len(blocks) < 5
        read += [block.seq for block in blocks]
    assert read == seqs


APPENDER = """
import sys
from pathlib import Path
from tests.contracts.test_journal import backends, record
journal = backends[sys.argv[1]](Path(sys.argv[2]))
i = 0
while True:
    seq, = journal.append([record(b"%d" % i * 500)], i)
    sys.stdout.write(f"{seq} {i}\\n"); sys.stdout.flush()
    i += 1
"""


@pytest.mark.parametrize("backend", sorted(backends))
def test_every_acknowledged_block_survives_kill_9(backend: str, tmp_path: Path) -> None:
    acknowledged: dict[int, int] = {}
    for wanted in (1, 40, 150):  # the same journal is killed three times
        with subprocess.Popen(
            [sys.executable, "-c", APPENDER, backend, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(wanted):
                seq, i = process.stdout.readline().split()
                acknowledged[int(seq)] = int(i)
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:  # acknowledged before the kill, not yet read by us
                if line.endswith("\n"):
                    seq, i = line.split()
                    acknowledged[int(seq)] = int(i)
    journal = backends[backend](tmp_path)
    for number, value in acknowledged.items():
        assert journal.get(number).payload == b"%d" % value * 500
    journal.close()


def test_halves_wait_until_dropped_and_give_up_when_due(reopen: Open) -> None:
    journal = reopen()
    asked = Half("churn", "a1", "request", 5, 30, b"asked")
    said = Half("churn", "b2", "response", 6, 20, b"said")
    journal.append([], 6, keep=[asked, said])
    assert journal.halves("churn", ["a1", "none"]) == [asked]
    assert journal.halves("fraud", ["a1"]) == []
    assert journal.due_halves(19) == []
    assert journal.due_halves(30) == [said, asked]
    assert journal.read(after=0) == []
    journal.append([Entry("records", "churn", 1, b"joined")], 7, drop=[asked])
    assert journal.halves("churn", ["a1", "b2"]) == [said]


def test_halves_of_a_refused_commit_are_as_before(reopen: Open) -> None:
    journal = reopen()
    asked = Half("churn", "a1", "request", 5, 30, b"asked")
    journal.append([], 5, keep=[asked])
    nothing: Any = None
    with pytest.raises(Exception, match=r"bytes-like|NoneType"):
        journal.append([Entry("records", "churn", 1, nothing)], 6, drop=[asked])
    assert journal.halves("churn", ["a1"]) == [asked]
