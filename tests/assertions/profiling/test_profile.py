import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.assertions.batch.columns import tensor_array
from outrider.assertions.profiling import RANKS, Profile, ProfileLayout, merged, summaries
from outrider.assertions.profiling.features import narrowed
from outrider.assertions.profiling.summary import ColumnSummary

NAMES = ["north", "south", "east", "west"]


def traffic(rows: int, *, seed: int = 0, weighted: bool = False, entities: int | None = None) -> Batch:
    rng = np.random.default_rng(seed)
    income = rng.lognormal(10, 1, rows)
    columns = {
        "inputs.age": pa.array(rng.integers(18, 90, rows), mask=rng.random(rows) < 0.05),
        "inputs.income": np.where(rng.random(rows) < 0.02, np.nan, income),
        "inputs.branch": pa.array(rng.choice(NAMES, rows), mask=rng.random(rows) < 0.1),
        "outputs.label": rng.integers(0, 3, rows),
        "outputs.good": rng.random(rows) < 0.5,
        "attrs.latency_ms": rng.exponential(20, rows),
    }
    if weighted:
        columns["weight"] = 1 / rng.uniform(0.05, 1, rows)
    if entities:
        columns["entity"] = pa.array([f"e{n}" for n in rng.integers(0, entities, rows)])
    return Batch.from_columns(columns, model="m")


def column(profile: Profile, name: str) -> ColumnSummary:
    return next(one for one in summaries(profile) if one.name == name)


def test_counts_are_those_of_a_slow_loop() -> None:
    batch = traffic(3000, weighted=True)
    layout = ProfileLayout.fit(traffic(2000, seed=1))
    profile = Profile.of(batch, layout)
    age = layout.by_name["inputs.age"]
    edges = age.edge_values()
    expected: Counter[int] = Counter()
    weights: Counter[int] = Counter()
    for value, weight in zip(batch.arrow("inputs.age").to_pylist(), batch.column("weight"), strict=True):
        place = age.bins + 1 if value is None else sum(value >= edge for edge in edges)
        expected[place] += 1
        weights[place] += weight
    counts, mass = profile.counts_of("inputs.age")
    assert {at: count for at, count in enumerate(counts.tolist()) if count} == dict(expected)
    assert mass == pytest.approx([weights[at] for at in range(len(mass))], abs=1e-3)
    branch = Counter(batch.arrow("inputs.branch").to_pylist())
    known = layout.by_name["inputs.branch"]
    assert profile.counts_of("inputs.branch")[0].tolist() == [
        *(branch[name] for name in known.categories), 0, branch[None], 0, 0,
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=6), st.booleans(), st.integers(0, 3))
def test_merge_of_any_split_is_the_whole(cuts: list[int], weighted: bool, turn: int) -> None:
    batch, layout = traffic(400, weighted=weighted), ProfileLayout.fit(traffic(500, seed=1))
    whole = Profile.of(batch, layout)
    ends = [0, *sorted(cuts), batch.rows]
    parts = [batch.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]
    parts = parts[turn % len(parts) :] + parts[: turn % len(parts)]
    stored = [Profile.from_bytes(Profile.of(part, layout).to_bytes(), layout) for part in parts]
    found = merged(stored)
    assert found.rows == whole.rows
    assert found.weight == whole.weight
    assert (found.counts == whole.counts).all()
    assert (found.weights == whole.weights).all()
    for one, other in zip(found.estimates, whole.estimates, strict=True):
        assert (one.registers == other.registers).all()


@pytest.mark.parametrize("parts", [1, 7, 100])
def test_quantiles_agree_with_numpy_within_the_stated_error(parts: int) -> None:
    rng = np.random.default_rng(3)
    layout = ProfileLayout.fit(traffic(2000, seed=1))
    for name, values in (
        ("inputs.income", rng.lognormal(10, 1, 50_000)),
        ("inputs.age", rng.normal(0, 1, 50_000)),
    ):
        batch = Batch.from_columns({name: values}, model="m")
        profile = merged(
            [Profile.of(batch.take(rows), layout) for rows in np.array_split(np.arange(50_000), parts)]
        )
        found = column(profile, name)
        assert found.quantiles is not None
        for rank, value in zip(RANKS, found.quantiles, strict=True):
            low, high = np.quantile(values, [max(0.0, rank - 0.015), rank + 0.015])
            spread = 0.016 * max(abs(low), abs(high)) + 0.5 * (name == "inputs.age")
            assert low - spread <= value <= high + spread
        assert found.mean == pytest.approx(values.mean(), rel=1e-9)
        assert found.deviation == pytest.approx(values.std(), rel=1e-6)
        assert found.distinct == pytest.approx(50_000, rel=0.12)


