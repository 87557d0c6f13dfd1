"""Group metrics from counts are those of the records, and of fairlearn."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.behavioral._fairlearn_peer import drawn
from outrider.assertions import Batch
from outrider.behavioral_tests.counted_groups import GroupCells, counted_metrics, stepped_metrics
from outrider.behavioral_tests.fairness import METRICS, GroupMetrics, group_metrics
from tests.soak import examples

FOUND = json.loads((Path(__file__).parent / "fairlearn.json").read_text(encoding="utf-8"))
RATES = METRICS[:-1]


def cells_of(
    sex: Any, said: Any, truth: Any, weight: Any, entities: Any = None
) -> tuple[GroupCells, list[str]]:
    """One cell for each record and, where it has a label, one more; so are counts before they are added."""
    names, group = np.unique(sex, return_inverse=True)
    labelled = np.flatnonzero([one is not None for one in truth])
    at = np.r_[np.arange(len(sex)), labelled]
    of_label = np.arange(len(at)) >= len(sex)
    said, weight = np.asarray(said), np.asarray(weight, dtype=float)
    true = np.array([-1 if one is None else one for one in truth])
    first = np.ones(len(sex)) if entities is None else np.zeros(len(sex))
    if entities is not None:
        first[np.unique([f"{one}|{y}|{s}" for one, y, s in zip(entities, said, sex, strict=True)],
                        return_index=True)[1]] = 1  # fmt: skip
    cells = GroupCells(
        group[at], of_label, said[at] == 1, of_label & (true[at] == 1), of_label & (said[at] == true[at]),
        np.ones(len(at)), np.where(of_label, 0.0, first[at]), weight[at], weight[at] ** 2,
    )  # fmt: skip
    return cells, [f"sex={name}" for name in names]


def put_together(cells: GroupCells) -> GroupCells:
    """Cells of one kind and weight as one: what a minute's transaction writes."""
    keys = np.stack([cells.group, cells.is_labelled, cells.is_selected, cells.is_positive, cells.is_right], 1)
    kinds, place = np.unique(keys, axis=0, return_inverse=True)
    sums = [np.bincount(place.ravel(), weights=getattr(cells, name)) for name in
            ("records", "entities", "weight", "squares")]  # fmt: skip
    flags = kinds[:, 1:].astype(bool).T
    return GroupCells(kinds[:, 0].astype(np.intp), *flags, *sums)


def counted(*columns: Any) -> GroupMetrics:
    cells, names = cells_of(*columns)
    return counted_metrics(put_together(cells), names, by=["sex"])


def of_records(sex: Any, said: Any, truth: Any, weight: Any) -> GroupMetrics:
    columns = {"inputs.sex": sex, "outputs.label": said, "weight": weight}
    batch = Batch.from_columns(columns | {"label.label": np.asarray(truth)}, model="m")
    return group_metrics(batch, by="sex")


def test_rates_differences_and_ratios_are_those_of_fairlearn() -> None:
    data = drawn()
    found = counted(data["sex"], data["said"], data["truth"].tolist(), data["weight"])
    for metric in RATES:
        rates = {rate.group.removeprefix("sex="): rate.value for rate in found.of(metric)}
        assert rates == pytest.approx(FOUND["rates"][metric], abs=1e-12)
        gap = found.gap(metric)
        assert gap.value == pytest.approx(FOUND["differences"][metric], abs=1e-12)
        assert gap.ratio == pytest.approx(FOUND["ratios"][metric], abs=1e-12)


