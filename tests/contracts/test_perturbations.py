"""What every perturbation must hold to, whatever it changes."""

import inspect
import json
import unicodedata
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, perturb
from outrider.behavioral_tests.perturb import Perturbed

from .perturbation_cases import CASES, Case, shown

SEEDS = range(3)
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(case: Case, batch: Batch, seed: int) -> Perturbed:
    return perturb.apply(case.make(), batch, np.random.default_rng(seed))


def functions(module: ModuleType) -> set[Any]:
    """Perturbations that a family offers."""
    return {value for name, value in vars(module).items() if name in module.__all__ and callable(value)}


def test_every_perturbation_has_a_case() -> None:
    families = (perturb.text, perturb.image, perturb.tabular, perturb.series, perturb.chat)
    offered = set.union(*(functions(family) for family in families))
    offered |= {perturb.column, perturb.each, perturb.chain, perturb.one_of, perturb.where}
    assert {function.__qualname__ for function in offered - {case.covers for case in CASES.values()}} == set()


@each
def test_it_changes_some_record(case: Case) -> None:
    assert any(run(case, case.batch(), seed).changed.any() for seed in SEEDS)


@each
def test_equal_seeds_give_equal_changes(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        one, two = run(case, batch, seed), run(case, batch, seed)
        assert one.batch.to_ipc() == two.batch.to_ipc()
        assert one.changed.tolist() == two.changed.tolist()


@each
def test_the_input_stays_as_it_was(case: Case) -> None:
    batch = case.batch()
    before = batch.to_ipc()
    run(case, batch, 0)
    assert batch.to_ipc() == before


@each
def test_types_rows_and_everything_but_the_inputs_stay(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        after = run(case, batch, seed).batch
        assert after.to_arrow().schema.equals(batch.to_arrow().schema)
        assert after.rows == batch.rows
        for name in batch.names:
            if not name.startswith("inputs."):
                assert after.arrow(name).equals(batch.arrow(name)), name


@each
def test_nulls_stay_null_and_no_other_value_becomes_one(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        after = run(case, batch, seed).batch
        for name in batch.names:
            null = batch.is_null(name)
            assert after.is_null(name)[null].all(), name
            if not case.makes_nulls and case.covers is not perturb.tabular.shuffle:
                assert after.is_null(name).tolist() == null.tolist(), name


@each
def test_changed_means_that_the_record_differs(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        found = run(case, batch, seed)
        differing = [one != other for one, other in zip(shown(batch), shown(found.batch), strict=True)]
        assert found.changed.tolist() == differing


@each
def test_no_record_one_record_and_only_nulls_are_taken(case: Case) -> None:
    batch = case.batch()
    for piece in (batch.slice(0, 0), batch.slice(0, 1), batch.slice(3, 1)):
        assert run(case, piece, 0).batch.to_arrow().schema.equals(batch.to_arrow().schema)


@each
def test_a_sliced_batch_is_changed_like_a_copy_of_it(case: Case) -> None:
    piece = case.batch().slice(2, 4)
    copied = Batch.from_ipc(piece.take(np.arange(4)).to_ipc())
    assert shown(run(case, piece, 1).batch) == shown(run(case, copied, 1).batch)


@pytest.mark.parametrize("case", [c for n, c in CASES.items() if n.startswith("text.")])
def test_texts_stay_valid_unicode_and_are_never_emptied(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        before, after = (b.column("inputs.text").tolist() for b in (batch, run(case, batch, seed).batch))
        for old, new in zip(before, after, strict=True):
            assert new is None or new.encode("utf-8").decode("utf-8") == new
            assert not old or new
            assert not old or not any(unicodedata.category(c) == "Cs" for c in new)


@pytest.mark.parametrize("case", [c for n, c in CASES.items() if n.startswith("image.")])
def test_images_stay_finite_and_within_their_range(case: Case) -> None:
    batch = case.batch()
    for seed in SEEDS:
        pixels = run(case, batch, seed).batch.tensor("inputs.image", null=0)
        top = 255 if pixels.dtype == np.uint8 else 1
        assert np.isfinite(pixels).all()
        assert pixels.min() >= 0
        assert pixels.max() <= top * (1 + 1e-6)


@each
def test_messages_of_errors_name_the_field(case: Case) -> None:
    strange = Batch.from_columns({"inputs.else": pa.array([1, 2])}, model="m")
    if case.covers not in (perturb.where, perturb.chain):
        with pytest.raises(KeyError, match="the records have: else"):
            case.make()(strange, np.random.default_rng(0))


@each
def test_it_can_be_asked_of_a_model(case: Case) -> None:
    batch = case.batch()
    test = INV(name="test_it", perturb=case.make(), cases=batch)
    outcome = test.run(lambda asked: {"label": np.zeros(asked.rows, dtype=np.int64)})
    assert outcome.failures == 0
    assert outcome.cases + outcome.not_applicable == batch.rows
    assert json.dumps(outcome.to_dict())


@pytest.mark.parametrize("name", sorted({case.covers.__module__ for case in CASES.values()}))
def test_every_family_documents_its_functions(name: str) -> None:
    for case in CASES.values():
        if case.covers.__module__ == name:
            assert inspect.getdoc(case.covers), case.covers


SCALES = {
    "uint8": (np.uint8, 255),
    "whole numbers as JSON has them": (np.int64, 255),
    "float 0 to 1": (np.float32, 1),
    "double 0 to 1": (np.float64, 1),
    "float 0 to 255": (np.float32, 255),
    "double 0 to 255": (np.float64, 255),
    "half 0 to 1": (np.float16, 1),
}
IMAGES = sorted({name.rsplit(" ", 1)[0] for name in CASES if name.startswith("image.")})


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", IMAGES)
def test_image_perturbations_keep_type_and_scale(name: str, scale: str) -> None:
    """What is done to a picture is the same in every type and range that pictures come in."""
    case = CASES[f"{name} colour"]
    kind, top = SCALES[scale]
    smooth = np.add.outer(np.linspace(0.2, 0.6, 16), np.linspace(0.0, 0.2, 16))
    unit = np.stack([smooth, smooth.T, smooth[::-1]])[None].repeat(4, axis=0)  # (n, channels, h, w)
    unit = np.rint(unit * 255) / 255
    pixels = np.rint(unit * top) if np.dtype(kind).kind in "iu" else unit * top
    found = [
        perturb.apply(case.make(), batch, np.random.default_rng(0)).batch.tensor("inputs.image")
        for batch in (
            Batch.from_columns({"inputs.image": unit}, model="m"),
            Batch.from_columns({"inputs.image": pixels.astype(kind)}, model="m"),
        )
    ]
    assert found[1].dtype == kind
    assert found[1].min() >= 0
    assert found[1].max() <= top
    tolerance = 1e-3 if kind == np.float16 else 0.51 / 255  # bytes are rounded
    np.testing.assert_allclose(found[1].astype(np.float64) / top, found[0], atol=tolerance)


RANGED = [name for name in IMAGES if "value_range" in CASES[f"{name} colour"].covers.__code__.co_varnames]


@pytest.mark.parametrize("name", RANGED)
@pytest.mark.parametrize(
    "pixels",
    [
        np.full((2, 3, 8, 8), 7, np.uint16),
        np.full((2, 3, 8, 8), 7, np.int32),
        np.full((2, 3, 8, 8), 300, np.int64),
        np.full((2, 3, 8, 8), -1.5, np.float32),
        np.full((2, 3, 8, 8), 4000.0, np.float64),
    ],
    ids=lambda pixels: f"{pixels.dtype} {pixels.flat[0]}",
)
def test_images_of_an_unknown_range_are_refused_until_it_is_given(name: str, pixels: Any) -> None:
    case = CASES[f"{name} colour"]
    batch = Batch.from_columns({"inputs.image": pixels}, model="m")
    with pytest.raises(ValueError, match=r"inputs\.image: .*give value_range="):
        perturb.apply(case.make(), batch, np.random.default_rng(0))


def test_a_given_range_of_another_scale_is_refused() -> None:
    batch = Batch.from_columns({"inputs.image": np.full((1, 8, 8), 130, np.uint8)}, model="m")
    with pytest.raises(ValueError, match=r"pixels of about 0 to 1 expected, but an image holds 130 to 130"):
        perturb.image.brightness(value_range=(0, 1), device="cpu")(batch, np.random.default_rng(0))


def test_images_of_bytes_are_not_blackened() -> None:
    pixels = np.random.default_rng(0).integers(5, 255, (8, 3, 16, 16)).astype(np.uint8)
    batch = Batch.from_columns({"inputs.image": pixels}, model="m")
    for name in RANGED:
        after = run(CASES[f"{name} bytes"], batch, 0).batch.tensor("inputs.image")
        assert abs(float(after.mean()) - float(pixels.mean())) < 60, name
