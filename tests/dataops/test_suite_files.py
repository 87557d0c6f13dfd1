"""Suites of Great Expectations as files: in, out, and what is wrong with them."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets.suite_files import (
    core_types,
    native,
    read_suite,
    resolved,
    unknown_columns,
    unknown_types,
)
from outrider.dataops.datasets.validation import Rules, validate
from outrider.errors import ConfigError, nearest

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning"
)  # the library's
BETWEEN = "expect_column_values_to_be_between"


def test_a_suite_that_the_library_wrote_is_read_and_one_that_we_write_is_read_by_it(tmp_path: Path) -> None:
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    library: Any = gx.expectations
    own = gx.ExpectationSuite(
        name="churn",
        expectations=[
            library.ExpectColumnValuesToBeBetween(
                column="age", min_value=0, max_value=120, severity="warning", notes="years"
            ),
            library.ExpectColumnValuesToNotBeNull(column="age", mostly=0.9),
        ],
    )
    (tmp_path / "suite.json").write_text(json.dumps(context.suites.add(own).to_json_dict()))
    suite = read_suite("suite.json", tmp_path)
    assert [(item["type"], item["severity"]) for item in suite] == [
        (BETWEEN, "warning"),
        ("expect_column_values_to_not_be_null", "critical"),
    ]
    assert suite[0]["kwargs"] == {"column": "age", "min_value": 0.0, "max_value": 120.0}
    assert suite[0]["notes"] == "years"
    again = gx.ExpectationSuite(
        **json.loads(json.dumps(native("again", suite, {"outrider": {"version": 3}})))
    )
    again = context.suites.add(again)
    assert again.meta["outrider"] == {"version": 3}
    assert [each.configuration.kwargs for each in again.expectations] == [
        each.configuration.kwargs for each in own.expectations
    ]
    assert [each.severity for each in again.expectations] == [each.severity for each in own.expectations]


def test_a_suite_of_before_version_1_is_read(tmp_path: Path) -> None:
    old = {"expectation_suite_name": "x", "expectations": [{"expectation_type": BETWEEN, "kwargs": {}}]}
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert read_suite("old.json", tmp_path) == [{"type": BETWEEN, "kwargs": {}, "severity": "critical"}]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "a list 'expectations' expected"),
        ('{"expectations": [3]}', r"expectations\[0\]: a table with type and kwargs expected, got 3"),
        ('{"expectations": [{"type": "x", "severity": "bad"}]}', r"severity: one of critical, warning, info"),
        ('{"expectations": [{"type": "x", "kwargs": 1}]}', r"expectations\[0\].kwargs: a table expected"),
    ],
)
def test_a_file_that_is_no_suite_names_the_place(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "suite.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"suite\.json.*{told}"):
        read_suite("suite.json", tmp_path)
    with pytest.raises(ConfigError, match=r"none\.json cannot be read"):
        read_suite("none.json", tmp_path)


def expected(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "severity": "critical"}


def test_times_of_the_configuration_are_texts_with_their_zone(tmp_path: Path) -> None:
    bounds = {"min_value": date(2026, 1, 2), "max_value": datetime(2026, 1, 3, 4)}  # noqa: DTZ001 - as TOML has it
    (item,) = read_suite([{"type": BETWEEN, "kwargs": {"column": "t"} | bounds}], tmp_path)
    assert item["kwargs"]["min_value"] == "2026-01-02T00:00:00+00:00"
    assert item["kwargs"]["max_value"] == "2026-01-03T04:00:00+00:00"
    for zone in (None, "UTC"):
        times = [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC)]
        column = pa.array(times, pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us", tz=zone))
        batch = Batch.from_arrow(pa.table({"inputs.t": column, "label.label": [0, 1]}), model="m")
        assert validate(batch, Rules(expectations=[item])).rows == [0]


def test_bare_names_of_columns_are_found_under_inputs_and_the_label() -> None:
    names = ["id", "inputs.age", "inputs.image.min", "label.churned", "attrs.age"]
    suite = [
        expected(BETWEEN, column="age"),
        expected(BETWEEN, column="churned"),
        expected(BETWEEN, column="attrs.age"),
        expected(BETWEEN, column="image.min"),
        expected("expect_compound_columns_to_be_unique", column_list=["id", "age"]),
        expected(
            BETWEEN,
            column="age",
            row_condition={"type": "comparison", "column": {"name": "age"}, "operator": ">", "parameter": 1},
        ),
    ]
    found = [item["kwargs"] for item in resolved(suite, names, "churned")]
    assert [kwargs.get("column") for kwargs in found[:4]] == [
        "inputs.age",
        "label.churned",
        "attrs.age",
        "inputs.image.min",
    ]
    assert found[4]["column_list"] == ["id", "inputs.age"]
    assert found[5]["row_condition"]["column"] == {"name": "inputs.age"}


def test_the_nearest_name_comes_first() -> None:
    suite = [expected("expect_column_values_to_be_betwen", column="agee"), expected(BETWEEN, column="age")]
    assert next(unknown_types(suite)).startswith(
        "[0].type: no expectation 'expect_column_values_to_be_betwen'; "
        "nearest: expect_column_values_to_be_between"
    )
    assert list(unknown_types(suite, ["expect_column_values_to_be_betwen"])) == []
    problems = list(unknown_columns(suite, ["inputs.age", "inputs.page", "ts"]))
    assert problems[0].startswith(
        "[0] expect_column_values_to_be_betwen: no column 'agee'; nearest: inputs.age"
    )
    assert problems[1].startswith(f"[1] {BETWEEN}: no column 'age'")
    absent = expected("expect_column_to_exist", column="not.there")
    assert list(unknown_columns([absent], ["ts"])) == []  # whether it is there is its question
    assert nearest("zzz", ["a", "b"]) == "; there are a, b"


def test_the_names_of_expectations_are_those_of_the_library() -> None:
    import great_expectations as gx

    classes = [name for name in dir(gx.expectations) if name.startswith("Expect")]
    assert len(classes) > 40
    assert len(core_types()) >= len(classes)
