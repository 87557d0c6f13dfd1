"""Tests in Python written as data ask the same and are judged the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import DIR, INV, MFT, Suite, expect, load_suite, perturb, template
from outrider.behavioral_tests.examples import Examples
from outrider.behavioral_tests.suite_file import export, failed_cases, write
from outrider.behavioral_tests.suite_file.columns import grouped
from outrider.behavioral_tests.suite_file.exporting import written_test
from outrider.errors import ConfigError


def length(batch: Batch) -> Mapping[str, NDArray[Any]]:
    texts = batch.column("inputs.text").tolist()
    score = np.array([len(text) / 100 for text in texts])
    return {"label": np.array([int(text.endswith("!")) for text in texts]), "score": score}


TESTS = (
    MFT(
        name="test_template",
        cases=template("I {verb} it{end}", verb=["love", "hate"], end=["!", "."]).product(),
        labels=[1, 0, 1, 0],
        capability="volume",
        tolerance=0.5,
    ),
    MFT(name="test_own_field", cases=["a", "b!"], expect=expect.within("score", high=0.015)),
    INV(
        name="test_typos",
        cases=["a lovely film", "good!", "ee"],
        perturb=perturb.text.typos(),
        copies=2,
        aggregate="any",
    ),
    DIR(
        name="test_longer",
        cases=["short", "long"],
        perturb=perturb.each("text", lambda text, rng: text + "." * int(rng.integers(1, 5))),
        expect=expect.monotone("score", direction="decreasing", tolerance=0.02)
        | expect.same("label").where("inputs.text", "==", "long"),
    ),
)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_written_suite_has_the_outcomes_of_its_source(tmp_path: Path, seed: int) -> None:
    write(export("s", TESTS, seed=seed), tmp_path / "s.suite.json")
    before = Suite("s", TESTS).run(length, seed=seed)
    after = load_suite(tmp_path / "s.suite.json").run(length, seed=99)
    assert any(outcome.failures for outcome in before)
    for one, other in zip(before, after, strict=True):
        assert one.ran is not None
        assert other.ran is not None
        assert (one.name, one.kind, one.capability, one.tolerance) == (
            other.name,
            other.kind,
            other.capability,
            other.tolerance,
        )
        np.testing.assert_array_equal(one.ran.severity, other.ran.severity)
        texts = [each.ran.examples.in_order()[0].column("inputs.text").tolist() for each in (one, other)]  # type: ignore[union-attr]  # seen above
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (
            MFT(name="t", cases=["a"], expect=lambda before, after: after.column("outputs.score") > 0),
            "'t'.*your",
        ),
        (MFT(name="t", cases=["a"], aggregate=lambda severities: float(severities[0])), "'t': aggregate"),
        (INV(name="t", perturb=perturb.text.typos(), live=0.1), "'t' has no cases of its own"),
        (INV(name="t", cases=["ee"], perturb=perturb.text.typos()), "'t': its perturbation applies to none"),
        (
            MFT(name="t", cases=[{"x": float("inf")}], expect=expect.within("score")),
            "inputs.x holds an infinity",
        ),
        (
            MFT(name="t", cases=[{"x": b"ab"}], expect=expect.within("score")),
            "inputs.x is binary; a file holds texts",
        ),
    ],
)
def test_what_no_file_can_hold_is_refused_by_name(test: MFT | INV, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        export("s", [test])


def test_failed_cases_are_saved_alone(tmp_path: Path) -> None:
    own = MFT(name="test_own", cases=["a"], expect=lambda before, after: np.array([False]))
    tests = (*TESTS, own)
    outcomes = Suite("s", tests).run(length)
    saved, left_out = failed_cases("failed", tests, outcomes)
    assert list(left_out) == ["test_own"]
    assert "function of yours" in left_out["test_own"]
    write(saved, tmp_path / "failed.suite.json")
    again = load_suite(tmp_path / "failed.suite.json").run(length)
    assert [(each.name, each.failures) for each in again] == [
        (each.name, each.failures) for each in outcomes if each.failures and each.name != "test_own"
    ]
    assert all(each.cases == each.failures for each in again)


DTYPES = ["uint8", "int16", "int64", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_not_known_in_a_tensor_stays_unknown(dtype: str) -> None:
    values = np.array([[1.0, np.nan], [0.1, 2.0]], dtype=dtype)
    batch = Batch.from_columns({"inputs.wave": values}, model="behavior")
    written = written_test(MFT(name="t", cases=batch), Examples.alone(batch))
    back = grouped(written.cases, written.labels, written.types).batch.tensor("inputs.wave")
    np.testing.assert_array_equal(back, values)
    assert back.dtype == values.dtype


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays(
            dtype,
            array_shapes(min_dims=2, max_dims=4, max_side=3),
            elements={"allow_nan": False, "allow_infinity": False} if "float" in dtype else None,
        )
    ),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
)
def test_columns_come_back_with_shape_and_type(values: NDArray[Any], whole: list[int | None]) -> None:
    rows = len(values)
    columns = {
        "inputs.image": values,
        "inputs.number": pa.array([*whole, 1][:rows], pa.int64()),
        "inputs.small": pa.array([1.5, None, 0.1][:rows], pa.float32()),
        "label.label": ["a", "b", "c"][:rows],
        "attrs.city": [None, "x", "y"][:rows],
    }
    batch = Batch.from_columns(columns, model="behavior", rows=rows)
    test = MFT(name="t", cases=batch)
    written = written_test(test, Examples.alone(batch))
    back = grouped(written.cases, written.labels, written.types).batch
    for name in columns:
        if name == "attrs.city" and rows == 1:
            continue  # a column of nothing but nulls of the case's own says nothing
        assert back.arrow(name).type == batch.arrow(name).type
        assert back.arrow(name).equals(batch.arrow(name))
