"""Records as cases of a suite file, whatever they and their changed copies hold."""

from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests.suite_file import runnable
from outrider.behavioral_tests.suite_file.written import WrittenSuite
from outrider.dataops.datasets.incident_cases import IncidentRecord, NoCase, RightAnswer, as_inv, as_mft

INCIDENT = IncidentRecord("mood", "r1", 1, 0, "1")
RECORD = Batch.from_records([{"id": "r1", "inputs": {"text": "fine"}}], model="mood")


def test_a_changed_copy_may_lack_its_text() -> None:
    test = as_inv(INCIDENT, RECORD, [{"text": "Fine"}, {}], target="label", name=None, by="me", at="")
    assert test.cases[0].inputs == ["fine", "Fine", {}]
    (made,) = runnable(WrittenSuite(outrider_suite=1, name="incidents", tests=[test]), file="x.suite.json")
    assert made.examples().batch.column("inputs.text").tolist() == ["fine", "Fine", None]


@pytest.mark.parametrize("label", [10**30, [1, "a"], "\ud800"])
def test_a_right_answer_that_no_column_can_hold_is_refused(label: Any) -> None:
    with pytest.raises(NoCase, match="r1: no right answer that a column can hold"):
        as_mft(INCIDENT, RECORD, RightAnswer(label, "me"), target="label", at="")
