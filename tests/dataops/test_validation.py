import subprocess
import sys

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets.validation import Rules, floor_problems, validate
from outrider.errors import ValidationRefused

RULES = Rules(classes=(0, 1, 2), inputs=("age",))


def rows(**columns: object) -> Batch:
    known: dict[str, object] = {"inputs.age": [30.0, 41.0, 52.0], "label.label": [0, 1, 2]}
    known |= {name.replace("__", "."): values for name, values in columns.items()}
    return Batch.from_columns(known, model="churn", rows=3)


def test_good_rows_pass(capfd: pytest.CaptureFixture[str]) -> None:
    verdict = validate(rows(), RULES)
    assert verdict.rows == [0, 1, 2]
    assert verdict.summary["quarantined"] == 0
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""  # no progress bars


def test_a_category_outside_the_set_is_quarantined_by_great_expectations_alone() -> None:
    batch = rows(label__label=[0, 11, 2])
    assert floor_problems(batch, RULES, ["something"], None) == []
    verdict = validate(batch, RULES)
    assert verdict.rows == [0, 2]
    assert "expect_column_values_to_be_in_set" in verdict.quarantined[1]


def test_the_users_expectations_decide_too() -> None:
    own = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "inputs.age", "max_value": 50}}
    verdict = validate(rows(), Rules(classes=(0, 1, 2), expectations=[own]))
    assert list(verdict.quarantined) == [2]


def test_an_expectation_on_the_table_refuses_all_of_it() -> None:
    own = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 10}}
    with pytest.raises(ValidationRefused, match=r"expect_table_row_count_to_be_between.*observed 3"):
        validate(rows(), Rules(classes=(0, 1, 2), expectations=[own]))


def test_tensors_are_judged_by_their_extremes() -> None:
    images = np.zeros((3, 2, 2), np.float32)
    images[1, 0, 0] = 300
    own = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "inputs.image.max", "max_value": 255},
    }
    verdict = validate(rows(inputs__image=images), Rules(inputs=("image",), expectations=[own]))
    assert list(verdict.quarantined) == [1]


def test_nulls_of_declared_inputs_and_labels_are_quarantined() -> None:
    verdict = validate(rows(inputs__age=[1.0, None, 3.0], label__label=[0, 1, None]), RULES)
    assert list(verdict.quarantined) == [1, 2]


def test_not_a_number_is_quarantined() -> None:
    verdict = validate(rows(inputs__age=np.array([1.0, np.inf, 3.0])), RULES)
    assert verdict.quarantined == {1: "inputs.age is NaN or infinite"}


@pytest.mark.parametrize(
    ("batch", "rules", "reason"),
    [
        (rows().slice(0, 0), RULES, "there is no row"),
        (rows(), Rules(target="other"), "nothing to check by"),
        (rows(inputs__age=[None, None, None]), RULES, "inputs.age is null in every row"),
        (rows(inputs__age=[None, None, None]), Rules(), "inputs.age is null in every row"),
        (rows(), Rules(inputs=("income",)), "inputs.income is missing"),
        (rows(label__label=[7, 8, 9]), RULES, "none of 3 rows passes"),
        (rows(inputs__age=np.full(3, np.nan)), RULES, "none of 3 rows passes"),
        (rows(), Rules(expectations=[{"type": "expect_wonders"}]), "cannot be used"),
        (
            rows(),
            Rules(
                expectations=[{"type": "expect_column_max_to_be_between", "kwargs": {"column": "inputs.x"}}]
            ),
            "could not be evaluated",
        ),
    ],
)
def test_what_cannot_be_a_dataset_is_refused(batch: Batch, rules: Rules, reason: str) -> None:
    with pytest.raises(ValidationRefused, match=reason):
        validate(batch, rules)


def test_rows_that_do_not_fit_the_replayed_dataset_are_refused() -> None:
    reference = rows(inputs__age=["30", "41", "52"]).to_arrow().schema
    with pytest.raises(ValidationRefused, match=r"inputs.age is double, but string in the replayed dataset"):
        validate(rows(), RULES, reference=reference)


def test_importing_the_module_does_not_load_great_expectations() -> None:
    code = "import sys, outrider.dataops.datasets.validation; assert 'great_expectations' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
