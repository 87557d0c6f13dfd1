"""Request and response become one record, or each its own: in the same commit, later, after a restart."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.monitor.intake.join import REMEMBER_S

from .joining_bench import SECOND, WAIT_S, Bench, half, request, response


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "journal.db")
    yield bench
    bench.close()


def brief(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["id"], record.get("inputs"), record.get("outputs"), bool(record.get("partial"))


def test_sides_of_one_commit_are_one_record_in_either_order(bench: Bench) -> None:
    bench.send(request("a", x=1), response("a", y=0.5))
    bench.send(response("b", y=0.75), request("b", x=2))
    assert [brief(record) for record in bench.records()] == [
        ("a", {"x": 1}, {"y": 0.5}, False),
        ("b", {"x": 2}, {"y": 0.75}, False),
    ]
    assert bench.outcomes == {"joined": 2}


def test_a_side_waits_in_the_journal_for_the_other(bench: Bench) -> None:
    bench.send(request("a", x=1), request("b", x=2))
    assert bench.records() == []
    bench.send(response("b", y=0.75))
    assert [brief(record) for record in bench.records()] == [("b", {"x": 2}, {"y": 0.75}, False)]


def test_a_side_waits_through_a_restart_and_its_types_are_remembered(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal.db")
    bench.send(response("a", y=0.5, z="good"))
    bench.close()
    again = Bench(tmp_path / "journal.db")
    again.send(response("b", y=1, z="bad"))  # an int would make y a column of integers
    again.send(request("a", x=1), request("b", x=2))
    assert [brief(record) for record in again.records()] == [
        ("a", {"x": 1}, {"y": 0.5, "z": "good"}, False),
        ("b", {"x": 2}, {"y": 1.0, "z": "bad"}, False),
    ]
    again.close()


def test_a_side_alone_is_a_partial_record_when_its_time_has_passed(bench: Bench) -> None:
    bench.send(request("a", x=1), response("b", y=0.5))
    bench.wait(WAIT_S - 1)
    assert bench.records() == []
    bench.wait(1)
    assert [brief(record) for record in bench.records()] == [
        ("a", {"x": 1}, None, True),
        ("b", None, {"y": 0.5}, True),
    ]
    assert bench.outcomes == {"partial": 2}
    assert bench.joiner.next_due_us is None


def test_a_side_that_comes_after_that_is_a_record_of_its_own(bench: Bench) -> None:
    bench.send(request("a", x=1), response("b", y=0.5))
    bench.wait(WAIT_S)
    bench.send(response("a", y=0.25), request("b", x=2))
    bench.send(response("a", y=0.25), request("b", x=2))  # once more: they are known by now
    assert [brief(record) for record in bench.records()[2:]] == [
        ("a:response", None, {"y": 0.25}, True),
        ("b:request", {"x": 2}, None, True),
    ]
    assert bench.outcomes == {"partial": 2, "late": 2, "repeated": 2}


def test_repeats_are_ignored_before_and_after_the_join(bench: Bench) -> None:
    bench.send(request("a", x=1), request("a", x=9))
    bench.send(request("a", x=8))
    bench.send(response("a"), response("a"))
    bench.send(request("a", x=7), response("a"))
    bench.wait(WAIT_S * 2)
    assert [brief(record) for record in bench.records()] == [("a", {"x": 1}, {"y": 0.5}, False)]
    assert bench.outcomes == {"repeated": 5, "joined": 1}


def test_what_was_done_is_forgotten_in_time(bench: Bench, tmp_path: Path) -> None:
    bench.send(request("a"), response("a"))
    with sqlite3.connect(tmp_path / "journal.db") as db:
        count = "SELECT count(*) FROM half"
        assert db.execute(count).fetchone() == (1,)
        bench.wait(WAIT_S + REMEMBER_S)
        bench.send(request("b"), response("b"))
        assert db.execute(count).fetchone() == (1,)
    db.close()


def test_equal_ids_of_other_scopes_are_other_records(bench: Bench) -> None:
    bench.send(request("a", key="one", x=1), response("a", key="two", y=0.5))
    assert bench.records() == []
    bench.send(request("a", key="two", x=2))
    assert [brief(record) for record in bench.records()] == [("a", {"x": 2}, {"y": 0.5}, False)]


def test_rows_of_one_request_wait_each_for_itself(bench: Bench) -> None:
    bench.send(half("request", [{"id": f"r:{i}", "inputs": {"x": i}} for i in range(3)], key="s"))
    bench.send(half("response", [{"id": f"r:{i}", "outputs": {"y": i / 2}} for i in (2, 0)], key="s"))
    assert sorted(brief(record) for record in bench.records()) == [
        ("r:0", {"x": 0}, {"y": 0.0}, False),
        ("r:2", {"x": 2}, {"y": 1.0}, False),
    ]
    bench.wait(WAIT_S)
    assert brief(bench.records()[2]) == ("r:1", {"x": 1}, None, True)


def test_a_record_takes_its_system_columns_from_both_sides(bench: Bench) -> None:
    asked = {"id": "a", "ts": "2026-01-05T10:00:00Z", "entity": "u7", "inputs": {"x": 1}, "weight": 4.0}
    bench.send(half("request", [asked | {"attrs": {"route": "eu", "size": 3}}]))
    bench.now_us += SECOND
    said = {"id": "a", "ts": "2026-01-05T10:00:02Z", "version": "3", "outputs": {"y": 0.5}}
    bench.send(half("response", [said | {"attrs": {"route": "us", "latency_s": 0.25}}]))
    (record,) = bench.records()
    assert (record["entity"], record["version"], record["weight"]) == ("u7", "3", 4.0)
    assert record["ts"] == "2026-01-05T10:00:00Z"
    assert record["attrs"] == {"route": "eu", "size": 3, "latency_s": 0.25}
    (block,) = bench.journal.read(0)
    received = Batch.from_ipc(block.payload).to_arrow().column("received")
    assert received.cast(pa.int64()).to_pylist() == [1001 * SECOND]


def test_columns_and_types_that_came_meanwhile_are_those_of_the_record(bench: Bench) -> None:
    bench.send(request("a", x=1, boxes=[{"left": 1}]))
    bench.send(request("b", x=0.5, boxes=[{"left": 2.5, "name": "car"}], new="n"))
    bench.send(response("a"), response("b"))
    assert [record["inputs"] for record in bench.records()] == [
        {"x": 1.0, "boxes": [{"left": 1.0, "name": None}]},
        {"x": 0.5, "boxes": [{"left": 2.5, "name": "car"}], "new": "n"},
    ]


def test_sides_that_no_longer_fit_together_are_partial_records_each(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal.db", {"inputs.x": "string", "outputs.y": "float"})
    bench.send(request("a", x="one"), request("b", x="7"))
    bench.close()
    again = Bench(tmp_path / "journal.db", {"inputs.x": "int", "outputs.y": "float"})
    again.send(response("a"), request("c", x=3), response("c"))
    assert sorted(map(brief, again.records())) == [
        ("a", {"x": "one"}, None, True),
        ("a:response", None, {"y": 0.5}, True),
        ("c", {"x": 3}, {"y": 0.5}, False),
    ]
    assert again.outcomes == {"joined": 1, "unfit": 1}
    again.wait(WAIT_S)
    assert brief(again.records()[-1]) == ("b", {"x": "7"}, None, True)
    again.close()


def test_a_side_whose_bytes_changed_on_the_disk_becomes_a_dead_letter(bench: Bench, tmp_path: Path) -> None:
    bench.send(request("a"), request("b"))
    with sqlite3.connect(tmp_path / "journal.db") as db:
        payload = bytearray(db.execute("SELECT payload FROM half WHERE key LIKE '%a'").fetchone()[0])
        payload[-3] ^= 4
        db.execute("UPDATE half SET payload = ? WHERE key LIKE '%a'", (bytes(payload),))
    db.close()
    bench.send(response("a"), response("b"))
    blocks = bench.journal.read(0)
    assert [block.payload == bytes(payload) for block in blocks] == [False, True]
    assert bench.outcomes == {"unreadable": 1, "joined": 1}
    bench.wait(WAIT_S)
    assert bench.outcomes == {"unreadable": 1, "joined": 1, "partial": 1}  # the response of a


def test_a_refused_commit_leaves_everything_as_it_was(bench: Bench) -> None:
    bench.send(request("a"))
    lost = bench.joiner.join(bench.halves(response("a")), bench.now_us)
    assert len(lost.blocks) == 1
    bench.send(response("a"))  # sent again, as the sender was told to
    assert bench.outcomes == {"joined": 1}
