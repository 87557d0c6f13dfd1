"""Learned assertions: densities, severities, evidence, and what was learned as text."""

import json
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch, Checker, Window
from outrider.assertions.learn.observations import Density, Observations, learn_observations, rank_tracks


def people(count: int = 2000, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["adult", "child"], count)
    height = np.where(kind == "adult", rng.normal(1.75, 0.08, count), rng.normal(1.1, 0.1, count))
    return Batch.from_columns(
        {
            "inputs.height": height,
            "inputs.walks": rng.random(count) < 0.95,
            "outputs.kind": kind.astype(object),
        },
        model="m",
    )


def is_tall(batch: Batch) -> object:
    return batch.column("inputs.height") > 1.5


FEATURES = {"height": "inputs.height", "walks": "inputs.walks"}


def test_as_many_validated_observations_fire_as_was_asked() -> None:
    learned = learn_observations(people(), features=FEATURES, by="outputs.kind", quantile=0.99)
    fired = learned.assertion().severities(people(seed=1)) > 0
    assert 0.003 < fired.mean() < 0.025


def test_a_value_usual_in_one_class_is_unlikely_in_another_and_the_evidence_says_so() -> None:
    learned = learn_observations(people(), features=FEATURES, by="outputs.kind")
    odd = Batch.from_columns(
        {
            "inputs.height": [1.75, 1.75],
            "inputs.walks": [True, True],
            "outputs.kind": np.array(["adult", "child"], dtype=object),
        },
        model="m",
    )
    found = learned.assertion().findings(odd)
    assert found.row.tolist() == [1]
    assert found.evidence[0] is not None
    assert found.evidence[0]["feature"] == "height"


def test_typical_is_zero_and_further_out_is_never_less_severe() -> None:
    density = Density.fit(np.random.default_rng(0).normal(0, 1, 5000))
    assert abs(float(np.median(density.surprise(np.random.default_rng(1).normal(0, 1, 5000))))) < 0.05
    out = density.surprise(np.array([3.0, 4, 5, 6, 10, 100, 1e9]))
    assert (np.diff(out) >= 0).all()
    assert np.isfinite(out).all()


def test_the_density_agrees_with_scipys_kernel_estimate() -> None:
    from scipy.stats import gaussian_kde

    values = np.random.default_rng(0).gamma(4, 2, 3000)
    density = Density.fit(values)
    at = np.quantile(values, np.linspace(0.02, 0.98, 25))
    expected = np.log(gaussian_kde(values, bw_method=density.width / values.std(ddof=1))(at))
    found = -(density.surprise(at) + density.typical)
    assert found == pytest.approx(expected, abs=0.05)


def test_what_was_learned_survives_as_text() -> None:
    learned = learn_observations(
        people(),
        features={**FEATURES, "tall": is_tall},
        by="outputs.kind",
        window=Window(rows=3),
    )
    text = learned.to_json()
    json.loads(text)
    again = Observations.from_json(text, features={"tall": is_tall})
    other = people(300, seed=2)
    assert (again.scores(other) == learned.scores(other)).all()
    assert again.assertion().revision == learned.assertion().revision
    with pytest.raises(ValueError, match="tall"):
        Observations.from_json(text)


def test_a_small_or_unknown_class_is_judged_like_everyone() -> None:
    learned = learn_observations(people(), features=FEATURES, by="outputs.kind")
    strange = people(50).with_columns({"outputs.kind": np.array(["giant"] * 50, dtype=object)})
    assert np.isfinite(learned.scores(strange)).all()


def test_nulls_say_nothing() -> None:
    learned = learn_observations(people(), features=FEATURES)
    records: list[dict[str, Any]] = [
        {"inputs": {"height": None, "walks": None}},
        {"inputs": {"height": 1.7, "walks": True}},
    ]
    assert learned.scores(Batch.from_records(records, model="m"))[0] == 0.0


def test_elements_of_lists_are_observations() -> None:
    rng = np.random.default_rng(0)
    lists = [[{"size": float(rng.normal(10, 1))} for _ in range(5)] for _ in range(200)]
    batch = Batch.from_records([{"outputs": {"boxes": boxes}} for boxes in lists], model="m")
    learned = learn_observations(
        batch, features={"size": "outputs.boxes.size"}, explode="outputs.boxes", quantile=0.999
    )
    odd = Batch.from_records(
        [{"outputs": {"boxes": [{"size": 10.0}, {"size": 30.0}]}}, {"outputs": {"boxes": []}}], model="m"
    )
    found = learned.assertion().findings(odd)
    assert found.row.tolist() == [0]
    assert found.evidence[0] is not None
    assert found.evidence[0]["element"] == 1
    assert len(Checker([learned.assertion()]).check(odd)) == 1


def test_tracks_rank_by_their_mean_or_their_worst() -> None:
    scores, tracks = np.array([1.0, 1.0, 0.0, 1.8]), np.array(["a", "a", "b", "b"])
    assert rank_tracks(scores, tracks)[0].tolist() == ["a", "b"]
    assert rank_tracks(scores, tracks, how="max")[0].tolist() == ["b", "a"]