row = st.tuples(st.sampled_from("fm"), st.integers(0, 1), st.integers(0, 1))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(row, min_size=4, max_size=60), st.sampled_from([1.0, 2.5]))
def test_counts_of_records_of_one_weight_give_the_intervals_of_the_records(rows: Any, weight: float) -> None:
    rows = [*rows, ("f", 1, 1), ("m", 0, 0)]
    sex, said, truth = ([one[at] for one in rows] for at in range(3))
    own = counted(sex, said, truth, np.full(len(rows), weight))
    slow = of_records(sex, np.array(said), truth, np.full(len(rows), weight))
    assert dict(own.rows) == dict(slow.rows)
    for metric in RATES:
        for one, other in zip(own.of(metric), slow.of(metric), strict=True):
            ours, theirs = ([each.value, each.low, each.high, each.rows] for each in (one, other))
            assert ours == pytest.approx(theirs, abs=1e-9, nan_ok=True), metric
        gaps = own.gap(metric, least_rows=1), slow.gap(metric, least_rows=1)
        assert (gaps[0].highest, gaps[0].lowest) == (gaps[1].highest, gaps[1].lowest)
        assert gaps[0].low == pytest.approx(gaps[1].low, abs=1e-9)


@pytest.mark.parametrize("repeats", [1, 12])
def test_all_steps_at_once_are_each_step_by_itself(repeats: int) -> None:
    rng = np.random.default_rng(4)
    columns = [np.repeat(one, repeats) for one in (
        rng.choice(["f", "m", "x"], 900, p=[0.5, 0.45, 0.05]), rng.integers(0, 2, 900),
        rng.integers(0, 2, 900), rng.choice([1.0, 5.0], 900),
    )]  # fmt: skip
    sex, said, truth, weight = columns
    cells, names = cells_of(sex, said, truth.tolist(), weight, np.repeat(np.arange(900), repeats))
    steps = rng.choice([0, 2, 3, 7], len(sex))
    steps = np.r_[steps, steps]
    found = stepped_metrics(cells, steps, names, by=["sex"])
    assert [*found] == [0, 2, 3, 7]
    for step, own in found.items():
        alone = counted_metrics(cells.take(steps == step), names, by=["sex"])
        assert own.rows == alone.rows
        for one, other in zip(own.rates, alone.rates, strict=True):
            assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other), nan_ok=True)
        for metric in RATES:
            gaps = [dataclasses.astuple(each.gap(metric)) for each in (own, alone)]
            assert gaps[0][:-1] == pytest.approx(gaps[1][:-1], nan_ok=True)
            assert gaps[0][-1] == gaps[1][-1]


def test_repeats_of_an_entity_prove_no_more_than_one_record_of_it() -> None:
    rng = np.random.default_rng(1)
    sex, said = np.repeat(["f", "m"], 200), rng.integers(0, 2, 400)
    alone = counted(sex, said, said.tolist(), np.ones(400))
    many = [np.repeat(one, 30) for one in (sex, said)]
    entities = np.repeat(np.arange(400), 30)
    repeated = counted(*many, many[1].tolist(), np.ones(12_000), entities)
    blind = counted(*many, many[1].tolist(), np.ones(12_000))
    for one, other, naive in zip(
        *(found.of("selection_rate") for found in (alone, repeated, blind)), strict=True
    ):
        assert other.value == pytest.approx(one.value)
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.1)
        assert naive.high - naive.low < 0.3 * (one.high - one.low)
    few = counted(*many, many[1].tolist(), np.ones(12_000), np.repeat(np.arange(8), 1500))
    assert all((rate.low, rate.high) == (0.0, 1.0) for rate in few.of("tpr") if 0 < rate.value < 1)
    assert few.gap("selection_rate").highest == ""


def test_intervals_of_repeated_entities_hold_what_they_promise() -> None:
    """Groups of a true share of 0.3 whose entities come 20 times, mostly with one answer."""
    rng = np.random.default_rng(2)
    covered = []
    for _ in range(150):
        kind = rng.random(120) < 0.3
        said = np.where(rng.random((120, 20)) < 0.9, kind[:, None], ~kind[:, None]).astype(int).ravel()
        truth = 0.3 * 0.9 + 0.7 * 0.1
        rate = counted(np.full(2400, "f"), said, [None] * 2400, np.ones(2400), np.repeat(np.arange(120), 20))
        (found,) = rate.of("selection_rate")
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.93
