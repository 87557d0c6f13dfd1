import dataclasses
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets.validation import Earlier, Rules, floor_problems, validate
from outrider.errors import ValidationRefused

RULES = Rules(classes=(0, 1, 2), inputs=("age",))
AGE_AND_LABEL = {"column_A": "inputs.age", "column_B": "label.label"}


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


LABELS = {
    "numbers": ([0, 11, None, 2, 1], (0, 1, 2)),
    "floats of whole classes": ([0.0, 1.0, 1.5, None, 2.0], (0, 1, 2)),
    "texts": (["yes", "no", "", None, "Yes"], ("yes", "no")),
    "numbers as texts": (["0", "1", "2", None, "0"], (0, 1)),
    "truth values": ([True, False, None, True, False], (True, False)),
    "truth values of numbers": ([True, False, None, True, False], (0, 1)),
    "no class": ([0, 11, None, 2, 1], ()),
    "all null": ([None] * 5, ("yes", "no")),
    "none of them": ([7, 8, 9, 7, 8], (0, 1, 2)),
}


@pytest.mark.parametrize(("labels", "classes"), LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("ages", [[30.0, None, 41.0, np.nan, 52.0], [None] * 5], ids=["some", "none"])
@pytest.mark.parametrize("nullable", [(), ("age",)], ids=["needed", "nullable"])
def test_without_great_expectations_rows_are_judged_alike(
    labels: list[object],
    classes: tuple[object, ...],
    ages: list[float | None],
    nullable: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = {"inputs.age": ages, "inputs.plan": list("abcde"), "label.label": labels}
    batch = Batch.from_columns(columns, model="churn")
    rules = Rules(classes=classes, inputs=("age", "plan"), nullable=nullable)  # type: ignore[arg-type]  # of a file

    def judged() -> tuple[object, ...]:
        try:
            found = validate(batch, rules)
        except ValidationRefused as refused:
            return str(refused), dict(refused.rows)
        verdicts = [(one.item, one.success, one.rows) for one in found.outcomes]
        warnings = [one for one in found.summary["warnings"] if one["rule"] != "own_checks"]
        return found.rows, found.quarantined, verdicts, warnings

    with_library = judged()
    monkeypatch.setattr("outrider.parts._is_installed", lambda module: module != "great_expectations")
    assert judged() == with_library


def test_without_great_expectations_what_users_expect_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outrider.parts._is_installed", lambda module: module != "great_expectations")
    [warning] = validate(rows(), RULES).summary["warnings"]
    assert warning["text"].startswith("nulls, classes, types and finite numbers are checked, nothing else: ")
    own = {"type": "expect_column_to_exist", "kwargs": {"column": "inputs.age"}}
    with pytest.raises(ValidationRefused, match=r"pip install 'outrider\[gx\]'"):
        validate(rows(), Rules(classes=(0, 1, 2), expectations=[own]))


def test_the_users_expectations_decide_too() -> None:
    own = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "inputs.age", "max_value": 50}}
    verdict = validate(rows(), Rules(classes=(0, 1, 2), expectations=[own]))
    assert list(verdict.quarantined) == [2]


def test_an_expectation_on_the_table_refuses_all_of_it() -> None:
    own = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 10}}
    with pytest.raises(ValidationRefused, match=r"expect_table_row_count_to_be_between.*observed 3"):
        validate(rows(), Rules(classes=(0, 1, 2), expectations=[own]))


def test_a_refusal_names_the_rows_that_do_not_pass_by_themselves() -> None:
    table = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 10}}
    with pytest.raises(ValidationRefused) as refused:
        validate(rows(label__label=[0, 11, 2]), Rules(classes=(0, 1, 2), expectations=[table]))
    assert list(refused.value.rows) == [1]
    assert "expect_column_values_to_be_in_set" in refused.value.rows[1]
    with pytest.raises(ValidationRefused) as refused:
        validate(rows(inputs__age=[np.nan, np.inf, np.nan]), Rules(classes=(0, 1, 2), inputs=("age",)))
    assert list(refused.value.rows) == [0, 1, 2]


@pytest.mark.parametrize("name", ["gone", "null"])
def test_a_declared_input_that_no_row_has_is_the_fault_of_each(name: str) -> None:
    with pytest.raises(ValidationRefused, match=f"inputs.{name} is") as refused:
        validate(rows(inputs__null=[None, None, None]), Rules(classes=(0, 1, 2), inputs=(name,)))
    assert list(refused.value.rows) == [0, 1, 2]


def test_validate_warns_of_an_undeclared_input_that_no_row_has() -> None:
    verdict = validate(rows(inputs__note=[None, None, None], label__comment=[None, None, None]), RULES)
    assert verdict.rows == [0, 1, 2]
    told = [(each["rule"], each["field"]) for each in verdict.summary["warnings"]]
    assert told == [("null_column", "inputs.note"), ("null_column", "label.comment")]


