"""The journal writer: groups requests, says when it cannot, and never leaves anyone waiting."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions.batch import Batch
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.errors import JournalFull
from outrider.monitor.intake.block_builder import BLOCK_ROWS
from outrider.monitor.intake.group_commit import Committed, GroupCommit, QueueFull, WriterUnavailable, merge
from outrider.monitor.intake.join import Joiner
from outrider.monitor.intake.pending_blocks import PendingBlock, PendingHalf, Side
from tests.soak import PATIENCE_S


def pending(ids: Sequence[str], model: str = "m", digest: str = "d", **extra: Any) -> PendingBlock:
    records = [{"id": id, "inputs": {"x": 1} | extra} for id in ids]
    return PendingBlock("records", model, digest, Batch.from_records(records, model=model).to_arrow())


class SlowJournal(SqliteJournal):
    """Appends only while the gate is open; raises what it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = threading.Event()
        self.gate.set()
        self.error: BaseException | None = None
        self.groups: list[int] = []

    def append(self, entries: Sequence[Entry], received_us: int, **halves: Any) -> list[int]:
        self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.groups.append(len(entries))
        return super().append(entries, received_us, **halves)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SlowJournal]:
    journal = SlowJournal(tmp_path / "journal.db")
    yield journal
    journal.close()


@pytest.fixture
def writer(journal: SlowJournal) -> Iterator[GroupCommit]:
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=0.05)
    writer.start()
    yield writer
    journal.gate.set()
    writer.close()


def ids_in(journal: SqliteJournal) -> list[str]:
    blocks = [block for block in journal.read(0, limit=1000) if block.kind == "records"]
    return [key for block in blocks for key in Batch.from_ipc(block.payload).keys]


def test_a_submitted_block_is_in_the_journal_when_submit_returns(
    writer: GroupCommit, journal: SlowJournal
) -> None:
    asyncio.run(writer.submit([pending(["a", "b"])], 10))
    assert ids_in(journal) == ["a", "b"]
    assert journal.schemas()[0].digest == "d"
    assert writer.queued_bytes == 0


def test_what_gathers_during_a_commit_becomes_one_commit(writer: GroupCommit, journal: SlowJournal) -> None:
    async def many() -> None:
        journal.gate.clear()
        tasks = [asyncio.create_task(writer.submit([pending([str(i)])], 1)) for i in range(50)]
        await asyncio.sleep(0.1)
        journal.gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(many())
    assert len(journal.groups) <= 3
    assert ids_in(journal) == [str(i) for i in range(50)]


