"""Verdicts on profiles: those of the report on records that hold their bins; bad input is no drift."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.assertions.drift import DriftReport, drift_report, profile_drift
from outrider.assertions.profiling import Profile, ProfileLayout
from tests.soak import rounds

HOURS, ROWS = 20, 400


def people(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": rng.normal(41, 9, rows),
            "income": np.where(rng.random(rows) < 0.1, np.nan, np.exp(rng.normal(10, 1, rows))),
            "visits": rng.poisson(1.5, rows) + 0.5,
            "branch": rng.choice(["north", "south", "west", "east"], rows),
            "plan": rng.choice(["Basic", "Pro"], rows, p=[0.8, 0.2]),
        }
    )


def batch_of(frame: pd.DataFrame, weight: Any = None) -> Batch:
    given = frame if weight is None else frame.assign(weight=weight)
    return Batch.from_columns(
        {f"inputs.{name}" if name != "weight" else name: _column(given[name]) for name in given}, model="m"
    )


def _column(values: "pd.Series[Any]") -> pa.Array:
    return pa.array(values.tolist(), from_pandas=True)


def binned(frame: pd.DataFrame, layout: ProfileLayout) -> pd.DataFrame:
    """Numbers as the number of their bin: what a profile knows of them."""
    found = frame.copy()
    for column in layout.columns:
        name = column.name.removeprefix("inputs.")
        if column.kind == "numeric":
            values = frame[name].to_numpy()
            place = np.searchsorted(column.edge_values(), values, side="right").astype(np.float64)
            found[name] = np.where(np.isnan(values), np.nan, place)
    return found


def both_reports(reference: pd.DataFrame, current: pd.DataFrame) -> tuple[DriftReport, DriftReport]:
    """Report on profiles, and on records that hold the bins."""
    layout = ProfileLayout.fit(batch_of(reference))
    hours = np.array_split(np.arange(len(reference)), HOURS)
    parts = [Profile.of(batch_of(reference.iloc[hour]), layout) for hour in hours]
    found = profile_drift(parts, Profile.of(batch_of(current), layout))
    return found, drift_report(binned(reference, layout), binned(current, layout))


CHANGES = ("none", "older", "nulls", "lower case", "branch", "runs", "beyond", "richer")


def changed(change: str, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    reference, current = people(rng, HOURS * ROWS), people(rng, 1000)
    if change == "older":
        current["age"] += 3
    elif change == "nulls":
        current.loc[rng.random(1000) < 0.4, "income"] = np.nan
    elif change == "lower case":
        current["plan"] = np.where(rng.random(1000) < 0.3, current["plan"].str.lower(), current["plan"])
    elif change == "branch":
        current["branch"] = rng.choice(["north", "south"], 1000, p=[0.7, 0.3])
    elif change == "runs":
        reference["age"] += np.repeat(rng.normal(0, 5, HOURS), ROWS)
        current["age"] += 3
    elif change == "beyond":
        current.loc[:49, "age"] = 900.0
    elif change == "richer":
        current["income"] *= 1.4
    return reference, current


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", range(rounds(2)))
def test_verdicts_are_those_of_the_report_on_the_bins(change: str, seed: int) -> None:
    found, expected = both_reports(*changed(change, np.random.default_rng(seed)))
    known = {each.column: each for each in expected.columns}
    assert len(found.columns) == len(known) == 5
    for each in found.columns:
        other = known[each.column.removeprefix("inputs.")]
        assert (each.status, each.drifting) == (other.status, other.drifting)
        assert each.variation == pytest.approx(other.variation)
        assert each.smallest_found == pytest.approx(other.smallest_found)
        for one, two in zip(each.evidence, other.evidence, strict=True):
            assert one.change == two.change
            measured = (one.distance, one.floor, one.chance, one.before, one.after)
            assert measured == pytest.approx(
                (two.distance, two.floor, two.chance, two.before, two.after), nan_ok=True
            )
    assert found.is_drift == (change not in ("none", "runs"))


def test_sentences_say_from_where_to_where() -> None:
    rng = np.random.default_rng(0)
    reference, current = people(rng, 8000), people(rng, 4000)
    current["age"] += 16
    current.loc[rng.random(4000) < 0.5, "income"] = np.nan
    current["plan"] = current["plan"].str.lower()
    found, _ = both_reports(reference, current)
    words = {each.column: each.words for each in found.drifting}
    assert words["inputs.age"].startswith("median 40.75 → 57")
    assert words["inputs.income"].startswith("nulls 10 % → 56 %")
    assert "`basic` 81 % (`Basic` in other letters)" in words["inputs.plan"]
    assert set(words) == {"inputs.age", "inputs.income", "inputs.plan"}
    picture = next(each for each in found.columns if each.column == "inputs.age").picture()
    assert picture is not None
    assert 0 < picture.edges[0] < 30 < picture.edges[-1] < 100


def test_uneven_weights_are_no_drift_and_count_fewer_records() -> None:
    rng = np.random.default_rng(0)
    hours = [people(rng, ROWS) for _ in range(HOURS + 1)]
    weights = [np.where(each["plan"] == "Pro", 1.0, 20.0) for each in hours]
    batches = [batch_of(*each) for each in zip(hours, weights, strict=True)]
    layout = ProfileLayout.fit(Batch.concat(batches[:-1]))
    parts = [Profile.of(each, layout) for each in batches]
    found = profile_drift(parts[:-1], parts[-1])
    assert not found.is_drift
    assert found.current_rows == ROWS
    assert found.current_effective < ROWS
    even = profile_drift(parts[:-1], Profile.of(batch_of(hours[-1]), layout))
    assert [each.column for each in even.drifting] == ["inputs.plan"]  # it stands for other traffic


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("gone", "current: numbers expected as in the reference, the column is gone"),
        ("type", "current: numbers expected as in the reference, found values of another type"),
        ("null", "current: values expected, found null or infinite alone"),
        ("infinite", "current: finite numbers expected, found 100 infinite, left out"),
    ],
)
def test_bad_input_is_a_sentence_and_no_drift(change: str, sentence: str) -> None:
    rng = np.random.default_rng(0)
    reference, current = people(rng, 8000), people(rng, 1000)
    layout = ProfileLayout.fit(batch_of(reference))
    parts = [Profile.of(batch_of(reference.iloc[at : at + 400]), layout) for at in range(0, 8000, 400)]
    if change == "gone":
        current = current.drop(columns="age")
    elif change == "type":
        current["age"] = "old"
    elif change == "null":
        current["age"] = np.nan
    else:
        current.loc[:99, "age"] = np.inf
    found = profile_drift(parts, Profile.of(batch_of(current), layout))
    age = next(each for each in found.columns if each.column == "inputs.age")
    assert age.problems[0] == sentence
    if change in ("gone", "type"):
        assert (age.status, found.is_drift) == ("undecided", False)
    if change == "null":
        assert (age.status, age.words) == ("drift", "nulls 0 % → 100 %")


def test_too_few_windows_or_records_decide_nothing() -> None:
    frame = people(np.random.default_rng(0), 2000)
    layout = ProfileLayout.fit(batch_of(frame))
    one = Profile.of(batch_of(frame), layout)
    few = profile_drift([one, one], one)
    assert few.problems[0].startswith("reference: records in 5 windows or more expected, found 2")
    assert not few.is_decided
    none = profile_drift([], Profile.empty(layout))
    assert none.problems == tuple(
        f"{window}: at least 30 effective records expected, found 0" for window in ("reference", "current")
    )
    assert not none.is_drift
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1"):
        profile_drift([one], one, alpha=1.0)
