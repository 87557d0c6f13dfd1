"""Every perturbation keeps the same promises."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, perturb
from outrider.behavioral_tests.perturb import Perturbation

TEXTS = st.lists(st.text(max_size=30) | st.none(), min_size=1, max_size=8).filter(any)

TEXT: dict[str, Perturbation] = {
    "typos": perturb.text.typos(),
    "three typos": perturb.text.typos(count=3),
    "contractions": perturb.text.contractions(),
    "punctuation": perturb.text.punctuation(),
    "lower": perturb.text.case(to="lower"),
    "upper": perturb.text.case(to="upper"),
    "swap": perturb.text.case(to="swap"),
    "title": perturb.text.case(to="title"),
    "each": perturb.each("text", lambda text, rng: None if len(text) % 2 else text + "x"),
    "chain": perturb.chain(perturb.text.case(to="upper"), perturb.text.typos()),
    "one of": perturb.one_of(perturb.text.case(to="upper"), perturb.text.typos(), perturb.text.punctuation()),
}
IMAGE: dict[str, Perturbation] = {
    "brightness": perturb.image.brightness(by=0.2),
    "darker": perturb.image.brightness(by=-0.2),
    "contrast": perturb.image.contrast(factor=1.5),
    "noise": perturb.image.noise(sigma=0.1),
    "shift": perturb.image.shift(pixels=2),
    "occlude": perturb.image.occlude(share=0.5),
    "chain": perturb.chain(perturb.image.shift(), perturb.image.noise()),
}
TABLE: dict[str, Perturbation] = {
    "jitter float": perturb.tabular.jitter("age", noise=0.5),
    "jitter by spread": perturb.tabular.jitter("age"),
    "jitter int": perturb.tabular.jitter("rooms", noise=0.1),
    "swap": perturb.tabular.swap("sex", values=["f", "m", "x"]),
    "swap pairs": perturb.tabular.swap("sex", values={"f": "m", "m": "f"}),
    "missing": perturb.tabular.missing("age", "rooms"),
    "flag": perturb.column("vip", lambda values, rng: ~values),
}


def texts(values: list[str | None]) -> Batch:
    return Batch.from_columns({"inputs.text": pa.array(values, pa.string())}, model="m")


def images(rows: int, shape: tuple[int, ...], seed: int) -> Batch:
    pixels = np.random.default_rng(seed).random((rows, *shape), dtype=np.float32)
    return Batch.from_columns({"inputs.image": pixels}, model="m")


def table(rows: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    null = rng.random(rows) < 0.3
    columns = {
        "inputs.age": pa.array(rng.normal(40, 10, rows), mask=null),
        "inputs.rooms": pa.array(rng.integers(0, 9, rows), mask=null),
        "inputs.sex": pa.array(
            [None if absent else "fmx"[row % 3] for row, absent in enumerate(null)], pa.string()
        ),
        "inputs.vip": pa.array(rng.random(rows) < 0.5, mask=null),
    }
    return Batch.from_columns(columns, model="m")


def check(perturbation: Perturbation, batch: Batch, seed: int) -> None:
    untouched = batch.to_ipc()
    one, two = (perturb.apply(perturbation, batch, np.random.default_rng(seed)) for _ in range(2))
    assert batch.to_ipc() == untouched, "the input was changed in place"
    assert one.batch == two.batch, "equal seeds gave different changes"
    assert one.batch.to_arrow().schema.equals(batch.to_arrow().schema), "types or columns changed"
    assert one.batch.rows == batch.rows
    before, after = batch.to_records(), one.batch.to_records()
    assert one.changed.tolist() == [
        a["inputs"] != b["inputs"] for a, b in zip(filled(before), filled(after), strict=True)
    ]


def filled(records: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{"inputs": {}} | record for record in records]


@pytest.mark.parametrize("name", TEXT)
@given(values=TEXTS, seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_a_text_perturbation_keeps_the_promises(name: str, values: list[str | None], seed: int) -> None:
    check(TEXT[name], texts(values), seed)


@pytest.mark.parametrize("name", IMAGE)
@pytest.mark.parametrize("shape", [(8, 8), (3, 5, 7)])
def test_an_image_perturbation_keeps_the_promises(name: str, shape: tuple[int, ...]) -> None:
    for rows, seed in ((0, 0), (1, 1), (9, 2)):
        check(IMAGE[name], images(rows, shape, seed), seed)


@pytest.mark.parametrize("name", TABLE)
def test_a_table_perturbation_keeps_the_promises(name: str) -> None:
    for rows, seed in ((0, 0), (1, 1), (20, 2)):
        check(TABLE[name], table(rows, seed), seed)


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


def test_a_shift_moves_every_pixel_alike() -> None:
    image = np.zeros((200, 9, 9), dtype=np.float32)
    image[:, 4, 4] = 1.0
    batch = Batch.from_columns({"inputs.image": image}, model="m")
    moved = perturb.image.shift(pixels=2)(batch, np.random.default_rng(0)).tensor("inputs.image")
    rows, columns = np.nonzero(moved.reshape(200, 81))[1] // 9, np.nonzero(moved.reshape(200, 81))[1] % 9
    assert len(rows) == 200
    assert (np.maximum(abs(rows - 4), abs(columns - 4)) >= 1).all()
    assert set(rows) == set(columns) == {2, 3, 4, 5, 6}


def test_an_occlusion_covers_one_rectangle() -> None:
    batch = Batch.from_columns({"inputs.image": np.ones((20, 3, 8, 8), dtype=np.float32)}, model="m")
    covered = perturb.image.occlude(share=0.25)(batch, np.random.default_rng(0)).tensor("inputs.image")
    assert (covered == 0).sum(axis=(1, 2, 3)).tolist() == [3 * 4] * 20


def test_a_swap_with_a_value_list_never_keeps_the_value() -> None:
    batch = table(200, 5)
    changed = perturb.apply(TABLE["swap"], batch, np.random.default_rng(0)).changed
    np.testing.assert_array_equal(changed, ~batch.is_null("inputs.sex"))


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


@given(values=TEXTS)
@settings(max_examples=25)
def test_invariance_under_the_identity_never_fails(values: list[str | None]) -> None:
    identity = INV(name="test_identity", perturb=lambda batch, rng: batch, cases=texts(values))
    outcome = identity.run(lambda batch: {"label": np.random.default_rng().integers(9, size=batch.rows)})
    assert outcome.failures == 0
    assert outcome.status == "skipped"
    assert outcome.not_applicable == len(values)
