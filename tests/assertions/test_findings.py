"""Findings, records one at a time, and objects that hold assertions: what is taken and what is refused."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.assertions import (
    Batch,
    Checker,
    Findings,
    Group,
    WeakLabels,
    Window,
    assertion,
    load_assertions,
)


def batch() -> Batch:
    return Batch.from_columns(
        {
            "id": ["r0", "r1", "r2"],
            "entity": ["a", "a", "b"],
            "outputs.label": [1, 2, 3],
            "inputs.t": ["x", None, "z"],
        },
        model="m",
    )


def weak(**changes: Any) -> WeakLabels:
    columns: dict[str, Any] = {
        "row": [1],
        "finding": [0],
        "kind": ["replace"],
        "field": ["outputs.label"],
        "element": [-1],
        "value": [1],
        "confidence": [0.5],
    }
    values: dict[str, Any] = columns | changes
    values |= {name: np.array(values[name]) for name in ("row", "finding")}
    return WeakLabels(**values)


def one(**changes: Any) -> Any:
    values: dict[str, Any] = {"row": np.array([1]), "severity": np.array([2.0]), "subject": ["s"]}
    told = Findings(**values | {"members": [np.array([0, 1])]} | changes)
    return assertion(name="told")(lambda _: told)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"row": np.array([3])}, r"row lies in \[0, 3\), got \[3\]"),
        ({"row": np.array([0.5])}, "row is a list of row numbers"),
        ({"severity": np.array([1.0, 2.0])}, r"one severity each, shape \(1,\)"),
        ({"severity": np.array([0.0])}, "finite severities > 0, got 0"),
        ({"severity": np.array([np.nan])}, "finite severities > 0, got nan"),
        ({"subject": ["a", "b"]}, "no subject or 1, one each, got 2"),
        ({"subject": [7]}, "subjects are texts or None"),
        ({"members": [np.array([-1])]}, "members lies in"),
        ({"evidence": ["text"]}, "evidence is a dictionary"),
        ({"weak_labels": weak(row=[5])}, r"weak_labels\.row lies in"),
        ({"weak_labels": weak(finding=[1])}, r"weak_labels\.finding lies in \[0, 1\)"),
        ({"weak_labels": weak(kind=["change"])}, "kind in replace, add, remove, got 'change'"),
        ({"weak_labels": weak(confidence=[0.0])}, r"confidence in \(0, 1\]"),
        ({"weak_labels": weak(value=[])}, "1 of each column, got value of another length"),
    ],
)
def test_impossible_findings_are_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"assertion 'told' must return findings .*{told}"):
        one(**changes).findings(batch())


def test_findings_become_flags_with_all_they_say() -> None:
    flags = Checker([one(evidence=[{"was": 2}], weak_labels=weak())]).check(batch())
    assert flags.subject.tolist() == ["s"]
    assert flags.evidence.tolist() == [{"was": 2}]
    assert [rows.tolist() for rows in flags.members] == [[0, 1]]
    assert (flags.weak_labels.row.tolist(), flags.weak_labels.value) == ([1], [1])
    assert flags.to_pandas()["subject"].tolist() == ["s"]


def test_one_subject_is_one_flag_the_first() -> None:
    @assertion
    def twice(batch: Batch) -> Findings:
        return Findings(
            np.array([2, 0, 1]),
            np.array([3.0, 1.0, 2.0]),
            subject=["s", "s", None],
            weak_labels=weak(row=[2, 0], finding=[0, 1], kind=["remove"] * 2, field=["f"] * 2, element=[0, 0],
                             value=[None] * 2, confidence=[1.0] * 2),
        )  # fmt: skip

    flags = Checker([twice]).check(batch())
    assert flags.subject.tolist() == ["s", "r1"]
    assert flags.severity.tolist() == [1.0, 2.0]
    assert flags.weak_labels.row.tolist() == [0]
    assert twice.severities(batch()).tolist() == [1.0, 2.0, 3.0]


def test_one_value_per_row_counts_for_new_rows_alone() -> None:
    view = batch().with_marks(np.array([False, True, True]))
    found = assertion(lambda b: b.column("outputs.label") < 3).findings(view)
    assert (found.row.tolist(), found.severity.tolist()) == ([1], [1.0])


def test_a_flag_without_findings_is_about_its_record() -> None:
    flags = Checker([assertion(name="any")(lambda b: b.column("outputs.label") > 1)]).check(batch())
    assert flags.details is None
    assert flags.subject.tolist() == ["r1", "r2"]
    assert flags.evidence.tolist() == [None, None]
    assert [rows.tolist() for rows in flags.members] == [[1], [2]]
    assert len(flags.weak_labels) == 0


def test_a_group_is_judged_together() -> None:
    @assertion(window=Group(by="entity"))
    def lonely(view: Batch) -> Any:
        return (view.previous_rows() < 0) & view.is_last

    flags = Checker([lonely]).check(batch())
    assert flags.batch.keys[flags.row].tolist() == ["r2"]


# ---- records one at a time -------------------------------------------------------------------------------


def test_a_function_of_one_record_sees_python_values() -> None:
    seen: list[Any] = []

    @assertion(per_record=True, level="info")
    def look(record: Any) -> Any:
        seen.append((record["outputs.label"], record["inputs.t"], record["inputs.v"], record["ts"].year))
        assert "outputs.label" in record
        assert len(record) == len(list(record)) == 11
        return record["outputs.label"] > 2

    judged = batch().with_columns(
        {"inputs.v": [[1.0, 2.0], None, [3.0, 4.0]], "ts": [datetime(2026, 1, 5, tzinfo=UTC)] * 3}
    )
    assert look.severities(judged).tolist() == [0.0, 0.0, 1.0]
    assert [(type(label), text, year) for label, text, _, year in seen] == [
        (int, "x", 2026),
        (int, None, 2026),
        (int, "z", 2026),
    ]
    assert seen[1][2] is None
    assert seen[2][2].tolist() == [3.0, 4.0]


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match=r"no column 'inputs\.age'; there are id, ts"):
        assertion(per_record=True)(lambda record: record["inputs.age"]).findings(batch())


def test_a_function_of_one_record_has_no_window() -> None:
    with pytest.raises(ValueError, match="per_record=True sees one record alone"):
        assertion(per_record=True, window=Window())(lambda _: True)  # type: ignore[call-overload]


def test_what_it_is_a_function_of_is_part_of_the_revision() -> None:
    def judge(_: Any) -> bool:
        return False

    revisions = {
        assertion(judge).revision,
        assertion(per_record=True)(judge).revision,
        assertion(window=Window())(judge).revision,
        assertion(window=Window(lateness_s=1.0))(judge).revision,
        assertion(window=Group(by="entity"))(judge).revision,
    }
    assert len(revisions) == 5


# ---- objects that hold assertions ------------------------------------------------------------------------

PAIR = """
from outrider.assertions import Checker, assertion


