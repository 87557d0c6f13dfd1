"""Verdicts on drift: planted changes are found and said, equal windows stay silent, bad input is no drift."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.drift import ColumnDrift, DriftReport, drift_report
from tests.soak import at_most, rounds

Columns = dict[str, Any]


def people(rng: np.random.Generator, rows: int) -> Columns:
    return {
        "age": rng.normal(41, 9, rows),
        "income": np.exp(rng.normal(10, 1, rows)),
        "visits": rng.poisson(1.5, rows),
        "branch": rng.choice(["north", "south", "west", "east"], rows),
        "plan": rng.choice(["Basic", "Pro"], rows, p=[0.8, 0.2]),
    }


def of(report: DriftReport, column: str) -> ColumnDrift:
    return next(each for each in report.columns if each.column == column)


@pytest.fixture(scope="module")
def reference() -> Columns:
    return people(np.random.default_rng(0), 4000)


@pytest.fixture
def current() -> Columns:
    return people(np.random.default_rng(1), 6000)


def test_equal_windows_show_no_drift(reference: Columns, current: Columns) -> None:
    found = drift_report(reference, current)
    assert not found.is_drift
    assert found.is_decided
    assert found.sentence == "no drift shown in 5 columns (4,000 reference and 6,000 current records)"


def test_frames_tables_dictionaries_and_batches_agree(reference: Columns, current: Columns) -> None:
    current["age"] = current["age"] + 5
    expected = drift_report(reference, current)
    tables = [pa.table(each) for each in (reference, current)]
    encoded = [
        each.set_column(3, "branch", each["branch"].dictionary_encode()).set_column(
            4, "plan", each["plan"].dictionary_encode()
        )
        for each in tables
    ]
    frames = [pd.DataFrame(each) for each in (reference, current)]
    for one, two in (frames, tables, encoded):
        found = drift_report(one, two, threads=2)
        assert [(each.column, each.words, each.adjusted) for each in found.columns] == [
            (each.column, each.words, each.adjusted) for each in expected.columns
        ]
    batches = [
        Batch.from_columns({f"inputs.{name}": values for name, values in each.items()}, model="m")
        for each in (reference, current)
    ]
    found = drift_report(*batches)
    assert found.columns[0].column == "inputs.age"
    assert found.columns[0].adjusted == expected.columns[0].adjusted


def plant_shift(data: Columns, rng: np.random.Generator) -> None:
    data["age"] = data["age"] + 16


def plant_nulls(data: Columns, rng: np.random.Generator) -> None:
    gone = (data["branch"] == "north") & (rng.random(len(data["age"])) < 0.5)
    data["age"] = np.where(gone, np.nan, data["age"])


def plant_lower_case(data: Columns, rng: np.random.Generator) -> None:
    data["plan"] = np.where(rng.random(len(data["plan"])) < 0.3, np.char.lower(data["plan"]), data["plan"])


def plant_tail(data: Columns, rng: np.random.Generator) -> None:
    data["age"] = np.where(rng.random(len(data["age"])) < 0.08, 216.0, data["age"])


def plant_spread(data: Columns, rng: np.random.Generator) -> None:
    data["age"] = 41 + 2 * (data["age"] - 41)


def plant_shares(data: Columns, rng: np.random.Generator) -> None:
    data["plan"] = rng.choice(["Basic", "Pro"], len(data["plan"]), p=[0.55, 0.45])


@pytest.mark.parametrize(
    ("plant", "column", "changes", "words"),
    [
        (plant_shift, "age", {"shape", "unseen"}, "median 40.71 → 56.91 years"),
        (plant_nulls, "age", {"missing"}, "nulls 0 % → 13 %; `branch = north`: nulls 0 % → 50 %"),
        (plant_lower_case, "plan", {"shape", "unseen"}, "(`Basic` in other letters)"),
        (plant_tail, "age", {"shape", "unseen"}, "95 % quantile 55.83 → 216 years"),
        (plant_spread, "age", {"shape", "unseen"}, "5 % to 95 %:"),
        (plant_shares, "plan", {"shape"}, "`Basic` 81 % → 55 %, `Pro` 19 % → 45 %"),
    ],
)
def test_a_planted_change_is_ranked_first_and_said(
    reference: Columns,
    current: Columns,
    plant: Callable[[Columns, np.random.Generator], None],
    column: str,
    changes: set[str],
    words: str,
) -> None:
    plant(current, np.random.default_rng(2))
    found = drift_report(reference, current, units={"age": "years"})
    assert [each.column for each in found.drifting] == [column]
    assert set(found.columns[0].drifting) == changes
    assert words in found.columns[0].words


def test_small_but_proven_differences_are_no_drift() -> None:
    rng = np.random.default_rng(0)
    before, now = {"x": rng.normal(size=100_000)}, {"x": rng.normal(0.05, size=400_000)}
    found = drift_report(before, now).columns[0]
    assert found.status == "no drift shown"
    assert min(found.adjusted) < 1e-6
    assert drift_report(before, now, least=0.01).is_drift


def runs(rng: np.random.Generator, rows: int, length: int = 20) -> Columns:
    """Records in runs of one entity, whose values are alike."""
    entity = np.repeat(np.arange(rows // length), length)
    many = rows // length
    names = np.array([f"{number}" for number in rng.integers(10**12, size=many)])
    value = rng.normal(size=many)[entity]
    return {
        "x": value + 0.1 * rng.normal(size=rows),
        "kind": rng.choice(["a", "b", "c"], many)[entity],
        "holes": np.where((rng.random(many) < 0.1)[entity], np.nan, value),
        "user": names[entity],
    }


def lagged(rng: np.random.Generator, rows: int) -> Columns:
    """Values that remember the ones before."""
    noise = rng.normal(size=rows + 100)
    value = np.zeros(rows + 100)
    for at in range(1, rows + 100):
        value[at] = 0.8 * value[at - 1] + noise[at]
    return {"x": value[100:], "sign": np.where(value[100:] > 0, "up", "down")}


def independent(rng: np.random.Generator, rows: int) -> Columns:
    return {
        "cauchy": rng.standard_cauchy(rows),
        "few": rng.poisson(0.3, rows),
        "rare": rng.random(rows) < 0.01,
        "zipf": np.array([f"z{value}" for value in np.minimum(rng.zipf(1.7, rows), 3000)]),
        "holes": np.where(rng.random(rows) < 0.01, np.nan, rng.normal(size=rows)),
    }


@pytest.mark.parametrize(
    ("data", "sizes", "entity"),
    [
        (independent, (300, 300), None),
        (independent, (2000, 200), None),
        (independent, (500, 4000), None),
        (runs, (3000, 3000), "user"),
        (runs, (3000, 3000), None),
        (lagged, (3000, 600), None),
    ],
)
def test_false_alarms_without_drift_are_as_rare_as_promised(
    data: Callable[[np.random.Generator, int], Columns], sizes: tuple[int, int], entity: str | None
) -> None:
    draws, alarms = rounds(1000, part=60), 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        one, two = data(rng, sizes[0]), data(rng, sizes[1])
        columns = [name for name in one if name != "user"]
        found = drift_report(
            one, two, columns=columns, entity=entity, alpha=0.05, least=1e-9, least_share=1e-9
        )
        alarms += found.is_drift
    assert alarms <= at_most(0.05, draws) * draws


def test_runs_of_an_entity_count_once() -> None:
    """A single talkative user is one user."""
    rng = np.random.default_rng(0)
    before = {"x": rng.normal(size=5000), "user": np.arange(5000).astype(str)}
    now = {
        "x": np.concatenate([rng.normal(size=1000), np.full(4000, 2.5)]),
        "user": np.concatenate([np.arange(1000), np.full(4000, 7)]).astype(str),
    }
    assert drift_report(before, now, columns=["x"]).is_drift
    found = drift_report(before, now, entity="user")
    assert not found.is_drift
    assert found.current_effective == pytest.approx(1000)


def test_weights_undo_unequal_capture() -> None:
    """Of large values ten times as many were captured; their weight says so."""
    rng = np.random.default_rng(0)
    before = {"x": rng.normal(size=5000), "w": np.ones(5000)}
    all_of = rng.normal(size=40_000)
    chance = np.where(all_of > 0, 0.5, 0.05)
    kept = rng.random(40_000) < chance
    now = {"x": all_of[kept], "w": 1 / chance[kept]}
    assert drift_report(before, now, columns=["x"]).is_drift
    found = drift_report(before, now, weight="w")
    assert not found.is_drift
    assert found.current_effective < kept.sum()


def test_the_order_of_records_does_not_matter_without_blocks(reference: Columns, current: Columns) -> None:
    current["age"] = current["age"] + 1
    order = np.random.default_rng(3).permutation(6000)
    mixed = {name: values[order] for name, values in current.items()}
    expected = of(drift_report(reference, current), "age")
    found = of(drift_report(reference, mixed), "age")
    assert found.adjusted == pytest.approx(expected.adjusted)
    assert found.statistics == pytest.approx(expected.statistics)


def test_classes_of_outputs_and_labels_are_categories() -> None:
    rng = np.random.default_rng(0)
    before = {"label": rng.integers(0, 3, 3000), "n": rng.integers(0, 3, 3000)}
    now = {"label": rng.choice([0.0, 1.0, 2.0, np.nan], 3000, p=[0.6, 0.2, 0.15, 0.05]), "n": before["n"]}
    found = drift_report(before, now, labels=["label"])
    assert (of(found, "label").kind, of(found, "n").kind) == ("category", "number")
    assert of(found, "label").role == "label"
    assert "`0` 3" in of(found, "label").words
    assert "nulls 0 % → 4.9 %" in of(found, "label").words


def test_texts_are_compared_by_their_length() -> None:
    rng = np.random.default_rng(0)

    def texts(longest: int) -> list[str]:
        return ["".join(rng.choice(list("abcdef "), size)) for size in rng.integers(20, longest, 1000)]

    found = drift_report({"text": texts(60)}, {"text": texts(200)}).columns[0]
    assert (found.kind, found.status) == ("text", "drift")
    assert found.words.startswith("median ")
    assert "letters" in found.words


BAD: list[tuple[str, Any, Any, str]] = [
    ("gone", np.arange(500.0), None, "current: numbers expected as in the reference, the column is gone"),
    ("type", np.arange(500.0), ["x"] * 500, "current: numbers expected as in the reference, found string"),
    ("word", ["x", "y"] * 250, np.arange(500), "categories expected as in the reference, found int64"),
    ("no reference", np.full(500, np.nan), np.arange(500.0), "reference: values expected, found null or"),
    ("infinite", np.arange(500.0), np.r_[np.arange(499.0), np.inf], "found 1 infinite, left out"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "now", "sentence"), BAD, ids=[each[0] for each in BAD])
def test_bad_input_is_said_and_is_no_drift(name: str, before: Any, now: Any, sentence: str) -> None:
    current = {"other": np.arange(len(before))} if now is None else {name: now}
    found = drift_report({name: before}, current)
    assert not found.is_drift
    assert sentence in found.columns[0].problems[0]
    assert found.to_dict()["columns"][0]["problems"]


def test_labels_that_have_not_arrived_are_said_and_hold_up_no_verdict(reference: Columns) -> None:
    found = drift_report(reference | {"y": reference["plan"]}, reference, labels=["y"])
    assert found.is_decided
    assert found.ignored == {"y": "current: labels expected as in the reference, none has arrived"}


def test_one_value_in_both_windows_is_no_drift_and_said() -> None:
    found = drift_report({"x": np.ones(500)}, {"x": np.ones(400)})
    assert found.is_decided
    assert found.columns[0].problems == ("reference: values that vary expected, found one alone",)


MANY = "new categories `new0` 0.1 %, `new1` 0.05 % and 1,997 more; `x` 50 % → 0 %, `y` 50 % → 0 %"
CHANGED: list[tuple[Any, Any, str]] = [
    (["DE"] * 400, ["FR"] * 400, "new categories `FR` 100 %"),
    (["DE"] * 400, ["DE"] * 300 + ["FR"] * 100, "new categories `FR` 25 %"),
    (["DE"] * 400, ["DE"] * 300 + [None] * 100, "nulls 0 % → 25 %"),
    (np.ones(500), np.zeros(400), "median 1 → 0; beyond the reference's 1 to 1: 0 % → 100 %"),
    (np.arange(500.0), np.full(500, np.nan), "nulls 0 % → 100 %"),
    (np.ones(500), np.full(500, np.nan), "nulls 0 % → 100 %"),
    (["x", "y"] * 250, [None] * 500, "nulls 0 % → 100 %"),
    (["x", "y"] * 1000, [f"new{i % 1999}" for i in range(2000)], MANY),
]


@pytest.mark.parametrize(("before", "now", "words"), CHANGED)
def test_column_that_was_constant_or_is_all_null_drifts(before: Any, now: Any, words: str) -> None:
    other = np.random.default_rng(0).normal(size=len(before))
    found = drift_report({"x": before, "other": other}, {"x": now, "other": other[: len(now)]})
    (column,) = found.drifting
    assert (column.column, column.words) == ("x", words)
    assert json.loads(found.json())["columns"][0]["status"] == "drift"


def test_column_that_was_mostly_null_and_is_so_wholly_is_undecided() -> None:
    before = np.r_[np.full(496, np.nan), np.arange(4.0)]
    found = drift_report({"x": before}, {"x": np.full(500, np.nan)})
    assert found.columns[0].status == "undecided"
    assert found.columns[0].problems == ("current: values expected, found null or infinite alone",)


@pytest.mark.parametrize("kind", ["number", "category"])
def test_few_new_values_beside_a_constant_are_no_drift_more_often_than_alpha(kind: str) -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        one, two = (rng.random(rows) < 0.0005 for rows in (2000, 200))
        if not one.any():
            values = [each * 1.0 if kind == "number" else np.where(each, "x", "y") for each in (one, two)]
            found = drift_report({"c": values[0]}, {"c": values[1]}, alpha=0.05, least=1e-9, least_share=1e-9)
            alarms += found.is_drift
    assert alarms <= 200 * 0.05


def test_a_small_window_is_undecided_and_says_what_it_needs() -> None:
    rng = np.random.default_rng(0)
    found = drift_report({"x": rng.normal(size=200)}, {"x": rng.normal(size=200)})
    assert found.columns[0].status == "undecided"
    assert (
        "records of each expected to find a distance of 0.2, found 200 and 200"
        in found.columns[0].problems[0]
    )
    assert not found.is_decided
    assert drift_report({"x": rng.normal(size=200)}, {"x": rng.normal(5, size=200)}).is_drift


def test_empty_windows_are_said(reference: Columns) -> None:
    none = {name: values[:0] for name, values in reference.items()}
    found = drift_report(reference, none)
    assert found.problems == ("current: at least 30 effective records expected, found 0",)
    assert {each.status for each in found.columns} == {"undecided"}
    assert not found.is_drift
    assert drift_report(none, reference).problems[0].startswith("reference: at least 30")


def test_types_without_a_distance_are_named() -> None:
    times = pa.array([0, 1] * 50, pa.timestamp("us"))
    data = {"t": times, "mixed": pd.Series([1, "a"] * 50), "x": np.arange(100.0)}
    found = drift_report(data, data)
    assert set(found.ignored) == {"t", "mixed"}
    assert "values of one type expected" in found.ignored["mixed"]


def test_parameters_out_of_range_and_unknown_columns_are_refused(reference: Columns) -> None:
    with pytest.raises(ValueError, match=r"alpha must lie between 0 and 1, got 1\.5"):
        drift_report(reference, reference, alpha=1.5)
    with pytest.raises(ValueError, match="reference: column 'nope' expected"):
        drift_report(reference, reference, columns=["nope"])
    with pytest.raises(ValueError, match="reference: column 'user' expected"):
        drift_report(reference, reference, entity="user")
    with pytest.raises(TypeError, match="a frame, an Arrow table or a Batch expected, got int"):
        drift_report(3, reference)
    weights = reference | {"w": np.zeros(4000)}
    with pytest.raises(ValueError, match=r"weights above 0 expected, found 0\.0 in 4000 records"):
        drift_report(weights, weights, weight="w")


def test_report_is_json_and_a_frame(reference: Columns, current: Columns) -> None:
    found = drift_report(reference, current)
    told = found.to_dict()
    assert told["columns"][0]["distribution"]["reference"]
    for column in told["columns"]:
        for window in ("reference", "current"):
            assert sum(column["distribution"][window]) == pytest.approx(1.0, abs=1e-4)
    assert list(found.to_frame().column) == [each.column for each in found.columns]
    assert "no drift shown" in found._repr_html_()


def in_runs(rng: np.random.Generator, rows: int, length: int = 20) -> NDArray[np.float64]:
    return np.repeat(rng.normal(size=rows // length), length) + 0.1 * rng.normal(size=rows)


def test_long_window_is_charged_with_what_lasts_not_with_short_blocks() -> None:
    """Runs of twenty scatter blocks, and cancel out in a window of many."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        one, two = in_runs(rng, 3000), in_runs(rng, 1000)
        assert not drift_report({"x": one}, {"x": two}).is_drift
        found += drift_report({"x": one}, {"x": two + 2 * one.std()}, columns=["x"]).is_drift
    assert found >= 18