def test_blocks_merge_by_model_kind_and_schema_up_to_a_size() -> None:
    blocks = [pending(["a"]), pending(["b"], model="n"), pending(["c"]), pending(["d"], digest="e", y=1)]
    entries = merge(blocks)
    assert [(e.model, e.digest, e.rows) for e in entries] == [("m", "d", 2), ("n", "d", 1), ("m", "e", 1)]
    assert list(Batch.from_ipc(entries[0].payload).keys) == ["a", "c"]
    assert pa.ipc.read_schema(pa.py_buffer(entries[2].schema)).names[-1] == "inputs.y"
    half = pending([str(i) for i in range(BLOCK_ROWS // 2 + 1)])
    assert [entry.rows for entry in merge([half, half])] == [half.table.num_rows] * 2


def test_a_full_queue_refuses_at_once(writer: GroupCommit, journal: SlowJournal) -> None:
    async def overfill() -> None:
        journal.gate.clear()
        waiting = asyncio.create_task(writer.submit([pending(["a"])], 900))
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFull, match=r"limits\.queue_bytes"):
            await writer.submit([pending(["b"])], 200)
        journal.gate.set()
        await waiting
        await writer.submit([pending(["c"])], 5000)  # larger than the queue, but nothing waits

    asyncio.run(overfill())
    assert ids_in(journal) == ["a", "c"]


def test_a_full_journal_refuses_and_becomes_ready_again_by_itself(
    writer: GroupCommit, journal: SlowJournal
) -> None:
    journal.error = JournalFull("no room")
    with pytest.raises(JournalFull):
        asyncio.run(writer.submit([pending(["a"])], 1))
    assert writer.fault == "no room"
    journal.error = None
    wait_until(lambda: writer.fault is None)
    asyncio.run(writer.submit([pending(["b"])], 1))
    assert ids_in(journal) == ["b"]


def test_one_failing_commit_is_refused_and_the_next_succeeds(
    writer: GroupCommit, journal: SlowJournal
) -> None:
    journal.error = OSError("disk fell out")
    with pytest.raises(WriterUnavailable, match="disk fell out"):
        asyncio.run(writer.submit([pending(["a"])], 1))
    assert writer.fault is not None
    journal.error = None
    asyncio.run(writer.submit([pending(["b"])], 1))
    assert writer.fault is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_the_writer_fails_everyone_who_waits(writer: GroupCommit, journal: SlowJournal) -> None:
    async def die() -> list[BaseException | None]:
        journal.gate.clear()
        first = [asyncio.create_task(writer.submit([pending([str(i)])], 1)) for i in range(3)]
        await asyncio.sleep(0.05)
        second = [asyncio.create_task(writer.submit([pending([str(i)])], 1)) for i in range(3, 6)]
        await asyncio.sleep(0.05)
        journal.error = SystemExit(1)
        journal.gate.set()
        return await asyncio.wait_for(asyncio.gather(*first, *second, return_exceptions=True), PATIENCE_S)

    outcomes = asyncio.run(die())
    assert [type(outcome) for outcome in outcomes] == [WriterUnavailable] * 6
    wait_until(lambda: not writer.is_alive)
    assert writer.fault is not None
    with pytest.raises(WriterUnavailable):
        asyncio.run(writer.submit([pending(["x"])], 1))


def test_a_disk_that_does_not_answer_is_a_timeout_not_a_hang(
    writer: GroupCommit, journal: SlowJournal
) -> None:
    journal.gate.clear()
    with pytest.raises(WriterUnavailable, match="did not confirm"):
        asyncio.run(writer.submit([pending(["a"])], 1, timeout_s=0.1))


def test_ticks_come_only_after_traffic(journal: SlowJournal) -> None:
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=0.02)
    writer.start()
    time.sleep(0.15)
    assert journal.last_seq() == 0
    asyncio.run(writer.submit([pending(["a"])], 1))
    wait_until(lambda: journal.last_seq() >= 3)
    assert [block.kind for block in journal.read(0)][:3] == ["records", "tick", "tick"]
    writer.close()


def test_writer_takes_records_after_a_thousand_idle_ticks(journal: SlowJournal) -> None:
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=1e-320)  # whose doublings stay short that long
    writer.start()
    asyncio.run(writer.submit([pending(["a"])], 1))
    wait_until(lambda: journal.last_seq() >= 1100 or not writer._thread.is_alive())
    asyncio.run(writer.submit([pending(["b"])], 1))
    writer.close()


def test_closing_writes_what_is_queued(journal: SlowJournal) -> None:
    async def close_while_waiting() -> None:
        writer = GroupCommit(journal, queue_bytes=1000)
        writer.start()
        journal.gate.clear()
        tasks = [asyncio.create_task(writer.submit([pending([str(i)])], 1)) for i in range(5)]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(asyncio.to_thread(writer.close))
        await asyncio.sleep(0.05)
        journal.gate.set()
        await asyncio.gather(*tasks)
        await closing
        with pytest.raises(WriterUnavailable):
            await writer.submit([pending(["late"])], 1)

    asyncio.run(close_while_waiting())
    assert sorted(ids_in(journal)) == list("01234")


def wait_until(claim: Any, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)


def side(kind: Side, id_: str) -> PendingHalf:
    field = "inputs" if kind == "request" else "outputs"
    table = Batch.from_records([{"id": id_, field: {"x": 1}}], model="m").to_arrow()
    return PendingHalf("", kind, PendingBlock("records", "m", f"d.{field}", table))


WHOLE = (
    Batch.from_records([{"id": "a", "inputs": {"x": 1}, "outputs": {"x": 1}}], model="m").to_arrow().schema
)


@contextmanager
def joining(journal: SlowJournal, *, wait_s: float = 60.0, **options: Any) -> Iterator[GroupCommit]:
    joiner = Joiner(journal, wait_s=lambda _: wait_s, schema_of=lambda _: (WHOLE, "d"))
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=0.05, joiner=joiner, **options)
    writer.start()
    yield writer
    journal.gate.set()
    writer.close()


