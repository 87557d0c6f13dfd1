"""The clock of the service is set, while it runs or does not: a border in the journal, nothing is lost."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import load_assertions
from outrider.assertions.batch import TIME, Batch
from outrider.dataops.journal.journal import Entry, Half, SqliteJournal, step_entry
from outrider.monitor.intake.expiry import Expirer
from outrider.monitor.intake.group_commit import GroupCommit
from outrider.monitor.intake.pending_blocks import PendingBlock
from outrider.monitor.process.clock import ServiceClock, open_clock
from outrider.monitor.stream.event_time import are_ahead, max_ahead_us
from outrider.monitor.worker.replay import replay, stretch
from tests.end_to_end.service import CONFIG, write_project

from .test_expiry import expirer, quiet
from .workbench import START_US, Workbench, workbench

HOUR = 3_600_000_000
DAY = 24 * HOUR
PLAIN = CONFIG.replace('behavior = ["test_toy.py"]\n', "")
STEPS = (HOUR, -HOUR, DAY, -DAY, 8 * DAY, -8 * DAY)


@dataclass
class Clocks:
    """A wall clock that may be set, and one that may not."""

    wall_us: int = START_US
    steady_us: int = 5_000_000_000

    def run(self, seconds: float) -> None:
        self.wall_us += int(seconds * 1e6)
        self.steady_us += int(seconds * 1e6)

    def clock(self, **options: Any) -> ServiceClock:
        return ServiceClock(lambda: self.wall_us, lambda: self.steady_us, **options)

    def open(self, journal: SqliteJournal, boot: str = "b1") -> ServiceClock:
        return open_clock(
            journal, wall_us=lambda: self.wall_us, steady_us=lambda: self.steady_us, boot=lambda: boot
        )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        yield journal


@pytest.mark.parametrize("by_us", STEPS)
def test_a_step_is_noticed_and_the_clock_is_steady_an_hour_later(by_us: int) -> None:
    clocks = Clocks()
    clock = clocks.clock()
    clocks.run(86_400.0)
    assert clock.is_steady()
    assert clock.pending_us == 0
    clocks.wall_us += by_us
    assert clock.now_us() == clocks.wall_us
    assert clock.pending_us == by_us
    clock.written(by_us)
    clocks.run(3599.0)
    assert (clock.pending_us, clock.is_steady()) == (0, False)
    clocks.run(1.0)
    assert clock.is_steady()


def test_small_corrections_and_a_stopped_process_are_no_steps() -> None:
    clocks = Clocks()
    clock = clocks.clock()
    for _ in range(10):
        clocks.wall_us -= 50_000_000
        clock.now_us()
    clocks.run(10_000.0)
    clock.now_us()
    assert clock.pending_us == 0
    steady = iter([0, 0, 0, 90_000_000, 90_000_000, 90_000_000])  # stopped between the two looks
    walls = iter([0, 0, 90_000_000])
    clock = ServiceClock(lambda: next(walls), lambda: next(steady))
    assert (clock.now_us(), clock.pending_us) == (90_000_000, 0)


@pytest.mark.parametrize("by_us", STEPS)
def test_a_step_while_nothing_ran_is_known_since_the_machine_started(
    journal: SqliteJournal, by_us: int
) -> None:
    clocks = Clocks()
    first = clocks.open(journal)
    journal.append([Entry("records", "m", 1, b"x")], clocks.wall_us)
    journal.note_clock(json.dumps(json.loads(first.note()) | {"boot": "b1"}))
    clocks.run(500.0)
    assert clocks.open(journal).pending_us == 0
    clocks.wall_us += by_us
    assert clocks.open(journal).pending_us == by_us
    # After another start of the machine the newest block tells, where it lies in the future.
    clocks.steady_us = 0
    assert clocks.open(journal, "b2").pending_us == min(0, by_us + 500_000_000 if by_us < 0 else 0)


def test_an_hour_is_waited_for_over_a_restart(journal: SqliteJournal) -> None:
    clocks = Clocks()
    journal.append([Entry("tick", "", 0, b""), step_entry(DAY)], clocks.wall_us)
    clocks.run(3000.0)
    clock = clocks.open(journal, "")
    assert not clock.is_steady()
    clocks.run(600.0)
    assert clock.is_steady()


def block(id_: str, received_us: int, ts_us: int | None = None) -> PendingBlock:
    times = {"received": received_us, "ts": received_us if ts_us is None else ts_us}
    columns = {name: pa.array([us], pa.int64()).cast(TIME) for name, us in times.items()}
    batch = Batch.from_columns({"id": [id_], "inputs.x": [1], **columns}, model="m")
    return PendingBlock("records", "m", "d", batch.to_arrow())


def written(journal: SqliteJournal, clocks: Clocks, *groups: list[PendingBlock], **options: Any) -> None:
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=60.0, clock=clocks.open(journal), **options)
    writer.start()
    for blocks in groups:
        asyncio.run(writer.submit(blocks, 1))
    writer.close()


@pytest.mark.parametrize("by_us", STEPS)
def test_the_border_stands_before_what_came_behind_it_and_no_receipt_lies_in_the_future(
    journal: SqliteJournal, by_us: int
) -> None:
    clocks = Clocks()
    writer = GroupCommit(journal, queue_bytes=1000, tick_s=60.0, clock=clocks.open(journal))
    writer.start()
    asyncio.run(writer.submit([block("a", clocks.wall_us)], 1))
    journal.append([], clocks.wall_us, keep=[Half("m", "k", "request", START_US, START_US + 30_000_000, b"")])
    on_its_way = block("b", clocks.wall_us)
    clocks.wall_us += by_us
    clocks.run(2.0)
    asyncio.run(writer.submit([on_its_way], 1))
    asyncio.run(writer.submit([block("c", clocks.wall_us)], 1))
    writer.close()
    blocks = journal.read(0)
    assert [one.kind for one in blocks] == ["records", "step", "records", "records"]
    [step] = journal.steps()
    assert (step.seq, step.by_us, step.received_us) == (2, by_us, clocks.wall_us)
    for one in blocks[2:]:
        batch = Batch.from_ipc(one.payload)
        assert one.received_us == clocks.wall_us
        received = batch.column("received").astype("datetime64[us]").astype(int)[0]
        assert received == clocks.wall_us  # what was on its way was received by the clock as it is now
        assert (batch.column("ts") == batch.column("received")).all()
    [half] = journal.due_halves(2**62)
    assert (half.received_us, half.due_us) == (START_US + by_us, START_US + by_us + 30_000_000)
    assert clocks.open(journal).pending_us == 0


def test_event_times_ahead_are_marked_with_their_bound_unless_they_are_a_files(
    journal: SqliteJournal,
) -> None:
    clocks = Clocks()
    writer = GroupCommit(
        journal, queue_bytes=1000, tick_s=60.0, clock=clocks.open(journal), max_ahead_us=300_000_000
    )
    writer.start()
    now = clocks.wall_us
    asyncio.run(writer.submit([block("past", now, now - 1)], 1))
    asyncio.run(writer.submit([block("near", now, now + 300_000_000)], 1))
    asyncio.run(writer.submit([block("far", now, now + DAY), block("fine", now)], 1))
    asyncio.run(writer.submit([block("file", now, now + DAY)], 1, has_own_clock=True))
    writer.close()
    batches = [Batch.from_ipc(one.payload) for one in journal.read(0)]
    assert [max_ahead_us(batch.to_arrow()) for batch in batches] == [None, 300_000_000, 300_000_000, None]
    bounds = np.array([300_000_000] * 2)
    assert [are_ahead(b.to_arrow(), bounds[: b.rows]).tolist() for b in batches[1:3]] == [
        [False],
        [True, False],
    ]
    assert len({batch.schema_digest for batch in batches}) == 1
    assert len(journal.schemas()) == 1
    assert max_ahead_us(pa.ipc.read_schema(pa.py_buffer(journal.schemas()[0].payload)).empty_table()) is None


def at(bench: Workbench, by_us: int) -> None:
    """Set the clock of the service."""
    bench.now_us += by_us
    bench.journal.append([step_entry(by_us)], bench.now_us)


def person(number: int, x: float) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"x": x}, "entity": "e"}


def replayed(bench: Workbench) -> set[tuple[str, str]]:
    judges = load_assertions(bench.config.parent / "checks.py")
    model = bench.settings.models["toy"]
    which = stretch(bench.journal, judges, since_us=0, until=bench.journal.last_seq())
    found = replay(bench.engine, bench.journal, "toy", model, judges, which)
    assert found.failures == {}
    return set(found.flags.select("assertion", "record_id"))


@pytest.mark.parametrize("by_us", [-DAY, -HOUR, HOUR, 8 * DAY])
def test_windows_judge_known_entities_at_once_behind_a_step_and_replay_equals(
    tmp_path: Path, by_us: int
) -> None:
    config = write_project(tmp_path, config=PLAIN)
    with workbench(config) as bench:
        for number in range(10):
            bench.feed([person(number, 0.2 + 0.6 * (number % 2))])
        bench.work()
        before = bench.flags("flips")
        assert before == {f"r{number}" for number in range(1, 10)}
        at(bench, by_us)
        if by_us == -DAY:
            bench.restart()
        for number in range(10, 20):
            bench.feed([person(number, 0.2 + 0.6 * (number % 2))])
            if number == 14:
                bench.work()
                bench.restart()
        bench.work()
        # The first record behind the border has none before it; all others are compared.
        assert bench.flags("flips") == before | {f"r{number}" for number in range(11, 20)}
        assert bench.count("late") == 0
        said = bench.rows("SELECT record_id, evidence FROM flag WHERE assertion = 'flips' ORDER BY seq")
        restarted = [key for key, evidence in said if evidence and "windows_restarted" in evidence]
        assert set(restarted) == {f"r{number}" for number in range(11, 20)}
        live = set(bench.rows("SELECT assertion, record_id FROM flag"))
        assert replayed(bench) == live
        incidents = bench.rows("SELECT kind, model, status, flags FROM incident WHERE kind = 'clock'")
        assert incidents == [("clock", "", "open", 1)]


def test_steps_there_and_back_are_one_incident_that_ends_when_the_clock_was_steady(tmp_path: Path) -> None:
    two = PLAIN + PLAIN[PLAIN.index("[models.toy]") :].replace("toy]", "other]")
    with workbench(write_project(tmp_path, config=two)) as bench:
        bench.feed([person(0, 0.95)])
        bench.work()
        assert bench.rows("SELECT status, assertion FROM incident") == [("open", "too_high")]
        at(bench, 8 * DAY)
        bench.work()
        at(bench, -8 * DAY)
        bench.work()
        # The incident of the flags is no older than it was.
        query = "SELECT kind, model, status, flags FROM incident ORDER BY kind"
        assert bench.rows(query) == [("clock", "", "open", 2), ("flags", "toy", "open", 1)]
        for seconds in (800.0, 200.0, 2500.0, 101.0, 1.0):
            bench.now_us += int(seconds * 1e6)
            bench.journal.append([Entry("tick", "", 0, b"")], bench.now_us)
            bench.work()
            rows = {kind: status for kind, _, status, _ in bench.rows(query)}
            waited = bench.now_us - bench.journal.steps()[-1].received_us
            assert rows["flags"] == ("resolved" if waited > 900_000_000 else "open"), waited
            assert rows["clock"] == ("resolved" if waited > HOUR else "open"), waited


@pytest.mark.parametrize("by_us", [DAY, -DAY])
def test_suspensions_last_as_long_as_they_would_have(tmp_path: Path, by_us: int) -> None:
    with workbench(write_project(tmp_path, config=PLAIN)) as bench:
        bench.feed([person(0, 0.1)])
        bench.work()
        until = bench.now_us + HOUR
        bench.execute("UPDATE assertion SET suspended_until_us = :us WHERE name = 'flips'", us=until)
        at(bench, by_us)
        bench.work()
        found = bench.rows("SELECT suspended_until_us FROM assertion WHERE name = 'flips' AND active")
        assert found == [(until + by_us,)]


@pytest.mark.parametrize("far_us", [DAY, 290_000_000])
def test_one_wrong_clock_does_not_silence_an_entity(tmp_path: Path, far_us: int) -> None:
    is_far = far_us > 300_000_000
    with workbench(write_project(tmp_path, config=PLAIN)) as bench:

        def feed(number: int, ahead_us: int = 0) -> None:
            bench.now_us += 100_000
            batch = Batch.from_records([person(number, 0.2 + 0.6 * (number % 2))], model="toy")
            times = {"received": bench.now_us, "ts": bench.now_us + ahead_us}
            batch = batch.with_columns({k: pa.array([us], pa.int64()).cast(TIME) for k, us in times.items()})
            table = batch.to_arrow()
            if ahead_us:
                said = (table.schema.metadata or {}) | {b"outrider.max_ahead_us": b"300000000"}
                batch = Batch(table.replace_schema_metadata(said), model="toy")
            bench.journal.append([Entry("records", "toy", 1, batch.to_ipc())], bench.now_us)

        for number in range(50):
            feed(number, far_us if number == 5 else 0)
            if number == 20:
                bench.work()
                bench.restart()
        bench.work()
        waits = set() if is_far else {"r5", "r6"}  # r5 until its time has come, so that r6 stands behind r4
        assert bench.flags("flips") == {f"r{number}" for number in range(1, 50)} - waits
        assert (bench.count("late"), bench.count("ahead")) == (0, int(is_far))
        if not is_far:
            assert replayed(bench) == set(bench.rows("SELECT assertion, record_id FROM flag"))
            return
        assert bench.rows("SELECT kind, model, flags, status FROM incident WHERE kind = 'event_time'") == [
            ("event_time", "toy", 1, "open")
        ]
        assert replayed(bench) == set(bench.rows("SELECT assertion, record_id FROM flag"))
        [(kept,)] = bench.rows("SELECT ts_us FROM record WHERE id = 'r5'")
        assert kept > bench.now_us + DAY - HOUR  # the client's own
        feed(100, 2 * DAY)
        bench.work()
        assert bench.rows("SELECT flags, status FROM incident WHERE kind = 'event_time'") == [(2, "open")]
        bench.now_us += 901_000_000
        bench.journal.append([Entry("tick", "", 0, b"")], bench.now_us)
        bench.work()
        assert bench.rows("SELECT status FROM incident WHERE kind = 'event_time'") == [("resolved",)]


def test_nothing_expires_for_a_step_of_the_clock(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=PLAIN + "\n[storage]\nkeep_around_rows = 0\n")
    with workbench(config) as bench:
        bench.feed(quiet("a"))
        bench.label({"a0": 1})
        bench.feed(quiet("b"))
        at(bench, 8 * DAY)
        bench.feed(quiet("c"))
        bench.work()
        bench.execute("UPDATE window_checkpoint SET seq = (SELECT max(seq) FROM cursor)")
        seqs = [one.seq for one in bench.journal.read(0)]

        def expire(own: Expirer, now_us: int) -> list[int]:
            while own.step(now_us):
                pass
            return [one.seq for one in bench.journal.read(0)]

        own, _ = expirer(bench)
        assert expire(own, bench.now_us) == seqs  # by the clock of today they are as young as they were
        clocks = Clocks(bench.now_us)
        own._clock = clocks.clock(pending_us=HOUR)
        assert expire(own, bench.now_us + 30 * DAY) == seqs  # and no clock is believed within an hour
        clocks.run(3600.0)
        left = expire(own, bench.now_us + 7 * DAY + HOUR)
        assert bench.journal.read(0)[0].kind == "step"
        assert left[0] == bench.journal.steps()[0].seq
        own._reader.close()