def test_ids_beyond_single_precision_stay_apart() -> None:
    ids = np.arange(5000, dtype=np.int64) + (1 << 53)
    batch = Batch.from_columns({"inputs.id": ids}, model="m")
    profile = Profile.of(batch, ProfileLayout.fit(batch))
    assert column(profile, "inputs.id").distinct == pytest.approx(5000, rel=0.12)
    counts, _ = profile.counts_of("inputs.id")
    assert counts.max() <= 5000 / 40


def test_class_numbers_truth_values_and_strings_are_categories() -> None:
    layout = ProfileLayout.fit(traffic(1000), classes={"outputs.label": ["0", "1", "2", "3"]})
    assert {name: one.categories for name, one in layout.by_name.items() if one.kind == "category"} == {
        "inputs.branch": layout.by_name["inputs.branch"].categories,
        "outputs.label": ("0", "1", "2", "3"),
        "outputs.good": layout.by_name["outputs.good"].categories,
    }
    assert set(layout.by_name["inputs.branch"].categories) == set(NAMES)
    assert set(layout.by_name["outputs.good"].categories) == {"true", "false"}


def test_no_value_of_under_ten_entities_is_kept() -> None:
    rows = 2000
    names = np.array(["common"] * rows, dtype=object)
    names[:9] = "secret"
    names[9:500] = "of one person"
    amounts = np.random.default_rng(0).normal(100, 10, rows)
    amounts[700] = 98765432.1
    entities = np.arange(rows).astype(str).astype(object)
    entities[9:500] = "alone"
    batch = Batch.from_columns(
        {"inputs.name": names, "inputs.amount": amounts, "entity": pa.array(entities)}, model="m"
    )
    layout = ProfileLayout.fit(batch)
    profile = Profile.of(batch, layout)
    text = layout.to_json()
    assert layout.by_name["inputs.name"].categories == ("common",)
    assert "secret" not in text
    assert "alone" not in text
    found = column(profile, "inputs.amount")
    assert found.high is not None
    assert found.high < 150
    named = column(profile, "inputs.name")
    assert [one.name for one in named.categories] == ["common"]
    assert named.other == 500
    fewer = Profile.of(batch.slice(0, 9), layout)
    assert column(fewer, "inputs.amount").mean is None
    assert all(not len(one.points.cells) for one in fewer.estimates)


def test_a_new_category_of_ten_entities_is_named_and_counted_as_other() -> None:
    layout = ProfileLayout.fit(traffic(1000))
    names = ["north"] * 50 + ["NORTH"] * 10 + ["mars"] * 3
    profile = Profile.of(Batch.from_columns({"inputs.branch": names}, model="m"), layout)
    found = column(Profile.from_bytes(profile.to_bytes(), layout), "inputs.branch")
    assert [(one.name, one.weight, one.is_new) for one in found.categories] == [
        ("north", 50, False), ("NORTH", 10, True),
    ]  # fmt: skip
    assert found.other == 3


def test_a_million_new_categories_cost_little_and_are_folded() -> None:
    layout = ProfileLayout.fit(traffic(1000))
    batch = Batch.from_columns({"inputs.branch": pa.array(np.arange(200_000).astype(str))}, model="m")
    profile = Profile.of(batch, layout)
    assert column(profile, "inputs.branch").other == 200_000
    assert len(profile.to_bytes()) < 5000


