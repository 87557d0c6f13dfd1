"""Marks of a view, earlier values, elements of lists: what they say and what they refuse."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch, Window


def frames(**columns: Any) -> Batch:
    return Batch.from_columns({"entity": ["a", "a", "b"], "inputs.x": [1, 2, 3], **columns}, model="m")


def test_a_batch_is_new_and_ends_nothing_unless_a_window_says_so() -> None:
    batch = frames()
    assert (batch.is_new.tolist(), batch.is_last.tolist(), batch.has_context) == (
        [True] * 3,
        [False] * 3,
        False,
    )
    new, last = np.array([False, True, True]), np.array([False, True, False])
    view = batch.with_marks(new, last)
    for derived in (
        view,
        view.with_columns({"inputs.y": [1, 2, 3]}),
        view.with_answers({"v2": {"x": [1, 2, 3]}}),
    ):
        assert (derived.is_new.tolist(), derived.is_last.tolist()) == (new.tolist(), last.tolist())
        assert derived.take([2, 1]).is_last.tolist() == [False, True]
        assert derived.slice(1, 1).is_new.tolist() == [True]


def test_what_no_value_stands_for_must_be_said() -> None:
    with pytest.raises(ValueError, match="pass null="):
        frames().previous("inputs.x")
    with pytest.raises(ValueError, match="steps must be >= 1, got 0"):
        frames().previous_rows(0)
    with pytest.raises(KeyError, match=r"no column 'inputs\.z'"):
        frames().previous("inputs.z")


def test_nothing_is_seen_beyond_the_window() -> None:
    marks = np.ones(3, dtype=bool)
    same = Batch.from_columns(
        {"entity": ["a"] * 3, "ts": pa.array([0, 1_000_000, 3_000_000], pa.timestamp("us", tz="UTC"))},
        model="m",
    )
    assert same.with_marks(marks, window=Window(rows=2)).previous_rows(2).tolist() == [-1, -1, -1]
    assert same.with_marks(marks, window=Window(seconds=1.5)).previous_rows().tolist() == [-1, 0, -1]


def test_records_without_an_entity_are_groups_of_their_own_in_a_view() -> None:
    batch = Batch.from_columns({"entity": np.array([None, None, "a", "a"], dtype=object)}, model="m")
    view = batch.with_marks(np.ones(4, dtype=bool), window=Window())
    assert [(value, rows.tolist()) for value, rows in view.groups("entity")] == [
        (None, [0]),
        (None, [1]),
        ("a", [2, 3]),
    ]


# ---- explode ---------------------------------------------------------------------------------------------


def test_plain_values_and_tensors_have_elements_too() -> None:
    words = frames(**{"outputs.words": [["p", "q"], [], ["r"]]}).explode("outputs.words")
    assert words.column("outputs.words").tolist() == ["p", "q", "r"]
    assert words.column("entity").tolist() == ["a", "a", "b"]
    numbers = frames(**{"outputs.v": np.arange(6.0, dtype=np.float32).reshape(3, 2)}).explode("outputs.v")
    assert numbers.column("outputs.v").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    boxes = frames(**{"outputs.b": np.arange(24.0, dtype=np.float32).reshape(3, 2, 4)}).slice(1)
    elements = boxes.explode("outputs.b")
    assert elements.tensor("outputs.b")[:, 0].tolist() == [8.0, 12.0, 16.0, 20.0]
    assert elements.parent.tolist() == [0, 0, 1, 1]


def test_a_null_tensor_and_a_column_without_type_have_no_elements() -> None:
    some = frames(**{"outputs.v": [[1.0, 2.0], None, [3.0, 4.0]]}).explode("outputs.v")
    assert (some.parent.tolist(), some.column("outputs.v").tolist()) == ([0, 0, 2, 2], [1.0, 2.0, 3.0, 4.0])
    none = frames(**{"outputs.v": pa.nulls(3)}).explode("outputs.v")
    assert (none.rows, none.reduce(np.zeros(0)).tolist()) == (0, [0.0, 0.0, 0.0])


def test_what_is_no_list_has_no_elements() -> None:
    with pytest.raises(TypeError, match=r"inputs\.x is int64, not a column of lists"):
        frames().explode("inputs.x")


def test_answers_come_along_where_their_lists_are_as_long() -> None:
    batch = frames(**{"outputs.b": [[1, 2], [], [3]]}).with_answers(
        {"same": {"b": [[7, 8], [], [9]]}, "other": {"b": [[7], [], [9]]}, "none": {"c": [1, 2, 3]}}
    )
    elements = batch.explode("outputs.b")
    assert elements.answer_slots == ["same"]
    answer = elements.answers("same")
    assert answer is not None
    assert answer.column("outputs.b").tolist() == [7, 8, 9]


def test_marks_come_along() -> None:
    view = frames(**{"outputs.b": [[1, 2], [], [3]]}).with_marks(np.array([False, True, True]))
    assert view.explode("outputs.b").is_new.tolist() == [False, False, True]


def test_reducing_says_what_it_expected() -> None:
    elements = frames(**{"outputs.b": [[1, 2], [], [3]]}).explode("outputs.b")
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        elements.reduce([1, 2])
    with pytest.raises(ValueError, match="how must be one of max, sum, mean, any, got 'min'"):
        elements.reduce([1, 2, 3], "min")  # type: ignore[arg-type]