@pytest.mark.parametrize("share", [3, 4, 8])
@pytest.mark.parametrize("kind", ["slow", "season", "walk"])
def test_slow_streams_alarm_no_more_often_than_alpha(kind: str, share: int) -> None:
    draws, alarms = rounds(400, part=40), 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        rows = 2400 + 2400 // share
        noise = rng.normal(size=rows)
        slow = np.cumsum(rng.normal(size=rows)) * 0.04
        if kind == "slow":  # forgets within 200 records
            slow = np.convolve(rng.normal(size=rows + 999), 0.1 * 0.995 ** np.arange(1000), mode="valid")
        elif kind == "season":
            slow = np.sin(2 * np.pi * (np.arange(rows) / 400 + rng.random()))
        value = slow + noise
        found = drift_report({"x": value[:2400]}, {"x": value[2400:]}, alpha=0.05)
        alarms += found.is_drift
    assert alarms <= at_most(0.05 if kind != "walk" else 0.1, draws) * draws


def test_reference_of_fewer_than_three_windows_says_what_it_cannot_tell() -> None:
    level = np.repeat([0.0, 1.0, 0.3, 0.7], 500)
    noise = np.random.default_rng(0).normal(size=4000)
    found = drift_report({"x": level + noise[:2000]}, {"x": 2.5 + noise[2000:]}).columns[0]
    assert found.status == "undecided"
    assert (
        "reference: about 6,000 records expected, 3 times as many as are held against it" in found.problems[0]
    )
    assert "current is distributed otherwise by 0.68 (16 % of its values are new)" in found.problems[0]
    assert found.to_dict()["smallest_found"] is None
    enough = drift_report({"x": level + noise[:2000]}, {"x": 2.5 + noise[2000:2600]}).columns[0]
    assert 0 < enough.smallest_found < 1.5


