"""Whatever comes in: a perturbation is seeded and pure, keeps types and shapes, and no no-op is a change."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, perturb
from outrider.behavioral_tests.perturb import Perturbation
from tests.contracts.perturbation_cases import CASES, shown
from tests.soak import examples

SEED = st.integers(0, 1000)
WORDS = st.sampled_from(
    [
        "I",
        "you",
        "the",
        "staff",
        "wasn't",
        "isn't",
        "do not",
        "it's",
        "film",
        "like",
        "Mary",
        "Smith",
        "in",
        "Paris",
        "15",
        "1999",
        "$20",
        "a lot of",
        "is",
        "not",
        "good",
        ".",
        "!",
        "?",
        "\n",
        "I'll",
        "never",
        "@a",
        "can't",
        "have",
        "to",
        "What",
        "a",
        "hour",
        "\u2019s",
    ]
)
ENGLISH = st.lists(WORDS, max_size=9).map(" ".join)
TEXTS = st.lists(st.none() | st.text(max_size=30) | ENGLISH, min_size=1, max_size=8)
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": st.none() | ENGLISH | st.text(max_size=9)})
TALKS = st.lists(st.none() | st.lists(MESSAGES, max_size=6), min_size=1, max_size=5)
NUMBER = st.none() | st.floats(width=64)
LISTS = st.lists(st.none() | st.lists(NUMBER, max_size=8), min_size=1, max_size=5)
PIXELS = [np.dtype(kind) for kind in ("float32", "float64", "uint8")]
TALK_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def holds(perturbation: Perturbation, batch: Batch, seed: int) -> perturb.Perturbed:
    before = batch.to_ipc()
    one, two = (perturb.apply(perturbation, batch, np.random.default_rng(seed)) for _ in range(2))
    assert batch.to_ipc() == before, "the input was changed in place"
    assert one.batch.to_ipc() == two.batch.to_ipc(), "equal seeds gave different changes"
    assert one.batch.to_arrow().schema.equals(batch.to_arrow().schema), "types or columns changed"
    assert one.batch.rows == batch.rows
    differing = [old != new for old, new in zip(shown(batch), shown(one.batch), strict=True)]
    assert one.changed.tolist() == differing
    return one


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("text.")])
@given(values=TEXTS, seed=SEED)
@settings(max_examples=examples(20))
def test_texts(name: str, values: list[str | None], seed: int) -> None:
    batch = Batch.from_columns({"inputs.text": pa.array(values, pa.string())}, model="m")
    found = holds(CASES[name].make(), batch, seed)
    after = found.batch.column("inputs.text").tolist()
    assert found.changed.tolist() == [old != new for old, new in zip(values, after, strict=True)]
    assert all(new for old, new in zip(values, after, strict=True) if old)
    assert [new is None for new in after] == [old is None for old in values]


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith("chat.") and "prompt" not in name]
)
@given(talks=TALKS, seed=SEED)
@settings(max_examples=examples(20))
def test_conversations(name: str, talks: list[Any], seed: int) -> None:
    batch = Batch.from_columns({"inputs.messages": pa.array(talks, TALK_TYPE)}, model="m")
    found = holds(CASES[name].make(), batch, seed)
    after = found.batch.arrow("inputs.messages").to_pylist()
    assert found.changed.tolist() == [old != new for old, new in zip(talks, after, strict=True)]
    for old, new in zip(talks, after, strict=True):
        assert (old is None) == (new is None)
        assert sorted(m["role"] for m in old or ()) == sorted(m["role"] for m in new or ())


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith("series.") and name.endswith(" lists")]
)
@given(values=LISTS, seed=SEED)
@settings(max_examples=examples(20))
def test_lists_of_numbers(name: str, values: list[Any], seed: int) -> None:
    batch = Batch.from_columns({"inputs.lists": pa.array(values, pa.list_(pa.float64()))}, model="m")
    after = holds(CASES[name].make(), batch, seed).batch.arrow("inputs.lists").to_pylist()
    for old, new in zip(values, after, strict=True):
        assert (old is None) == (new is None)
        assert old is None or len(old) == len(new)


@pytest.mark.parametrize(
    "make",
    [
        lambda: perturb.tabular.jitter("x", noise=3.0),
        lambda: perturb.tabular.jitter("x"),
        lambda: perturb.tabular.unit_error("x", factor=2.54),
        lambda: perturb.tabular.unit_error("x", factor=9 / 5, offset=32),
        lambda: perturb.tabular.decimal_shift("x"),
        lambda: perturb.tabular.repeat_digit("x"),
        lambda: perturb.tabular.out_of_range("x", low=-5, high=100),
        lambda: perturb.tabular.clip("x", low=0, high=50),
        lambda: perturb.tabular.shuffle("x"),
        lambda: perturb.tabular.missing("x", value=7),
    ],
)
@given(data=st.data(), seed=SEED)
@settings(max_examples=examples(30))
def test_numbers(make: Any, data: st.DataObject, seed: int) -> None:
    kind = data.draw(
        st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64])
    )
    values = data.draw(arrays.arrays(kind, st.integers(1, 6)))
    mask = data.draw(arrays.arrays(np.bool_, len(values)))
    batch = Batch.from_columns({"inputs.x": pa.array(values, mask=mask)}, model="m")
    found = holds(make(), batch, seed)
    assert found.batch.is_null("inputs.x").tolist() == mask.tolist()
    assert not found.changed[mask].any()


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith("image.") and name.endswith((" grey", " bytes"))]
)
@given(data=st.data(), seed=SEED)
@settings(max_examples=examples(12))
def test_images(name: str, data: st.DataObject, seed: int) -> None:
    case = CASES[name]
    sides = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    grey = name.endswith(" grey")
    shape = sides if grey else (3, *sides)
    kind = data.draw(st.sampled_from(PIXELS[:2])) if grey else PIXELS[2]
    top = 255 if kind.kind == "u" else 1
    cells = st.integers(0, 255) if kind.kind == "u" else st.floats(0, 1, width=32)
    values = data.draw(arrays.arrays(kind, (2, *shape), elements=cells))
    found = holds(case.make(), Batch.from_columns({"inputs.image": values}, model="m"), seed)
    after = found.batch.tensor("inputs.image")
    assert after.shape == values.shape
    assert after.dtype == kind
    assert np.isfinite(after).all()
    assert after.min() >= 0
    assert after.max() <= top * (1 + 1e-6)


@given(values=TEXTS, seed=SEED, names=st.lists(st.sampled_from(sorted(CASES)), min_size=1, max_size=4))
@settings(max_examples=examples(40))
def test_combinations(values: list[str | None], seed: int, names: list[str]) -> None:
    parts = [CASES[name].make() for name in names if name.startswith("text.")] or [perturb.text.typos()]
    batch = Batch.from_columns({"inputs.text": pa.array(values, pa.string())}, model="m")
    long = perturb.where(
        lambda some: np.array([len(text or "") > 5 for text in some.column("inputs.text")], dtype=np.bool_),
        perturb.one_of(*parts),
    )
    found = holds(long, batch, seed)
    assert not any(found.changed[row] for row, text in enumerate(values) if len(text or "") <= 5)
    holds(perturb.chain(*parts), batch, seed)


@given(values=TEXTS)
@settings(max_examples=examples(25))
def test_invariance_under_the_identity_never_fails(values: list[str | None]) -> None:
    batch = Batch.from_columns({"inputs.text": pa.array(values, pa.string())}, model="m")
    identity = INV(name="test_identity", perturb=lambda batch, rng: batch, cases=batch)
    outcome = identity.run(lambda batch: {"label": np.random.default_rng().integers(9, size=batch.rows)})
    assert outcome.failures == 0
    assert outcome.status == "skipped"
    assert outcome.not_applicable == len(values)
