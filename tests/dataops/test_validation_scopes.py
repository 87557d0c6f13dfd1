"""Severities, rows and versions: what blocks, what annotates, and on which rows it is judged."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets import expectations as gx
from outrider.dataops.datasets.data_docs import POLICY, page
from outrider.dataops.datasets.frames import frame_of
from outrider.dataops.datasets.validation import Earlier, Rules, Validated, validate
from outrider.errors import ValidationRefused

SECRET = "hunter2"


def batch(
    x: Sequence[float | None], label: Sequence[int], more: Mapping[str, Any] | None = None, *, first: int = 0
) -> Batch:
    ids = [f"r{first + row}" for row in range(len(x))]
    columns = {"id": ids, "inputs.x": list(x), "label.label": list(label)} | dict(more or {})
    return Batch.from_columns(columns, model="m", rows=len(x))


def expected(kind: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "severity": severity}


def rules(*own: dict[str, Any], **more: Any) -> Rules:
    return Rules(classes=(0, 1), inputs=("x",), expectations=own, **more)


def earlier(rows: Batch, of: Rules, **more: Any) -> Earlier:
    """As a version hands it on, through JSON."""
    kept = json.loads(json.dumps(validate(rows, of).summary))["aggregates"]
    return Earlier(kept, lambda: pytest.fail("its rows need not be read"), **more)


def texts(found: Validated) -> list[str]:
    return [warning["text"] for warning in found.summary["warnings"]]


@pytest.mark.parametrize("severity", ["warning", "info"])
def test_what_is_not_critical_annotates_and_keeps_every_row(severity: str) -> None:
    own = [
        expected("column_values_to_be_between", severity, column="x", max_value=2),
        expected("column_mean_to_be_between", severity, column="x", max_value=0),
    ]
    found = validate(batch([1, 2, 3, 4], [0, 1, 0, 1]), rules(*own))
    assert found.rows == [0, 1, 2, 3]
    assert found.quarantined == {}
    row, mean = found.summary["warnings"]
    assert (row["field"], row["severity"], row["rows"], row["ids"]) == ("inputs.x", severity, 2, ["r2", "r3"])
    assert mean["rows"] == 0
    assert mean["text"].endswith("observed 2.5")


def test_critical_quarantines_rows_and_refuses_versions() -> None:
    row = expected("column_values_to_be_between", column="x", max_value=2)
    found = validate(batch([1, 2, 3, 4], [0, 1, 0, 1]), rules(row))
    assert list(found.quarantined) == [2, 3]
    mean = expected("column_mean_to_be_between", column="x", max_value=1.6)
    assert validate(batch([1, 2, 3, 4], [0, 1, 0, 1]), rules(row, mean)).rows == [0, 1]  # of the good ones
    with pytest.raises(ValidationRefused, match=r"expect_column_mean_to_be_between.*observed 2\.5"):
        validate(batch([1, 2, 3, 4], [0, 1, 0, 1]), rules(mean))


def test_aggregates_are_those_of_the_version_and_no_earlier_row_is_read() -> None:
    own = rules(
        mean := expected("column_mean_to_be_between", column="x", min_value=0.9, max_value=1.1),
        count := expected("table_row_count_to_be_between", min_value=102),
        both := expected("column_distinct_values_to_equal_set", column="label", value_set=[0, 1]),
    )
    before = earlier(batch([1.0] * 100, [0, 1] * 50), rules())
    with pytest.raises(ValidationRefused, match="row_count"):
        validate(batch([5.0], [0], first=100), rules(count), earlier=before)
    parent = validate(batch([1.0] * 100, [0, 1] * 50), rules(mean, both))
    kept = Earlier(parent.summary["aggregates"], lambda: pytest.fail("read"))
    found = validate(batch([5.0, 1.0], [0, 0], first=100), own, earlier=kept)
    assert found.summary["aggregates"]["rows"] == 102
    assert found.summary["aggregates"]["columns"]["inputs.x"]["mean"] == pytest.approx(106 / 102)


@pytest.mark.parametrize("replaced", [["r0"], []])
def test_earlier_rows_are_read_where_their_aggregates_do_not_do(replaced: list[str]) -> None:
    old = batch([100.0, 1.0, 1.0], [0, 1, 1])
    known = validate(old, rules()).summary["aggregates"] if replaced else None
    reads = []

    def read() -> Batch:
        reads.append(1)
        return old

    mean = expected("column_max_to_be_between", column="x", max_value=50)
    new = batch([2.0], [0]) if replaced else batch([2.0], [0], first=3)
    if not replaced:
        with pytest.raises(ValidationRefused, match="column_max"):
            validate(new, rules(mean), earlier=Earlier(known, read, replaced=replaced))
    else:  # the one with 100 goes
        found = validate(new, rules(mean), earlier=Earlier(known, read, replaced=replaced))
        assert found.summary["aggregates"]["columns"]["inputs.x"]["max"] == 2.0
        assert found.summary["aggregates"]["rows"] == 3
    assert reads == [1]


def test_what_looks_across_rows_sees_the_earlier_ones_and_quarantines_new_ones_alone() -> None:
    old = batch([1.0, 2.0, 3.0], [0, 1, 1])
    unique = expected("column_values_to_be_unique", column="x")
    found = validate(batch([2.0, 7.0], [0, 1], first=3), rules(unique), earlier=Earlier(None, lambda: old))
    assert list(found.quarantined) == [0]
    twice = Earlier(None, lambda: batch([1.0, 1.0], [0, 1]))
    with pytest.raises(ValidationRefused, match=r"of the version before it \(2, such as .*\) do not pass"):
        validate(batch([7.0], [1], first=3), rules(unique), earlier=twice)
    median = expected("column_median_to_be_between", column="x", max_value=2.5)
    assert validate(
        batch([9.0], [1], first=3), rules(median), earlier=Earlier(None, lambda: old, replaced=["r2"])
    )


def test_expectations_of_rows_are_not_asked_of_earlier_ones() -> None:
    before = earlier(batch([1.0, 99.0], [0, 1]), rules())
    own = rules(expected("column_values_to_be_between", column="x", max_value=5))
    assert validate(batch([2.0], [0], first=2), own, earlier=before).rows == [0]


def test_a_full_validation_asks_earlier_rows_too_and_names_them() -> None:
    old = batch([1.0, 99.0], [0, 1])
    before = Earlier(validate(old, rules()).summary["aggregates"], lambda: old, full=True)
    own = rules(expected("column_values_to_be_between", column="x", max_value=5))
    with pytest.raises(
        ValidationRefused, match=r"rows of the version before it \(1, such as r1\)"
    ) as refused:
        validate(batch([2.0, 7.0], [0, 1], first=2), own, earlier=before)
    assert list(refused.value.rows) == [1]  # the new one that does not pass either
    good = rules(expected("column_values_to_be_between", column="x", max_value=500))
    assert validate(batch([2.0], [0], first=2), good, earlier=before).rows == [0]


def test_classes_and_ranges_are_held_against_the_version_before() -> None:
    before = batch(np.linspace(0, 1, 40).tolist(), [0] * 20 + [1] * 20)
    new = batch([9.0] * 60, [1] * 60, first=40)
    found = validate(new, rules(), earlier=earlier(before, rules()))
    assert texts(found) == [
        "label.label: 0.30 of the rows change class against the version before, at most 0.2 expected "
        "(class_shift)",
        "inputs.x: values reach 8.0 widths beyond the range against the version before, at most 4 expected "
        "(range_growth)",
    ]
    with pytest.raises(ValidationRefused, match="class_shift"):
        validate(new, rules(against_parent="critical"), earlier=earlier(before, rules()))
    loose = rules(class_shift=1.0, range_growth=math.inf)
    assert texts(validate(new, loose, earlier=earlier(before, loose))) == []
    replacing = earlier(before, rules(), stays=False)
    found = validate(new, rules(), earlier=replacing)
    assert texts(found)[0].startswith("label.label: 0.50 of the rows")
    assert found.summary["aggregates"]["rows"] == 60


def test_a_new_column_is_null_in_the_earlier_rows() -> None:
    before = batch([1.0] * 4, [0, 1, 0, 1])
    new = batch([1.0] * 2, [0, 1], {"inputs.new": [5.0, 7.0]}, first=4)
    own = rules(expected("column_mean_to_be_between", column="new", min_value=6, max_value=6))
    for kept in (earlier(before, rules()).aggregates, None):
        found = validate(new, own, earlier=Earlier(kept, lambda: before))
        column = found.summary["aggregates"]["columns"]["inputs.new"]
        assert (column["nulls"], column["count"], column["mean"]) == (4, 2, 6.0)


def test_no_reason_quotes_a_record() -> None:
    given = batch([1.0, 2.0], [0, 1], {"inputs.name": [SECRET, "b"], "inputs.number": [4711.0, 1.0]})
    own = [
        expected("column_values_to_be_in_set", "warning", column="name", value_set=["b"]),
        expected("column_values_to_match_regex", "warning", column="name", regex="^.$"),
        expected("column_distinct_values_to_be_in_set", "warning", column="name", value_set=["b"]),
        expected("column_most_common_value_to_be_in_set", "warning", column="name", value_set=["c"]),
        expected("column_max_to_be_between", "warning", column="number", max_value=5),
        expected("column_values_to_be_between", "warning", column="name", min_value=3),
        expected("column_mean_to_be_between", "warning", column="name", min_value=3),
        expected("column_values_to_match_strftime_format", "warning", column="name", strftime_format="%Y"),
    ]
    found = validate(given, rules(*own))
    assert len(found.summary["warnings"]) == len(own), texts(found)
    told = json.dumps([found.summary["warnings"], found.quarantined])
    assert SECRET not in told
    assert "4711" not in told
    assert "could not be evaluated: TypeError; inputs.name holds str" in told
    assert SECRET not in page(gx.rendered(found.outcomes, name="m@1", rows=2), "m@1")


def test_columns_are_typed_for_the_library() -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    table = pa.table(
        {
            "inputs.whole": pa.array([1, None, 3]),
            "inputs.large": pa.array([2**60 + 1, None, 3]),
            "inputs.small": pa.array([1, 2, 3], pa.int8()),
            "inputs.truth": pa.array([True, None, False]),
            "inputs.plain": pa.array([True, True, False]),
            "inputs.text": pa.array(["a", None, "c"]),
            "inputs.coded": pa.array(["a", None, "a"]).dictionary_encode(),
            "inputs.when": pa.array([now, None, now], pa.timestamp("us", tz="UTC")),
            "inputs.real": pa.array([1.0, None, 3.0], pa.float32()),
        }
    )
    frame = frame_of(Batch.from_arrow(table, model="m"), None)
    kinds = {
        name: str(frame[f"inputs.{name}"].dtype) for name in ("whole", "small", "truth", "plain", "real")
    }
    assert kinds == {
        "whole": "Int64",
        "small": "int8",
        "truth": "boolean",
        "plain": "bool",
        "real": "float32",
    }
    assert frame["inputs.large"][0] == 2**60 + 1
    for name in ("text", "coded"):
        assert isinstance(frame[f"inputs.{name}"].dtype, pd.StringDtype)
    assert isinstance(frame["inputs.when"].dtype, pd.DatetimeTZDtype)
    assert frame.isna().sum().to_dict()["inputs.whole"] == 1
    assert not [name for name in frame if str(name).startswith("inputs.") and frame[name].dtype == object]


def test_data_docs_are_one_page_that_loads_and_runs_nothing() -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    own = [
        expected("column_values_to_be_in_set", "warning", column="name", value_set=[hostile]),
        expected("column_mean_to_be_between", column="x", max_value=9) | {"notes": hostile},
    ]
    found = validate(batch([1.0, 2.0], [0, 1], {"inputs.name": ["a", hostile]}), rules(*own))
    html = page(gx.rendered(found.outcomes, name=hostile, rows=2), f"churn@1 {hostile}")
    assert not re.findall(
        r"<(?:script|img|link|iframe|form|a)\b[^>]*(?:src|href|on\w+)=", html, re.IGNORECASE
    )
    assert "<script" not in html
    assert not re.findall(r"<[^>]+\s(?:src|href|style|on\w+)\s*=", html)
    assert "//" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    for said in (
        "mean must be less than or equal to",
        "values must never be null",
        "inputs.x",
        "Success Percent",
    ):
        assert said in html
    body = html.partition("</head>")[2]
    assert body.count("fa-check-circle") == 4
    assert len(re.findall("fa-times|fa-exclamation-triangle", body)) == 2  # the expectation, and all of it
    assert "sandbox" in POLICY
    assert "script-src" not in POLICY
    for tag in ("div", "table", "td", "span"):
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>"), tag
