"""Perturbations: what they are made of and how they combine."""

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation


def texts(values: list[str | None]) -> Batch:
    return Batch.from_columns({"inputs.text": pa.array(values, pa.string())}, model="m")


def images(rows: int, shape: tuple[int, ...], seed: int) -> Batch:
    pixels = np.random.default_rng(seed).random((rows, *shape), dtype=np.float32)
    return Batch.from_columns({"inputs.image": pixels}, model="m")


def run_one(perturbation: Perturbation, *values: str, seed: int = 0) -> list[str]:
    found: list[str] = (
        perturbation(texts(list(values)), np.random.default_rng(seed)).column("inputs.text").tolist()
    )
    return found


def test_a_typo_swaps_two_neighbours_and_skips_equal_ones() -> None:
    for seed in range(50):
        (changed,) = run_one(perturb.text.typos(), "aab", seed=seed)
        assert changed == "aba"
    assert run_one(perturb.text.typos(), "aaa", "", "b") == ["aaa", "", "b"]


def test_contractions_go_both_ways_and_keep_capitals() -> None:
    assert run_one(perturb.text.contractions(), "It isn't bad", "I'm sure we are", "Cannot go", "hello") == [
        "It is not bad",
        "I am sure we are",
        "Can't go",
        "hello",
    ]


def test_punctuation_is_dropped_or_added() -> None:
    assert run_one(perturb.text.punctuation(), "Well done!!", "Well done", "?!") == [
        "Well done",
        "Well done.",
        "?!",
    ]


def test_one_of_uses_another_where_the_first_changes_nothing() -> None:
    either = perturb.one_of(perturb.text.contractions(), perturb.text.case(to="upper"))
    for seed in range(10):
        assert run_one(either, "hello", seed=seed) == ["HELLO"]


def test_an_unknown_field_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="the records have: text"):
        perturb.text.typos("body")(texts(["a"]), np.random.default_rng(0))


def test_a_change_of_shape_is_refused() -> None:
    cut = perturb.column("image", lambda images, rng: images[:, 1:])
    with pytest.raises(ValueError, match=r"shape \(2, 8, 8\) expected"):
        cut(images(2, (8, 8), 0), np.random.default_rng(0))


def test_a_predicate_that_is_no_mask_is_refused() -> None:
    wrong = perturb.where(lambda batch: np.ones(1), perturb.text.typos())  # type: ignore[arg-type, return-value]  # on purpose
    with pytest.raises(ValueError, match=r"one bool per record expected, shape \(2,\), got float64"):
        wrong(texts(["ab", "cd"]), np.random.default_rng(0))


def test_a_column_that_appears_is_a_change_where_it_is_not_null() -> None:
    batch = texts(["ab", "cd"])
    added = perturb.apply(
        lambda batch, rng: batch.with_columns({"inputs.more": pa.array([1, None])}),
        batch,
        np.random.default_rng(0),
    )
    assert added.changed.tolist() == [True, False]


def test_a_text_perturbation_of_numbers_names_the_field() -> None:
    batch = Batch.from_columns({"inputs.age": np.arange(3)}, model="m")
    with pytest.raises(TypeError, match=r"inputs\.age: texts expected, got int64"):
        perturb.text.typos("age")(batch, np.random.default_rng(0))