def test_validate_warns_of_an_undeclared_input_that_is_not_finite() -> None:
    verdict = validate(rows(inputs__extra=[1.0, np.inf, 2.0]), RULES)
    assert verdict.rows == [0, 1, 2]
    (warning,) = verdict.summary["warnings"]
    assert (warning["rule"], warning["field"], warning["rows"]) == ("non_finite", "inputs.extra", 1)
    undeclared = validate(rows(inputs__extra=[1.0, np.inf, 2.0]), Rules(classes=(0, 1, 2)))
    assert undeclared.rows == [0, 2]  # of a model that declares no input, every one may be read


def test_validate_takes_rows_without_an_undeclared_input_of_the_replayed_dataset() -> None:
    reference = rows(inputs__note=["a", "b", "c"]).to_arrow().schema
    assert validate(rows(), RULES, reference=reference).rows == [0, 1, 2]
    assert validate(rows(inputs__note=[1, 2, 3]), RULES, reference=reference).rows == [0, 1, 2]


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


def test_validate_leaves_out_rows_whose_input_begins_to_be_null_and_warns_of_it() -> None:
    verdict = validate(rows(inputs__age=[1.0, None, 3.0]), RULES)
    assert verdict.quarantined == {1: "inputs.age is null, and nothing says that it may be"}
    (warning,) = verdict.summary["warnings"]
    assert (warning["rule"], warning["field"], warning["rows"]) == ("null_begins", "inputs.age", 1)
    assert "null in 1 of 3 rows" in warning["text"]
    assert '[models.churn.columns] declares it: "inputs.age" = "TYPE?"' in warning["text"]
    assert verdict.summary["nulls"] == []  # never learned from the rows under test


def test_validate_takes_nulls_of_an_input_that_may_be_null_and_hands_them_on() -> None:
    rules = Rules(classes=(0, 1, 2), inputs=("age",), nullable=("age",))
    first = validate(rows(inputs__age=[1.0, None, 3.0]), rules)
    assert (first.rows, first.summary["nulls"], first.summary["warnings"]) == ([0, 1, 2], ["age"], [])
    earlier = Earlier(first.summary["aggregates"], rows, nulls=first.summary["nulls"])
    assert validate(rows(), rules, earlier=earlier).summary["nulls"] == ["age"]
    assert validate(rows(), rules, earlier=dataclasses.replace(earlier, stays=False)).summary["nulls"] == []
    with pytest.raises(ValidationRefused, match=r"inputs.age is null in every row"):
        validate(rows(inputs__age=[None, None, None]), rules)  # the only input: nothing to learn from


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
                expectations=[
                    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "inputs.agee"}}
                ]
            ),
            r"no column 'inputs.agee'; nearest: inputs.age",
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


@pytest.mark.parametrize("given", ["numbers", "texts", "tensors"])
def test_validation_takes_no_more_memory_than_the_rows(given: str) -> None:
    validate(rows(), RULES)  # what the library takes itself
    count = {"numbers": 200_000, "texts": 40_000, "tensors": 4_000}[given]
    columns: dict[str, object] = {
        "numbers": {f"inputs.x{number}": np.zeros(count) for number in range(20)},
        "texts": {"inputs.x0": [f"{number:08d}" * 100 for number in range(count)]},
        "tensors": {"inputs.x0": np.zeros((count, 32, 64), np.float32)},
    }[given]  # type: ignore[assignment]
    batch = Batch.from_columns(columns | {"label.label": np.zeros(count, int)}, model="m", rows=count)
    inputs = [name.removeprefix("inputs.") for name in columns]
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    verdict = validate(batch, Rules(classes=(0, 1), inputs=inputs))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(verdict.rows) == count
    assert peak + pa.total_allocated_bytes() - before < 1.5 * batch.to_arrow().nbytes


@pytest.mark.parametrize(
    "own",
    [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "inputs.age", "max_value": 60, "row_condition": '`attrs.site`=="b"'}
            | {"condition_parser": "pandas"},
        },
        {"type": "expect_column_pair_values_a_to_be_greater_than_b", "kwargs": AGE_AND_LABEL},
        {
            "type": "expect_compound_columns_to_be_unique",
            "kwargs": {"column_list": ["inputs.age", "attrs.site"]},
        },
        {
            "type": "expect_table_columns_to_match_set",
            "kwargs": {"column_set": ["attrs.site"], "exact_match": False},
        },
        {"type": "expect_column_value_lengths_to_equal", "kwargs": {"column": "attrs.site", "value": 1}},
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "attrs.count", "value_set": [1, 2]},
        },
    ],
)
def test_expectations_find_the_columns_that_they_read(own: dict[str, object]) -> None:
    batch = rows(attrs__site=["a", "a", "b"], attrs__count=[1, None, 2])
    verdict = validate(batch, Rules(classes=(0, 1, 2), inputs=("age",), expectations=[own]))
    assert verdict.rows == [0, 1, 2]  # what it cannot read it cannot evaluate


def test_importing_the_module_does_not_load_great_expectations() -> None:
    code = "import sys, outrider.dataops.datasets.validation; assert 'great_expectations' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
