"""Tests that were not run because the model gave no answer: neither passed nor failed."""

from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import MFT
from outrider.behavioral_tests.compare import compare_models
from outrider.behavioral_tests.runner import exit_code
from outrider.behavioral_tests.running import run_tests
from outrider.errors import ServerError

WELL = MFT(name="test_well", cases=[{"x": 1.0}], labels=1)
FAR = MFT(name="test_far", cases=[{"x": 2.0}], labels=1)
ILL = MFT(name="test_ill", cases=[{"x": 3.0}], labels=1)


def model(batch: Batch) -> dict[str, Any]:
    (x,) = batch.column("inputs.x").tolist()
    if x == 2.0:
        raise ServerError("http://far gave no answer within 2 s")
    return {"label": [int(x == 1.0)]}


def whole(batch: Batch) -> dict[str, Any]:
    return {"label": [1] * batch.rows}


@pytest.mark.parametrize(
    ("tests", "code"), [([WELL], 0), ([WELL, FAR], 4), ([WELL, FAR, ILL], 1), ([ILL], 1), ([FAR], 4)]
)
def test_run_without_an_answer_has_an_exit_code_of_its_own(tests: list[MFT], code: int) -> None:
    outcomes = run_tests(tests, model)
    assert exit_code(outcomes) == code
    assert [o.is_unanswered for o in outcomes] == [test is FAR for test in tests]


@pytest.mark.parametrize("models", [(whole, model), (model, whole)])
def test_comparison_without_an_answer_finds_nothing_worse_and_says_so(models: Any) -> None:
    found = compare_models([WELL, FAR], *models)
    assert (found.exit_code, found.regressions) == (4, ())
    assert found.rows[1].verdict == "not comparable"
    assert "could not be run" in found.rows[1].reason
