"""An assertion that judged and does so no more is told with its fault; one that rests is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.dataops.alarms.assertion_silence import SilentAssertion
from tests.end_to_end.service import write_project
from tests.monitor.workbench import Workbench, workbench

CHECKS = '''
from outrider.assertions import assertion


@assertion
def too_fast(batch):
    """Faster than 100."""
    return batch.column("attrs.speed") > 100


@assertion
def too_high(batch):
    """x above 2."""
    return batch.column("inputs.x") > 2
'''


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    with workbench(write_project(tmp_path, checks=CHECKS)) as made:
        yield made


def block(bench: Workbench, *, after_s: float, attrs: dict[str, Any] | None) -> None:
    seq = len(bench.journal.read(0, model="toy", limit=1000))
    row = {"inputs": {"x": 0.7}, "outputs": {"label": 1, "score": 0.9}}
    more = {} if attrs is None else {"attrs": attrs}
    bench.feed([{"id": f"r{seq}-{at}"} | row | more for at in range(3)], after_s=after_s)
    bench.work()


def incidents(bench: Workbench) -> list[tuple[Any, ...]]:
    return bench.rows("SELECT assertion, status, kind FROM incident WHERE kind = 'silence'")


@pytest.mark.parametrize("after_s", [400.0, 60.0])
def test_a_column_that_is_gone_is_told_until_it_is_back(bench: Workbench, after_s: float) -> None:
    for _ in range(5):
        block(bench, after_s=after_s, attrs={"speed": 10.0})
    judged = bench.rows("SELECT name, judged_us FROM assertion WHERE judged_us > 0 ORDER BY 1")
    assert [name for name, _ in judged] == ["too_fast", "too_high"]
    assert bench.now_us - judged[0][1] < 61_000_000
    revised = f"UPDATE assertion SET first_seq = 1, first_seen_us = {bench.now_us} WHERE name = 'too_fast'"
    bench.execute(revised)
    for _ in range(2):
        block(bench, after_s=after_s, attrs=None)
    assert incidents(bench) == []
    for _ in range(int(1300 // after_s)):
        block(bench, after_s=after_s, attrs=None)
    assert incidents(bench) == [("too_fast", "open", "silence")]
    ((details,),) = bench.rows("SELECT details FROM incident WHERE kind = 'silence'")
    told = json.loads(details)
    assert (told["column"], told["action"]) == ("attrs.speed", "check_sender")
    assert told["reason"] == "column attrs.speed is gone"
    assert told["event"]["name"] == "too_fast"
    bench.restart()
    block(bench, after_s=after_s, attrs=None)
    assert incidents(bench) == [("too_fast", "open", "silence")]
    block(bench, after_s=3700, attrs={"speed": 10.0})  # a suspension is over by then
    block(bench, after_s=60, attrs={"speed": 10.0})
    assert incidents(bench) == [("too_fast", "resolved", "silence")]


def test_one_that_a_person_suspended_and_one_that_never_judged_are_not_silent(bench: Workbench) -> None:
    for _ in range(3):
        block(bench, after_s=400, attrs=None)  # it has never judged
    for _ in range(6):
        block(bench, after_s=400, attrs=None)
    assert incidents(bench) == []
    bench.execute("UPDATE assertion SET judged_us = 1, suspended_until_us = 9e15, suspension = 'noise'")
    block(bench, after_s=400, attrs=None)
    assert incidents(bench) == []
    bench.execute("UPDATE assertion SET suspended_until_us = 0, suspension = '' WHERE name = 'too_fast'")
    block(bench, after_s=400, attrs=None)
    block(bench, after_s=400, attrs=None)
    assert incidents(bench) == [("too_fast", "open", "silence")]
    bench.execute("UPDATE assertion SET suspended_until_us = 9e15, suspension = 'noise'")
    block(bench, after_s=400, attrs=None)
    assert incidents(bench) == [("too_fast", "resolved", "silence")]


@pytest.mark.parametrize(
    ("reason", "detail", "fault"),
    [
        (
            "raised",
            'File "x", line 1\nKeyError: "no column \'inputs.age\'; there are id"',
            "column inputs.age is gone",
        ),
        ("raised", "Traceback\nValueError: bad value Jane Doe\n", "raised ValueError"),
        ("raised", "Traceback\noutrider.errors.SchemaMismatch: inputs.x: Jane", "raised SchemaMismatch"),
        ("deadline", "took 5 s, Jane", "deadline"),
        ("out_of_memory", "", "out of memory"),
    ],
)
def test_faults_name_no_value(reason: str, detail: str, fault: str) -> None:
    one = SilentAssertion("a", 0, 0, 3, reason, detail)
    assert one.fault == fault
    assert "Jane" not in json.dumps(one.details("m", None)) + one.sentence
