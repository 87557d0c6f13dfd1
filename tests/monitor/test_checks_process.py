"""Expectations of a user's own files: they judge, and what they do wrong stays in their process."""

import threading
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets.validation import Earlier, Rules
from outrider.errors import ValidationRefused
from outrider.monitor.trainer.checks_process import build_problems, judged
from outrider.monitor.trainer.context import Stopping
from tests.forked import forks
from tests.soak import PATIENCE_S

EVEN = """
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import ColumnMapMetricProvider, column_condition_partial


class ColumnValuesEven(ColumnMapMetricProvider):
    condition_metric_name = "column_values.even_numbers"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column, **kwargs):
        {body}
        return column % 2 == 0


class ExpectColumnValuesToBeEven(ColumnMapExpectation):
    map_metric = "column_values.even_numbers"
    success_keys = ("mostly",)
"""
SUBCLASS = """
import great_expectations as gx


class ExpectRoom(gx.expectations.ExpectColumnMeanToBeBetween):
    column: str = "inputs.x"
    max_value: float = 3.0
"""
EVENLY: dict[str, Any] = {"type": "expect_column_values_to_be_even", "kwargs": {"column": "x"}}


@pytest.fixture(autouse=True)
def _forked() -> Any:
    with forks("great_expectations"):
        yield


def rows(*x: float, first: int = 0) -> Batch:
    ids = [f"r{first + row}" for row in range(len(x))]
    columns = {"id": ids, "inputs.x": list(x), "label.label": [0] * len(x)}
    return Batch.from_columns(columns, model="m", rows=len(x))


def checks(folder: Path, content: str = EVEN, *, body: str = "pass") -> list[Path]:
    path = folder / "checks.py"
    path.write_text(content.replace("{body}", body))
    return [path]


def rules(*own: dict[str, Any]) -> Rules:
    return Rules(inputs=("x",), expectations=[{"severity": "critical", **item} for item in own])


def test_an_expectation_of_the_users_own_quarantines_rows(tmp_path: Path) -> None:
    found = judged(rows(2, 3, 4), rules(EVENLY), title="m@1", checks=checks(tmp_path))
    assert found.verdict.rows == [0, 2]
    assert "expect_column_values_to_be_even(column='inputs.x')" in found.verdict.quarantined[1]
    assert found.verdict.summary["aggregates"]["rows"] == 2
    assert b"m@1" in found.docs


def test_an_edit_is_taken_up_by_the_next_validation(tmp_path: Path) -> None:
    assert judged(rows(3, 2), rules(EVENLY), title="m", checks=checks(tmp_path)).verdict.rows == [1]
    edited = checks(tmp_path, EVEN.replace("% 2 == 0", "% 2 == 1"))
    assert judged(rows(3, 2), rules(EVENLY), title="m", checks=edited).verdict.rows == [0]


def test_one_that_is_not_of_rows_is_asked_of_the_earlier_ones_too(tmp_path: Path) -> None:
    room = {"type": "expect_room", "kwargs": {}}
    before = Earlier(None, lambda: rows(1, 1, 1, 1))
    new = rows(6, first=4)
    paths = checks(tmp_path, SUBCLASS)
    assert judged(new, rules(room), title="m", earlier=before, checks=paths).verdict.rows == [0]
    with pytest.raises(ValidationRefused, match="expect_room"):
        judged(new, rules(room), title="m", checks=paths)


def test_a_refusal_names_its_rows_across_the_process(tmp_path: Path) -> None:
    with pytest.raises(ValidationRefused, match="none of 2 rows passes") as refused:
        judged(rows(1, 3), rules(EVENLY), title="m", checks=checks(tmp_path))
    assert list(refused.value.rows) == [0, 1]
    assert "expect_column_values_to_be_even" in refused.value.rows[1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "__import__('time').sleep(600)",
            r"longer than 10 s \(validation.deadline_s\); it stood at checks.py:12",
        ),
        ("__import__('os')._exit(7)", r"the process of checks.py ended \(exit code 7\)"),
        ("__import__('os').abort()", r"ended \(exit code -6\); it stood at checks.py:12"),
        ("raise ValueError('secret')", r"could not be evaluated: ValueError at checks.py:12"),
    ],
)
def test_what_it_does_wrong_refuses_the_rows_and_says_where(tmp_path: Path, body: str, reason: str) -> None:
    deadline_s = 10.0 if "sleep" in body else PATIENCE_S
    with pytest.raises(ValidationRefused, match=reason) as refused:
        judged(rows(1), rules(EVENLY), title="m", checks=checks(tmp_path, body=body), deadline_s=deadline_s)
    assert "secret" not in str(refused.value)


def test_a_trainer_that_is_asked_to_end_does_not_wait_for_it(tmp_path: Path) -> None:
    stop = threading.Event()

    def pause() -> None:
        stop.set()
        raise Stopping("the trainer was asked to end")

    with pytest.raises(Stopping):
        judged(
            rows(1),
            rules(EVENLY),
            title="m",
            checks=checks(tmp_path, body="while True: pass"),
            deadline_s=PATIENCE_S,
            pause=pause,
        )
    assert stop.is_set()


def test_problems_of_a_suite_are_found_before_there_are_rows(tmp_path: Path) -> None:
    suite = [
        {"type": "expect_column_values_to_be_evn", "kwargs": {"column": "x"}, "severity": "critical"},
        {"type": "expect_room", "kwargs": {}, "severity": "critical"},
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "x", "max": 1}, "severity": "info"},
    ]
    both = checks(tmp_path, EVEN + SUBCLASS)
    evn, wrong = build_problems(suite, both)
    assert "it does not exist; nearest: expect_column_values_to_be_even" in evn
    assert wrong.startswith("[2]: expectation 'expect_column_mean_to_be_between' cannot be used")
    assert "max extra fields not permitted" in wrong
    broken = checks(tmp_path, "import nothing_there")
    assert "checks.py:1: ModuleNotFoundError" in build_problems([], broken)[0]
