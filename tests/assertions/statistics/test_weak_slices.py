"""Weak slices: planted ones are found, none is proven where there is none."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from benchmarks.statistics.weak_slices import BY_DAY, KINDS, columns, days, false_by_day, false_proofs
from outrider.assertions.statistics.weak_slices import Condition, find_weak_slices, holds
from tests.soak import at_most, rounds

ROWS = 3000


def values(table: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array(table.column(name).to_pylist(), dtype=object)


def test_two_columns_that_matter_only_together_are_found_first() -> None:
    rng = np.random.default_rng(1)
    table = columns(rng, ROWS)
    north, member = values(table, "region") == "north", values(table, "member").astype(bool)
    wrong = rng.random(ROWS) < np.where(north != member, 0.05, np.where(north, 0.25, 0.05))
    found = find_weak_slices(table, wrong)
    assert {str(each) for each in found.proven[0].conditions} == {"region = north", "member = True"}
    first = found.proven[0]
    assert first.more_low > 0
    assert first.low < 0.25 < first.high
    assert first.rest == pytest.approx(0.05, abs=0.02)


def test_each_of_two_causes_is_a_finding() -> None:
    rng = np.random.default_rng(2)
    table = columns(rng, 8000)
    old, seven = values(table, "age") > 75, values(table, "device") == "d7"
    wrong = rng.random(8000) < np.where(old, 0.3, np.where(seven, 0.5, 0.05))
    found = [str(one) for one in find_weak_slices(table, wrong).proven]
    assert len(found) == 2
    assert any(one.startswith("age > 7") for one in found)
    assert "device = d7" in found


def test_missing_values_and_long_texts_are_conditions() -> None:
    rng = np.random.default_rng(3)
    letters, age = rng.integers(1, 300, ROWS), rng.normal(50, 9, ROWS)
    is_gone = rng.random(ROWS) < 0.1
    table = pa.table(
        {
            "text": [f"{n:>{length}}" for n, length in enumerate(letters)],
            "age": pa.array(age, mask=is_gone),
            "boxes": pa.array([[1.0]] * ROWS),
        }
    )
    wrong = rng.random(ROWS) < np.where(is_gone, 0.6, np.where(letters > 240, 0.3, 0.02))
    found = find_weak_slices(table, wrong)
    assert str(found.proven[0]) in ("age is missing", "length of text > 239", "length of text > 240")
    assert any("age is missing" in str(one) for one in found.proven)
    assert any("length of text > 2" in str(one) for one in found.proven)
    assert found.left_out == {"boxes": "list<item: double> is neither number, text nor truth value"}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_proven_of_noise(kind: str) -> None:
    runs = rounds(2000, part=40)
    assert false_proofs(kind, runs) / runs <= at_most(0.05, runs)


@pytest.mark.parametrize("kind", BY_DAY)
def test_nothing_is_proven_of_days_that_differ(kind: str) -> None:
    runs = rounds(2000, part=40)
    assert false_by_day(kind, 8, runs) / runs <= at_most(0.05, runs)


def test_slice_that_is_worse_each_day_is_proven_though_days_differ() -> None:
    rng = np.random.default_rng(6)
    table, day = columns(rng, ROWS), np.arange(ROWS) % 10
    rate = np.where(values(table, "region") == "north", 0.3, 0.05) * np.exp(0.6 * rng.normal(size=10))[day]
    times = np.datetime64("2026-01-05", "us") + day * np.timedelta64(1, "D")
    found = find_weak_slices(table, rng.random(ROWS) < rate, time=times)
    assert str(found.proven[0]) == "region = north"
    assert (found.proven[0].more_low > 0, found.stretch) == (True, "")


def test_too_short_a_time_is_named() -> None:
    given = days("days", 8, 0)
    given["time"] = given["time"].astype("M8[M]").astype("M8[us]")
    assert find_weak_slices(**given).stretch == "rows whose event times do not differ"


def test_weights_speak_of_the_traffic() -> None:
    rng = np.random.default_rng(4)
    table = columns(rng, 6000)
    north = values(table, "region") == "north"
    wrong = rng.random(6000) < np.where(north, 0.2, 0.05)
    kept = wrong | (rng.random(6000) < 0.2)  # every wrong one was captured, and a fifth of the others
    some = table.filter(pa.array(kept))
    found = find_weak_slices(some, wrong[kept], weight=np.where(wrong, 1.0, 5.0)[kept])
    assert str(found.proven[0]) == "region = north"
    assert found.proven[0].rate == pytest.approx(0.2, abs=0.04)
    assert found.proven[0].rest == pytest.approx(0.05, abs=0.02)
    assert found.proven[0].share == pytest.approx(1 / 3, abs=0.05)


def test_conditions_hold_where_they_say() -> None:
    table = pa.table({"n": pa.array([1, 2, None]), "f": [0.5, float("nan"), 2.0], "t": ["a", None, "bcd"]})
    for condition, expected in (
        (Condition("n", "=", 2), [False, True, False]),
        (Condition("n", "is missing"), [False, False, True]),
        (Condition("f", "<=", 1.0), [True, False, False]),
        (Condition("f", ">", 1.0), [False, False, True]),
        (Condition("f", "is missing"), [False, True, False]),
        (Condition("length of t", ">", 2.0), [False, False, True]),
    ):
        assert holds(condition, table).tolist() == expected, condition


@pytest.mark.parametrize("wrong", [np.zeros(50, bool), np.ones(50, bool)])
def test_an_outcome_of_all_or_nobody_has_no_weak_slice(wrong: NDArray[np.bool_]) -> None:
    found = find_weak_slices(columns(np.random.default_rng(0), 50), wrong)
    assert found.slices == ()
    assert find_weak_slices(pa.table({"a": pa.array([], pa.string())}), []).slices == ()


@pytest.mark.parametrize("many", [100, 250])
def test_columns_of_numbers_crowd_out_no_column_of_two_values(many: int) -> None:
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south"], 4_000)
    wrong = rng.random(4_000) < np.where(region == "north", 0.3, 0.05)
    noise = {f"c{number}": rng.normal(size=4_000) for number in range(many)}
    found = find_weak_slices(pa.table({**noise, "region": region}), wrong)
    assert [str(one) for one in found.proven] == ["region = north"]
    assert "region" not in found.left_out


def test_dictionaries_and_views_are_texts() -> None:
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south"], 2_000)
    wrong = rng.random(2_000) < np.where(region == "north", 0.3, 0.05)
    note = pa.array([f"note {number}" for number in range(2_000)])
    for text in (note.dictionary_encode(), note.cast(pa.string_view())):
        found = find_weak_slices(
            pa.table({"region": pa.array(region).dictionary_encode(), "note": text}), wrong
        )
        assert [str(one) for one in found.proven] == ["region = north"]


def test_another_number_of_outcomes_is_refused() -> None:
    with pytest.raises(ValueError, match="3 rows of columns, 2 outcomes"):
        find_weak_slices(pa.table({"a": [1, 2, 3]}), [True, False])
