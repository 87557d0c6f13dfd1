"""Batch: borders, errors that name what is wrong, and nothing that can be written to."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.errors import SchemaMismatch


def people() -> Batch:
    return Batch.from_records(
        [
            {"id": "a", "entity": "u1", "inputs": {"age": 41, "name": "Ann", "image": [[1, 2], [3, 4]]}},
            {"id": "b", "entity": "u1", "inputs": {"age": None, "name": None, "image": None}},
        ],
        model="churn",
    )


def test_a_missing_id_is_the_row_and_a_missing_time_that_of_receipt() -> None:
    received = datetime(2026, 1, 5, tzinfo=UTC)
    batch = Batch.from_records(
        [{"inputs": {"x": 1}}, {"id": "b", "ts": "2026-01-04T23:00:00-01:00"}], model="m", received=received
    )
    assert batch.keys.tolist() == ["0", "b"]
    assert batch.column("ts").tolist() == [datetime(2026, 1, 5)] * 2  # noqa: DTZ001 - numpy's are without zone


@pytest.mark.parametrize("time", ["2026-01-05T10:00:00", 5, datetime(2026, 1, 5)])  # noqa: DTZ001
def test_a_time_without_offset_is_refused(time: object) -> None:
    with pytest.raises(SchemaMismatch, match="offset expected"):
        Batch.from_records([{"ts": time}], model="m")


def test_values_without_a_common_type_name_their_column() -> None:
    with pytest.raises(SchemaMismatch, match=r"inputs\.age") as caught:
        Batch.from_records([{"inputs": {"age": 1}}, {"inputs": {"age": "x"}}], model="m")
    assert caught.value.field == "inputs.age"


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"age"):
        Batch.from_columns({"age": [1]}, model="m")
    with pytest.raises(SchemaMismatch, match=r"outputs"):
        Batch.from_arrow(pa.table({"output.x": [1]}), model="m")
    with pytest.raises(ValueError, match="model="):
        Batch.from_arrow(pa.table({"id": ["a"]}))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"2 values expected.* got 1"):
        Batch.from_columns({"inputs.a": [1, 2], "inputs.b": [1]}, model="m")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"inputs\.age"):
        people().column("inputs.agee")


def test_nulls_are_never_silent() -> None:
    batch = people()
    with pytest.raises(ValueError, match="1 nulls of 2"):
        batch.column("inputs.age")
    assert batch.column("inputs.age", null=-1).tolist() == [41, -1]
    assert np.array_equal(batch.column("inputs.age", null=np.nan), [41, np.nan], equal_nan=True)
    assert batch.column("inputs.name").tolist() == ["Ann", None]
    assert batch.column("inputs.name", null="").tolist() == ["Ann", ""]
    assert batch.is_null("inputs.age").tolist() == [False, True]
    with pytest.raises(ValueError, match="1 null tensors of 2"):
        batch.tensor("inputs.image")
    with pytest.raises(TypeError, match="not a tensor"):
        batch.tensor("inputs.age")


def test_nulls_of_any_type_take_what_stands_for_them() -> None:
    batch = Batch.from_columns({"inputs.ok": [True, None], "inputs.none": [None, None]}, model="m")
    assert np.array_equal(batch.column("inputs.ok", null=np.nan), [1.0, np.nan], equal_nan=True)
    assert batch.column("inputs.ok", null=False).tolist() == [True, False]
    assert np.isnan(batch.column("inputs.none", null=np.nan)).all()


def test_nothing_that_a_batch_hands_out_can_be_written_to() -> None:
    batch = people()
    columns = [batch.column(name, null=0) for name in ("inputs.age", "seq", "weight", "partial")]
    for values in [*columns, batch.tensor("inputs.image", 0), batch.keys]:
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    frame = batch.inputs
    frame["age"] = 0
    assert batch.inputs["age"].iloc[0] == 41
    with pytest.raises(ValueError, match="read-only"):
        batch.inputs["age"].to_numpy()[0] = 0


def test_frames_have_one_column_per_field() -> None:
    batch = people()
    assert list(batch.inputs) == ["age", "image", "name"]
    assert batch.outputs.shape == (2, 0)
    assert batch.inputs["image"].iloc[1] is None
    assert batch.inputs["image"].iloc[0].tolist() == [[1, 2], [3, 4]]


def test_frames_bring_text_with_missing_values() -> None:
    frame = pd.DataFrame(
        {
            "key": [7, 8],
            "text": ["a", None],
            "object": pd.Series(["a", float("nan")], dtype=object),
            "whole": pd.array([1, None], dtype="Int64"),
            "kind": pd.Categorical(["a", None]),
        }
    )
    names = ["text", "object", "whole", "kind"]
    batch = Batch.from_pandas(frame, model="m", inputs=names, id="key")
    assert batch.keys.tolist() == ["7", "8"]
    assert [batch.is_null(f"inputs.{name}").tolist() for name in names] == [[False, True]] * 4
    with pytest.raises(KeyError, match="agee"):
        Batch.from_pandas(frame, model="m", inputs=["agee"])


def test_json_can_carry_values_of_every_type() -> None:
    day = date(2020, 2, 1)
    columns = {
        "inputs.bytes": pa.array([b"ab"]),
        "inputs.date": pa.array([day]),
        "inputs.days": pa.array([[day, None]]),
        "inputs.decimal": pa.array([Decimal("1.50")]),
        "inputs.duration": pa.array([timedelta(seconds=90)]),
    }
    (record,) = Batch.from_columns(columns, model="m").to_records()
    assert json.loads(json.dumps(record["inputs"])) == {
        "bytes": "YWI=",
        "date": "2020-02-01",
        "days": ["2020-02-01", None],
        "decimal": "1.50",
        "duration": "0:01:30",
    }


def test_what_json_cannot_say_is_left_out() -> None:
    scores = {"outputs.score": [np.nan, np.inf, 1.0], "outputs.probs": np.array([[1.0, np.nan]] * 3)}
    found = Batch.from_columns(scores, model="m").to_records()
    assert [record["outputs"] for record in found] == [
        {"probs": [1.0, None]},
        {"probs": [1.0, None]},
        {"score": 1.0, "probs": [1.0, None]},
    ]


def test_the_empty_batch_works_like_any_other() -> None:
    batch = Batch.from_records([], model="m")
    assert (batch.rows, len(batch), batch.keys.tolist(), list(batch.groups("entity"))) == (0, 0, [], [])
    assert batch.to_records() == []
    assert Batch.from_ipc(batch.to_ipc()) == batch == Batch.concat([batch, batch])
    assert batch.content_digests().shape == (0,)
    assert batch.take([]).slice(0, 5).rows == 0
    assert people().with_marks(np.array([True, False])).take([]).is_new.shape == (0,)


def test_concat_names_the_first_column_that_differs() -> None:
    first, other = (Batch.from_columns({"inputs.x": [x]}, model="m") for x in (1, "a"))
    with pytest.raises(SchemaMismatch, match=r"inputs\.x: int64 in the first batch, string in another"):
        Batch.concat([first, other])
    with pytest.raises(ValueError, match="one model"):
        Batch.concat([first, Batch.from_columns({"inputs.x": [1]}, model="n")])
    with pytest.raises(ValueError, match="at least one"):
        Batch.concat([])


def test_answers_follow_their_records() -> None:
    batch = Batch.from_columns({"inputs.x": [1, 2, 3], "outputs.label": [0, 0, 0]}, model="m")
    asked = batch.with_answers({"v2": {"label": [1, 2, 3]}})
    answer = asked.take([2, 0]).answers("v2")
    assert answer is not None
    assert answer.column("outputs.label").tolist() == [3, 1]
    assert asked.slice(1).answers("v3") is None
    assert asked.answer_slots == ["v2"]
    assert batch.answer_slots == []
    with pytest.raises(ValueError, match="3 rows expected, got 2"):
        batch.with_answers({"v2": batch.slice(0, 2)})


def test_new_outputs_replace_all_old_ones() -> None:
    batch = Batch.from_columns({"inputs.x": [1], "outputs.old": [0]}, model="m").with_outputs({"new": [2]})
    assert [name for name in batch.names if name.startswith("outputs.")] == ["outputs.new"]


def test_the_schema_digest_is_of_names_and_types() -> None:
    values: list[tuple[str, list[Any]]] = [("m", [1]), ("n", [2]), ("m", [1.0])]
    digests = [Batch.from_columns({"inputs.x": x}, model=model).schema_digest for model, x in values]
    assert digests[0] == digests[1] != digests[2]


def test_tensors_survive_slicing_taking_and_concatenation() -> None:
    image = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    batch = Batch.from_columns({"inputs.image": image}, model="m")
    assert np.shares_memory(batch.slice(1, 2).tensor("inputs.image"), batch.tensor("inputs.image"))
    assert np.array_equal(batch.slice(1, 2).tensor("inputs.image"), image[1:3])
    assert np.array_equal(batch.slice(1).take([2, 0]).tensor("inputs.image"), image[[3, 1]])
    doubled = Batch.concat([batch.slice(2), batch.slice(0, 2)])
    assert np.array_equal(doubled.tensor("inputs.image"), image[[2, 3, 0, 1]])