def records_in(journal: SqliteJournal) -> list[dict[str, Any]]:
    blocks = [block for block in journal.read(0, limit=1000) if block.kind == "records"]
    return [record for block in blocks for record in Batch.from_ipc(block.payload).to_records()]


def test_sides_are_durable_when_submit_returns_and_joined_with_the_commit_of_the_second(
    journal: SlowJournal,
) -> None:
    told: list[Committed] = []
    with joining(journal, on_commit=told.append) as writer:
        asyncio.run(writer.submit([pending(["b"])], 1, halves=[side("request", "a")]))
        assert [half.side for half in journal.due_halves(2**62)] == ["request"]
        asyncio.run(writer.submit([], 1, halves=[side("response", "a")]))
        assert [(r["id"], "outputs" in r) for r in records_in(journal)] == [("b", False), ("a", True)]
        assert [dict(one.outcomes) for one in told if one.outcomes] == [{("m", "joined"): 1}]


def test_sides_are_released_though_nothing_else_comes(journal: SlowJournal) -> None:
    with joining(journal, wait_s=0.05) as writer:
        asyncio.run(writer.submit([], 1, halves=[side("request", "a")]))
        wait_until(lambda: records_in(journal) != [])
    (record,) = records_in(journal)
    assert (record["id"], record["partial"]) == ("a", True)


def test_sides_of_the_process_before_are_released_though_nothing_ever_comes(journal: SlowJournal) -> None:
    with joining(journal, wait_s=0.3) as writer:
        asyncio.run(writer.submit([], 1, halves=[side("request", "a")]))
    assert journal.last_seq() == 0
    with joining(journal):
        wait_until(lambda: [r["id"] for r in records_in(journal)] == ["a"])


def test_sides_that_are_due_on_a_full_disk_are_released_once_there_is_room(journal: SlowJournal) -> None:
    with joining(journal, wait_s=0.2) as writer:
        asyncio.run(writer.submit([], 1, halves=[side("request", "a")]))
        journal.error = JournalFull("no room")
        wait_until(lambda: writer.fault is not None)
        with pytest.raises(JournalFull):
            asyncio.run(writer.submit([], 1, halves=[side("request", "b")]))
        journal.error = None
        wait_until(lambda: [r["id"] for r in records_in(journal)] == ["a"])


def test_sides_that_cannot_be_joined_are_refused_alone(
    journal: SlowJournal, caplog: pytest.LogCaptureFixture
) -> None:
    async def both() -> list[BaseException | None]:
        with joining(journal) as writer:
            journal.gate.clear()
            first = asyncio.create_task(writer.submit([pending(["x"])], 1))
            await asyncio.sleep(0.05)
            broken: Any = None  # stands for a fault of ours
            bad = PendingHalf("", "request", PendingBlock("records", "m", "e", broken))
            tasks = [writer.submit([], 1, halves=[bad]), writer.submit([], 1, halves=[side("request", "a")])]
            gathered = asyncio.gather(first, *tasks, return_exceptions=True)
            await asyncio.sleep(0.05)
            journal.gate.set()
            return await gathered

    outcomes = asyncio.run(both())
    assert [type(outcome) for outcome in outcomes] == [type(None), WriterUnavailable, type(None)]
    assert "no blocks could be made" in caplog.text
    assert [half.key for half in journal.due_halves(2**62)] == ["\x1fa"]


def test_a_request_of_which_no_block_can_be_made_is_refused_alone(
    writer: GroupCommit, journal: SlowJournal
) -> None:
    odd = pa.record_batch({"id": ["b"]})

    async def submit() -> list[object]:
        bad = [pending(["b"], digest="odd"), PendingBlock("records", "m", "odd", odd)]
        journal.gate.clear()
        first = asyncio.create_task(writer.submit([pending(["a"])], 1))
        await asyncio.sleep(0.1)
        rest = [asyncio.create_task(writer.submit(blocks, 1)) for blocks in (bad, [pending(["c"])])]
        await asyncio.sleep(0.1)
        journal.gate.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    done, refused, other = asyncio.run(submit())
    assert (done, type(refused), other) == (None, WriterUnavailable, None)
    assert writer.is_alive
    assert ids_in(journal) == ["a", "c"]
