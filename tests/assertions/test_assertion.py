"""@assertion: what it reads from a function, what it accepts as verdicts, and when its revision changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from outrider.assertions import Assertion, Batch, Window, assertion, load_assertions
from outrider.errors import ConfigError


def batch(rows: int = 3) -> Batch:
    return Batch.from_columns({"inputs.x": np.arange(rows)}, model="m", rows=rows)


def returning(value: Any) -> Assertion:
    return assertion(name="given")(lambda _: value)


def test_a_bare_decorator_reads_the_function() -> None:
    @assertion
    def impossible_age(batch: Batch) -> object:
        """Age outside 0 to 120 years.

        Owner: risk team
        """
        return batch.column("inputs.x") > 1

    assert (impossible_age.name, impossible_age.level) == ("impossible_age", "warning")
    assert impossible_age.description == "Age outside 0 to 120 years."
    assert impossible_age.owner == "risk team"
    assert impossible_age.window is None
    assert np.asarray(impossible_age(batch())).tolist() == [False, False, True]


def test_the_decorator_overrides_the_docstring() -> None:
    @assertion(name="age", level="critical", description="Wrong age.", owner="data team")
    def impossible_age(batch: Batch) -> object:
        """Age outside 0 to 120 years.

        Owner: risk team
        """
        return [False]

    found = (impossible_age.name, impossible_age.level, impossible_age.description, impossible_age.owner)
    assert found == ("age", "critical", "Wrong age.", "data team")


def test_a_function_without_docstring_has_empty_texts() -> None:
    assert (returning([]).description, returning([]).owner) == ("", "")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="info, warning, critical, got 'fatal'"):
        assertion(level="fatal")  # type: ignore[call-overload]  # the mistake under test


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([True, False, True], [1.0, 0.0, 1.0]),
        (np.array([0, 2, 0]), [0.0, 2.0, 0.0]),
        (np.array([0.0, 0.5, 3.0], np.float16), [0.0, 0.5, 3.0]),
        (pd.Series([True, False, False]), [1.0, 0.0, 0.0]),
        (pd.array([True, None, False], dtype="boolean"), [1.0, 0.0, 0.0]),
        (np.array([True, None, np.True_], dtype=object), [1.0, 0.0, 1.0]),
    ],
)
def test_booleans_and_severities_are_verdicts(value: object, expected: list[float]) -> None:
    found = returning(value).severities(batch())
    assert found.tolist() == expected
    assert found.dtype == np.float64


def test_an_empty_batch_has_no_verdicts() -> None:
    assert returning(np.zeros(0, bool)).severities(batch(0)).shape == (0,)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([True, False], r"shape \(3,\), got shape \(2,\)"),
        (None, r"got shape \(\)"),
        (True, r"got shape \(\)"),
        (np.zeros((3, 1)), r"got shape \(3, 1\)"),
        (["a", "b", "c"], "booleans or severities, got <U1"),
        ([0.0, np.nan, 0.0], r"got nan for record '1' \(1 such records\)"),
        ([0.0, -1.0, -2.0], r"got -1\.0 for record '1' \(2 such records\)"),
        ([np.inf, 0.0, 0.0], "got inf for record '0'"),
    ],
)
def test_a_wrong_verdict_says_what_was_expected(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        returning(value).severities(batch())


# ---- revision --------------------------------------------------------------------------------------------

CHECKS = """
import re
import numpy as np
from outrider.assertions import assertion, Window
from helpers import far

LIMIT = 3.0
LEVELS = {"low": 1, "high": [2, 3]}
TABLE = np.array([1, 2])
PATTERN = re.compile("a+")
UNUSED = 1

class Rule:
    def broken(self, x):
        return x > 9

@assertion
def judged(batch, least=0):
    x = batch.column("inputs.x")
    return [v > LIMIT or (lambda y: y in LEVELS["high"])(v) or helper(v) or Rule().broken(v) or v in TABLE
            or PATTERN.match(str(v)) is not None or v < least for v in x]

def helper(x):
    return x == OFFSET

OFFSET = 7

def make(limit):
    @assertion(name=f"over_{limit}")
    def over(batch):
        return batch.column("inputs.x") > limit
    return over

over_1 = make(1)
"""


def revisions(folder: Path, text: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "helpers.py").write_text("def far(x):\n    return x\n", encoding="utf-8")
    (folder / "checks.py").write_text(text, encoding="utf-8")
    return {judge.name: judge.revision for judge in load_assertions(folder / "checks.py")}


def test_a_revision_is_the_same_in_another_place(tmp_path: Path) -> None:
    first, second = revisions(tmp_path / "a", CHECKS), revisions(tmp_path / "b", CHECKS)
    assert first == second
    assert all(len(revision) == 12 for revision in first.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v > LIMIT", "v >= LIMIT"),
        ("LIMIT = 3.0", "LIMIT = 4.0"),
        ("[2, 3]}", "[2, 4]}"),
        ("np.array([1, 2])", "np.array([1, 3])"),
        ('re.compile("a+")', 're.compile("b+")'),
        ("x > 9", "x > 8"),
        ("x == OFFSET", "x != OFFSET"),
        ("OFFSET = 7", "OFFSET = 8"),
        ("least=0", "least=LIMIT"),
    ],
)
def test_a_changed_judgement_has_a_new_revision(tmp_path: Path, old: str, new: str) -> None:
    assert old in CHECKS
    before = revisions(tmp_path / "a", CHECKS)
    after = revisions(tmp_path / "b", CHECKS.replace(old, new))
    assert before["judged"] != after["judged"]
    assert before["over_1"] == after["over_1"]


@pytest.mark.parametrize(
    ("old", "new"), [("UNUSED = 1", "UNUSED = 2"), ("\n\ndef make", "\n\n\n# more\ndef make")]
)
def test_what_a_judgement_does_not_use_leaves_its_revision(tmp_path: Path, old: str, new: str) -> None:
    assert old in CHECKS
    assert revisions(tmp_path / "a", CHECKS) == revisions(tmp_path / "b", CHECKS.replace(old, new))


def test_a_limit_in_a_closure_is_part_of_the_revision() -> None:
    def over(limit: int) -> Assertion:
        return assertion(name="over")(lambda batch: batch.column("inputs.x") > limit)

    assert over(1).revision == over(1).revision != over(2).revision


def test_the_window_is_part_of_the_revision() -> None:
    def judge(batch: Batch) -> object:
        return batch.is_new

    made: list[Callable[[Any], Assertion]] = [assertion(window=Window(rows=rows)) for rows in (3, 3, 4)]
    same, again, other = (make(judge).revision for make in made)
    assert same == again != other


# ---- files -----------------------------------------------------------------------------------------------


def test_a_file_gives_its_assertions_in_order(tmp_path: Path) -> None:
    assert list(revisions(tmp_path, CHECKS)) == ["judged", "over_1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no assertion"),
        ("\n1 / 0\n", r"checks\.py:2: ZeroDivisionError"),
        ("import nothing_of_that_name\n", r"checks\.py:1: ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        (CHECKS + "again = make(1)\n", "over_1 more than once"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "helpers.py").write_text("def far(x):\n    return x\n", encoding="utf-8")
    (tmp_path / "checks.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_assertions(tmp_path / "checks.py")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.py does not exist"):
        load_assertions(tmp_path / "nowhere.py")


@pytest.mark.parametrize("name", ["..", "a/../b", "a//b"])
def test_assertion_of_a_name_that_no_address_holds_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"assertion '.*': a name expected that is not empty"):
        assertion(level="warning", name=name)(lambda batch: [0.0] * batch.rows)
