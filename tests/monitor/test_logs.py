"""Logs: one JSON object per line with record ids, and never more lines than a person can read."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.process.logs import JsonLines, RecordLog, TextLines
from tests.end_to_end.service import write_project

from .workbench import workbench


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines() -> Any:
    stream = io.StringIO()
    log = logging.getLogger("test of logs")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("intake"))
    log.addHandler(handler)
    log.propagate = False
    yield log, lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.removeHandler(handler)


def test_what_a_sender_made_up_stays_in_its_line_and_steers_no_terminal() -> None:
    forged = "r1\n2026-01-01 intake INFO all is well\r\x1b[2J\u2028\x85"
    text = logging.makeLogRecord({"msg": "refused: %s", "args": (forged,), "levelname": "WARNING"})
    first, second = TextLines("%(levelname)s %(message)s").format(text).splitlines()
    assert first == "WARNING refused: r1"
    assert second == r"    2026-01-01 intake INFO all is well\r\x1b[2J\u2028\x85"
    (line,) = JsonLines("intake").format(text).splitlines()
    assert json.loads(line)["message"] == f"refused: {forged}"


def test_a_line_has_model_record_id_and_reason(lines: Any) -> None:
    log, read = lines
    RecordLog(log).note("rejected", model="churn", record_id='a"1\n', reason="schema", field="inputs.age")
    (line,) = read()
    assert line["ts"].endswith("Z")
    told = {
        name: line[name] for name in ("level", "process", "event", "model", "record_id", "reason", "field")
    }
    assert told == {
        "level": "warning",
        "process": "intake",
        "event": "rejected",
        "model": "churn",
        "record_id": 'a"1\n',
        "reason": "schema",
        "field": "inputs.age",
    }
    assert "\n" not in line["message"]


def test_the_rate_is_bounded_per_kind_and_what_was_left_out_is_said(lines: Any) -> None:
    log, read = lines
    clock = Clock()
    records = RecordLog(log, lines=3, per_s=10, clock=clock)
    for n in range(50):
        records.note("rejected", model="churn", record_id=str(n), reason="schema")
    records.note("rejected", model="churn", record_id="x", reason="malformed")
    assert [line["record_id"] for line in read()] == ["0", "1", "2", "x"]
    clock.now = 10.0
    records.note("rejected", model="churn", record_id="50", reason="schema")
    assert read()[-1]["left_out"] == 47
    assert "47 more like it were not logged" in read()[-1]["message"]


def test_names_that_anybody_sends_do_not_fill_the_memory(lines: Any) -> None:
    log, _ = lines
    records = RecordLog(log)
    for n in range(2000):
        records.note("rejected", model=f"m{n}", record_id=None, reason="unknown_model")
    assert len(records._seen) <= 256


def test_an_exception_is_one_line(lines: Any) -> None:
    log, read = lines
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it failed")
    (line,) = read()
    assert line["message"] == "it failed"
    assert "ValueError: two" in line["exception"]


def test_uncaught_exceptions_and_warnings_are_lines_too() -> None:
    code = (
        "import threading, warnings; from outrider.monitor.process.logs import set_up;"
        "set_up('worker', 'json');"
        "warnings.warn('odd'); t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); [][0]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in told] == ["warning", "critical", "critical"]
    assert "division by zero" in told[1]["message"]
    assert "IndexError" in told[2]["exception"]


def test_dead_letters_are_logged_with_their_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([{"id": "r0", "inputs": {"x": 0.1}}])
        bench.feed([{"id": "r0", "inputs": {"x": 0.2}}])
        bench.work()
    (found,) = [record for record in caplog.records if getattr(record, "event", "") == "dead letter"]
    assert (found.model, found.record_id, found.reason) == ("toy", "r0", "conflict")  # type: ignore[attr-defined]  # given as extra