def test_columns_that_are_gone_or_of_another_type_are_counted() -> None:
    layout = ProfileLayout.fit(traffic(1000))
    batch = Batch.from_columns({"inputs.age": ["41"] * 20, "inputs.income": [math.inf] * 20}, model="m")
    profile = Profile.of(batch, layout)
    assert column(profile, "inputs.age").mistyped == 1.0
    assert column(profile, "inputs.income").non_finite == 1.0
    assert column(profile, "inputs.branch").absent == 1.0
    for one in layout.columns:
        assert profile.counts_of(one.name)[0].sum() == 20


def test_a_layout_grows_by_new_columns_alone_and_old_profiles_still_merge() -> None:
    old = traffic(1000)
    layout = ProfileLayout.fit(old)
    new = traffic(1000, seed=2).with_columns({"inputs.rate": np.random.default_rng(0).random(1000)})
    wider = layout.extended(new)
    assert wider.columns[:-1] == layout.columns
    assert wider.columns[-1].name == "inputs.rate"
    assert ProfileLayout.from_json(wider.to_json()).digest == wider.digest
    both = Profile.of(old, layout).merged(Profile.of(new, wider))
    apart = [Profile.of(old, layout), Profile.of(new, wider)]
    assert (both.counts_of("inputs.age")[0] == sum(one.counts_of("inputs.age")[0] for one in apart)).all()
    assert column(both, "inputs.rate").absent == 0.5


def test_bins_have_ten_entities_and_about_equal_shares() -> None:
    batch = traffic(5000)
    profile = Profile.of(batch, layout := ProfileLayout.fit(batch))
    counts, _ = profile.counts_of("attrs.latency_ms")
    inner = counts[1 : layout.by_name["attrs.latency_ms"].bins - 1]
    assert inner.min() >= 10
    assert inner.max() <= 3 * 5000 / 64


def test_a_share_of_one_value_is_a_bin_of_its_own() -> None:
    values = np.where(np.arange(4000) % 2, 0.0, np.random.default_rng(0).exponential(5, 4000))
    batch = Batch.from_columns({"inputs.claims": values}, model="m")
    layout = ProfileLayout.fit(batch)
    counts, _ = Profile.of(batch, layout).counts_of("inputs.claims")
    assert counts.max() == pytest.approx(2000, abs=40)


def test_texts_images_vectors_and_lists_are_counted_by_their_properties() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((60, 12, 12)).astype(np.float32)
    images[30:] *= 0.1
    texts = ["the cat sat on the mat and it was good"] * 30 + [
        "der Hund ist nicht in dem Haus und ich bin"
    ] * 30
    batch = Batch.from_columns(
        {
            "inputs.image": tensor_array(images),
            "inputs.text": texts,
            "inputs.embedding": tensor_array(rng.random((60, 5)).astype(np.float32)),
            "outputs.boxes": pa.array([[1.0] * (n % 4) for n in range(60)]),
        },
        model="m",
    )
    layout = ProfileLayout.fit(batch)
    profile = Profile.of(batch, layout)
    assert set(layout.by_name) == {
        "inputs.image#brightness", "inputs.image#sharpness", "inputs.text#length", "inputs.text#language",
        "inputs.embedding#norm", "outputs.boxes#elements",
    }  # fmt: skip
    languages = {one.name: one.weight for one in column(profile, "inputs.text#language").categories}
    assert languages == {"en": 30, "de": 30}
    assert column(profile, "inputs.image#brightness").mean == pytest.approx(images.mean(), rel=1e-5)
    assert column(profile, "outputs.boxes#elements").mean == pytest.approx(1.5)