def test_sorted_reference_decides_nothing_and_names_no_number_of_records() -> None:
    rising = np.sort(np.random.default_rng(0).normal(size=4000))
    found = drift_report({"x": rising[:3500]}, {"x": rising[3500:]}).columns[0]
    assert found.status == "undecided"
    assert "97 % of its values are new" in found.problems[0]
    assert "no distance could be" in found.problems[0]


CLUMPED = np.where((np.arange(4000) // 100) % 20 == 3, np.nan, 1.0)
NEVER_SEEN: list[tuple[Any, Any, str]] = [
    (np.repeat(["DE", "AT", "DE", "AT"], 500), ["FR"] * 2000, "new categories `FR` 100 %"),
    (np.repeat(["DE", "AT", "DE", "AT"], 500), ["FR"] * 300, "new categories `FR` 100 %"),
    (CLUMPED * np.arange(4000), np.full(4000, np.nan), "nulls 5 % → 100 %"),
    (CLUMPED, np.where(np.isnan(CLUMPED), np.nan, 2.0), "median 1 → 2; beyond the reference's 1 to 1"),
]


@pytest.mark.parametrize(("before", "now", "words"), NEVER_SEEN)
def test_values_never_seen_drift_beside_blocks_that_differ(before: Any, now: Any, words: str) -> None:
    found = drift_report({"x": before}, {"x": now}).columns[0]
    assert found.status == "drift"
    assert words in found.words


def test_smallest_distance_told_is_about_the_smallest_found() -> None:
    """Shifts of the told distance are found by most reports, half of it by few."""
    hits = np.zeros(2)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        one, two = in_runs(rng, 6000), in_runs(rng, 1500)
        smallest = drift_report({"x": one}, {"x": two}).columns[0].smallest_found
        assert 0 < smallest < 0.6
        for at, part in enumerate((1.0, 0.5)):  # a uniform value moves by as much as it is distant
            moved = {"x": np.argsort(np.argsort(one)) / len(one)}
            known = np.searchsorted(np.sort(one), two) / len(one)
            report = drift_report(moved, {"x": known + part * smallest})
            hits[at] += "shape" in report.columns[0].drifting
    assert hits[0] >= 28
    assert hits[1] <= 12


def weeks(first: str, days: int, moved: float = 0.0, at_weekends: float = 2.0) -> Columns:
    """Two hundred records a day, higher at weekends, and by three in the evening."""
    times = pd.date_range(first, periods=200 * days, freq="432s").to_numpy()
    at = pd.DatetimeIndex(times)
    noise = np.random.default_rng(len(first) + days).normal(size=len(times))
    return {"at": times, "x": at_weekends * (at.day_of_week >= 5) + 3.0 * (at.hour >= 18) + noise + moved}


@pytest.mark.parametrize(
    ("first", "part", "at_weekends", "name"),
    [
        ("2026-03-28", slice(0, 400), 2.0, "the same days of 4 weeks"),  # Saturday and Sunday
        ("2026-03-30", slice(150, 200), 0.0, "the same hours of 28 days"),  # one evening
    ],
)
def test_window_is_held_against_the_same_hours_or_days_of_event_times(
    first: str, part: slice, at_weekends: float, name: str
) -> None:
    reference = weeks("2026-02-28", 28, 0.0, at_weekends)  # a Saturday
    for moved in (0.0, 2.0):
        current = {column: values[part] for column, values in weeks(first, 2, moved, at_weekends).items()}
        found = drift_report(reference, current, ts="at")
        assert name in found.sentence
        assert found.is_drift == (moved > 0)
        assert [each.column for each in found.columns] == ["x"]


@pytest.mark.parametrize("days", [1, 2, 14])
def test_times_match_only_where_the_reference_has_three_such_stretches(days: int) -> None:
    reference, current = weeks("2026-02-28", days), weeks("2026-03-28", 5)
    found = drift_report(reference, current, ts="at")
    assert "the same" not in found.sentence
    assert found.reference_rows == 200 * days


def test_rows_out_of_order_are_put_in_order_by_their_times() -> None:
    rng = np.random.default_rng(0)
    walk, ts = np.cumsum(rng.normal(size=3000)), np.arange(3000).astype("M8[m]")
    micros = ts.astype("M8[us]")
    mixed = rng.permutation(3000)
    now = {"x": walk[:500] + 9, "ts": micros[:500] + np.timedelta64(3, "D")}
    frames: list[Callable[[Columns], Any]] = [dict, pa.table, pd.DataFrame]
    frames.append(lambda columns: {name: values.tolist() for name, values in columns.items()})
    ordered = drift_report({"x": walk, "ts": ts}, now, ts="ts").to_dict()
    for made in frames:
        found = drift_report(made({"x": walk[mixed], "ts": micros[mixed]}), made(now), ts="ts")
        assert found.to_dict() == ordered


@pytest.mark.parametrize(
    ("times", "found"), [(["a"] * 400, "string"), ([None] * 400, "null"), ([1, "a"] * 200, "")]
)
def test_times_that_are_none_are_an_error(times: list[Any], found: str) -> None:
    rows = {"x": np.arange(400.0), "ts": times}
    with pytest.raises(ValueError, match=f"reference: event times expected in column 'ts'.*{found}"):
        drift_report(rows, rows, ts="ts")