class Both:
    def __init__(self, limit, rule):
        self.limit = limit
        self.rule = rule

    @property
    def assertions(self):
        return tuple(assertion(name=n)(Judge(self.limit, self.rule)) for n in ("low", "high"))


class Judge:
    def __init__(self, limit, rule):
        self.limit, self.rule = limit, rule

    def __call__(self, batch):
        return [False] * batch.rows


def rule(x):
    return x


pair = Both(3, rule)


@assertion
def own(batch):
    return [True] * batch.rows


checker = Checker([own])
"""


def test_what_holds_assertions_stands_for_them(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(PAIR, encoding="utf-8")
    found = load_assertions(tmp_path / "checks.py")
    assert [judge.name for judge in found] == ["low", "high", "own"]

    class Held:
        assertions = tuple(found[:2])

    assert [judge.name for judge in Checker([Held(), found[2]]).assertions] == ["low", "high", "own"]


@pytest.mark.parametrize(("old", "new"), [("Both(3", "Both(4"), ("    return x", "    return -x")])
def test_what_such_an_object_was_made_with_is_part_of_the_revision(
    tmp_path: Path, old: str, new: str
) -> None:
    revisions = []
    for name, text in (("before", PAIR), ("after", PAIR.replace(old, new))):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        revisions.append(load_assertions(tmp_path / f"{name}.py")[0].revision)
    assert revisions[0] != revisions[1]
