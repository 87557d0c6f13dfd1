"""Checker: flags of a batch, raising for them, and wrapping a predict function."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from outrider.assertions import AssertionsFired, Batch, Checker, Flags, Window, assertion


@assertion(level="info")
def positive(batch: Batch) -> Any:
    return batch.column("inputs.x") > 0


@assertion(level="critical")
def large(batch: Batch) -> Any:
    return np.maximum(batch.column("inputs.x") - 2.0, 0.0)


@assertion(window=Window(rows=2))
def changed(batch: Batch) -> Any:
    label, entity = batch.column("outputs.label"), batch.column("entity")
    return np.r_[False, (label[1:] != label[:-1]) & (entity[1:] == entity[:-1])]


def batch() -> Batch:
    return Batch.from_columns(
        {"inputs.x": [0, 1, 4], "outputs.label": [1, 5, 2], "entity": ["a", "b", "a"]}, model="m"
    )


def test_flags_are_columns_by_assertion_then_record() -> None:
    flags = Checker([positive, large]).check(batch())
    assert len(flags) == 3
    assert flags.counts == {"positive": 2, "large": 1}
    frame = flags.to_pandas()
    assert list(frame) == ["id", "assertion", "level", "severity", "row"]
    assert frame.to_numpy().tolist() == [
        ["1", "positive", "info", 1.0, 1],
        ["2", "positive", "info", 1.0, 2],
        ["2", "large", "critical", 2.0, 2],
    ]


def test_windows_see_the_batch_by_entity_and_flag_the_row_as_it_stands() -> None:
    flags = Checker([changed]).check(batch())
    assert flags.row.tolist() == [2]


@pytest.mark.parametrize("checker", [Checker([]), Checker([positive, changed])])
def test_where_nothing_fires_there_are_no_flags(checker: Checker) -> None:
    flags = checker.check(batch().slice(0, 1))
    assert (len(flags), flags.to_pandas().shape) == (0, (0, 5))
    assert flags.raise_for("info") is flags


def test_an_empty_batch_has_no_flags() -> None:
    assert len(Checker([positive, large, changed]).check(batch().slice(0, 0))) == 0


def test_raising_names_assertion_count_and_worst_records() -> None:
    flags = Checker([positive, large]).check(batch())
    with pytest.raises(
        AssertionsFired, match=r"^large \(critical\): 1 records, worst '2' \(\S+\)$"
    ) as caught:
        flags.raise_for("critical")
    assert caught.value.flags is flags
    with pytest.raises(AssertionsFired, match=r"positive \(info\): 2 records, worst '\d' .*; large"):
        flags.raise_for("info")


def test_levels_below_do_not_raise() -> None:
    flags = Checker([positive]).check(batch())
    assert flags.raise_for("warning") is flags
    assert flags.raise_for() is flags


def test_names_must_be_unique() -> None:
    with pytest.raises(ValueError, match="must be unique"):
        Checker([positive, positive])


def test_an_assertion_that_returns_a_wrong_shape_is_named() -> None:
    wrong = assertion(name="wrong")(lambda _: [True])
    with pytest.raises(ValueError, match="'wrong' must return one value per record"):
        Checker([wrong]).check(batch())


def test_what_one_assertion_changes_the_next_does_not_see() -> None:
    @assertion
    def vandal(batch: Batch) -> Any:
        frame = batch.inputs
        frame["x"] = -1
        for values in (batch.inputs["maybe"].array, batch.column("inputs.tags")[0]):
            try:
                values[0] = 99
            except ValueError:
                continue
        batch._cache.clear()
        batch._cache["inputs.x"] = np.full(batch.rows, -5)
        batch.is_new[:] = False
        return np.zeros(batch.rows, bool)

    seen: list[Any] = []

    @assertion
    def witness(batch: Batch) -> Any:
        seen.append(
            (
                batch.inputs["x"].tolist(),
                batch.inputs["maybe"].iloc[0],
                batch.column("inputs.x").tolist(),
                batch.column("inputs.tags")[0].tolist(),
                batch.is_new.all(),
            )
        )
        return np.zeros(batch.rows, bool)

    judged = batch().with_columns({"inputs.maybe": [1, None, 2], "inputs.tags": [["a"], ["b", "c"], []]})
    Checker([witness]).check(judged)
    Checker([vandal, witness]).check(judged)
    assert seen[0] == seen[1] == ([0, 1, 4], 1.0, [0, 1, 4], ["a"], True)


# ---- wrap ------------------------------------------------------------------------------------------------


def double(inputs: Any) -> Any:
    return np.asarray(inputs["x"]) * 2


@assertion
def unsure(batch: Batch) -> Any:
    return batch.column("outputs.score") < 0.6


def test_a_wrapped_function_answers_as_before_and_keeps_the_flags() -> None:
    heard: list[Flags] = []
    predict = Checker([positive]).wrap(double, on_flags=heard.append)
    assert predict.flags is None
    assert predict(pd.DataFrame({"x": [0, 3], "text": ["a", None]})).tolist() == [0, 6]
    assert predict.flags is not None
    assert predict.flags.batch.column("outputs.label").tolist() == [0, 6]
    assert predict.flags.row.tolist() == [1]
    assert len(heard) == 1
    predict({"x": [0]})
    assert len(heard) == 1
    assert len(predict.flags) == 0


@pytest.mark.parametrize(
    "inputs",
    [
        pd.DataFrame({"x": [1, 2]}, index=[5, 6]),
        {"x": [1, 2]},
        np.array([1, 2]),
        np.array([[1, 0], [2, 0]], np.float32),
        Batch.from_columns({"inputs.x": [1, 2]}, model="m"),
    ],
    ids=["frame", "mapping", "array", "tensor", "batch"],
)
@pytest.mark.parametrize("as_frame", [False, True])
def test_inputs_and_answers_come_in_many_shapes(inputs: Any, as_frame: bool) -> None:
    def predict(_: Any) -> Any:
        answers = {"label": ["cat", "dog"], "score": [0.5, 0.9]}
        return pd.DataFrame(answers) if as_frame else answers

    wrapped = Checker([unsure]).wrap(predict, model="m")
    wrapped(inputs)
    assert wrapped.flags is not None
    assert wrapped.flags.row.tolist() == [0]
    assert wrapped.flags.batch.column("outputs.label").tolist() == ["cat", "dog"]


def test_what_the_function_raises_passes_through() -> None:
    def broken(_: Any) -> Any:
        raise LookupError("no model")

    with pytest.raises(LookupError, match="no model"):
        Checker([positive]).wrap(broken)({"x": [1]})