def test_one_entity_counts_once_in_what_is_fitted() -> None:
    values = np.concatenate([np.zeros(5000), np.arange(1.0, 41.0)])
    entities = ["one"] * 5000 + [f"e{n}" for n in range(40)]
    layout = ProfileLayout.fit(Batch.from_columns({"inputs.x": values, "entity": entities}, model="m"))
    assert len(layout.by_name["inputs.x"].edges) == 5


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3), (3, 20, 30), (1, 20, 30)])
def test_sharpness_is_the_variance_of_the_laplacian(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (50, *shape)).astype(np.uint8)
    channels = tuple(axis + 1 for axis, side in enumerate(shape) if side <= 4)
    grey = images.mean(axis=channels) if channels else images.astype(np.float64)
    values = []
    for image in grey:
        inner = [
            image[y - 1, x] + image[y + 1, x] + image[y, x - 1] + image[y, x + 1] - 4 * image[y, x]
            for y in range(1, 19)
            for x in range(1, 29)
        ]
        values.append(np.var(inner))
    batch = Batch.from_columns({"inputs.image": tensor_array(images)}, model="m")
    profile = Profile.of(batch, ProfileLayout.fit(batch))
    assert column(profile, "inputs.image#sharpness").mean == pytest.approx(np.mean(values), rel=1e-4)
    assert column(profile, "inputs.image#brightness").mean == pytest.approx(grey.mean(), rel=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        np.r_[1e300, np.zeros(999)],
        np.r_[1e308, -1e308, np.full(998, 5.0)],
        np.r_[3e38, np.linspace(0, 1, 999)],
        np.full(1000, 1e300),
    ],
)
def test_one_odd_number_leaves_all_figures_finite(values: np.ndarray) -> None:
    batch = Batch.from_columns({"inputs.x": values}, model="m")
    layout = ProfileLayout.fit(batch)
    (found,) = summaries(Profile.of(batch, layout))
    assert sum(found.counts) == 1000
    assert found.quantiles is not None
    shown = [*found.edges, *found.quantiles, found.mean, found.deviation, found.low, found.high]
    assert all(one is not None and np.isfinite(one) for one in shown)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(1000) * 1_000_003 + 1, pa.timestamp("ns")),
        pa.array(np.arange(1000) * 1_000_003 + 1, pa.timestamp("ns", "UTC")),
        pa.array([f"a text of more than five words {at}" for at in range(1000)]).dictionary_encode(),
    ],
)
def test_columns_of_any_type_are_counted(column: pa.Array) -> None:
    batch = Batch.from_arrow(pa.record_batch({"inputs.x": column}), model="m")
    found = summaries(Profile.of(batch, ProfileLayout.fit(batch)))
    assert found
    assert all((one.mistyped, one.absent) == (0.0, 0.0) for one in found)


@pytest.mark.parametrize("column", [pa.array([pa.MonthDayNano([1, 2, 3])] * 20), pa.array([b"a"] * 20)])
def test_columns_that_nothing_can_be_counted_of_are_left_out(column: pa.Array) -> None:
    batch = Batch.from_arrow(pa.record_batch({"inputs.x": column}), model="m")
    assert ProfileLayout.fit(batch).columns == ()


def test_a_hash_in_a_columns_name_is_no_property() -> None:
    batch = Batch.from_columns({"inputs.house #": np.arange(1000.0)}, model="m")
    layout = ProfileLayout.fit(batch)
    assert (layout.columns[0].column, layout.extended(batch)) == ("inputs.house #", layout)
    assert summaries(Profile.of(batch, layout))[0].absent == 0.0


def test_profiles_of_large_tensors_are_those_of_their_features() -> None:
    rng = np.random.default_rng(0)
    images = tensor_array(rng.random((60, 32, 32, 3)) * np.linspace(0, 1, 60)[:, None, None, None])
    columns = {
        "inputs.image": pa.ExtensionArray.from_storage(
            images.type, images.storage.take(pa.array([*range(55), *[None] * 5], pa.int64()))
        ),
        "inputs.vector": tensor_array(rng.random((60, 2048))),
        "inputs.small": tensor_array(rng.random((60, 4))),
        "outputs.label": rng.integers(0, 3, 60),
    }
    whole = Batch.from_columns(columns, model="m")
    narrow = narrowed(whole)
    assert narrow.to_arrow().nbytes < whole.to_arrow().nbytes / 100
    layout = ProfileLayout.fit(whole)
    assert ProfileLayout.fit(narrow) == layout
    assert ProfileLayout(()).extended(narrow) == layout == layout.extended(narrow)
    one, two = Profile.of(whole, layout), Profile.of(narrow, layout)
    assert (one.counts == two.counts).all()
    assert one.to_bytes() == two.to_bytes()
