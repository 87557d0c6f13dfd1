"""What holds for every batch: borders lose nothing, deriving obeys laws, digests say what changed."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.assertions import Batch
from tests.strategies import FIELDS, batches, records


def fields(batch: Batch, part: str) -> list[str]:
    return [name.partition(".")[2] for name in batch.names if name.startswith(f"{part}.")]


def said(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what the batch adds to it, times as they are written."""
    return {name: value for name, value in record.items() if name not in ("model", "received", "ts")} | {
        "weight": 1.0,
        "partial": False,
    }


@given(records())
def test_records_come_back_as_they_were_sent(sent: list[dict[str, Any]]) -> None:
    back = Batch.from_records(sent, model="m").to_records()
    assert [said(record) for record in back] == [said(record) for record in sent]
    assert all(record["model"] == "m" for record in back)


@given(batches())
def test_records_survive_json(batch: Batch) -> None:
    sent = json.loads(json.dumps(batch.to_records(), allow_nan=False))
    again = Batch.from_records(sent, model="m")
    assert again.to_records() == batch.to_records()
    assert again.content_digests().tolist() == batch.content_digests().tolist()


@given(batches())
def test_ipc_is_the_identity(batch: Batch) -> None:
    again = Batch.from_ipc(batch.to_ipc())
    assert again == batch
    assert again.schema_digest == batch.schema_digest
    assert again.model == "m"


@given(batches(min_size=1))
def test_arrow_is_the_identity(batch: Batch) -> None:
    assert Batch.from_arrow(batch.to_arrow()) == batch
    assert Batch.from_arrow(pa.Table.from_batches([batch.to_arrow()])) == batch


@given(batches(min_size=1))
def test_pandas_keeps_every_value(batch: Batch) -> None:
    frame = batch.to_pandas()
    again = Batch.from_pandas(
        frame.rename(columns=lambda name: name.partition(".")[2] or name),
        model="m",
        inputs=fields(batch, "inputs"),
        outputs=fields(batch, "outputs"),
        labels=fields(batch, "label"),
        attrs=fields(batch, "attrs"),
        id="id",
        entity="entity",
        ts="ts",
        version="version",
    ).with_columns({"seq": batch.to_arrow().column("seq"), "received": batch.to_arrow().column("received")})
    assert again.content_digests().tolist() == batch.content_digests().tolist()
    assert again.keys.tolist() == batch.keys.tolist()


@given(batches(), st.data())
def test_slices_put_together_again_are_the_batch(batch: Batch, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, batch.rows), max_size=3)))
    edges = [0, *cuts, batch.rows]
    parts = [batch.slice(start, stop - start) for start, stop in pairwise(edges)]
    assert Batch.concat(parts) == batch
    assert sum(part.rows for part in parts) == batch.rows


@given(batches(), st.data())
def test_taking_is_choosing_from_the_list_of_records(batch: Batch, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, batch.rows - 1), max_size=8)) if batch.rows else []
    expected = batch.to_records()
    assert batch.take(rows).to_records() == [expected[row] for row in rows]
    mask = np.isin(np.arange(batch.rows), rows)
    assert batch.take(mask).to_records() == [expected[row] for row in sorted(set(rows))]
    inner = data.draw(st.permutations(range(len(rows))))
    assert batch.take(rows).take(inner) == batch.take([rows[row] for row in inner])


@given(batches(max_size=4), st.integers(0, 4), st.integers(0, 4))
def test_a_slice_is_a_take_of_neighbours(batch: Batch, start: int, length: int) -> None:
    start = min(start, batch.rows)
    rows = range(start, min(start + length, batch.rows))
    assert batch.slice(start, length) == batch.take(list(rows))


@given(batches())
def test_concatenation_is_associative_and_the_empty_slice_is_neutral(batch: Batch) -> None:
    empty = batch.slice(0, 0)
    assert Batch.concat([empty, batch, empty]) == batch
    left = Batch.concat([Batch.concat([batch, batch]), batch])
    assert left == Batch.concat([batch, Batch.concat([batch, batch])])


@given(batches())
def test_tensor_slots_without_a_value_are_null_and_not_zero(batch: Batch) -> None:
    assume(batch.has("inputs.image") and not batch.is_null("inputs.image").all())
    missing = batch.is_null("inputs.image")
    image = batch.tensor("inputs.image", null=np.nan)
    assert image.shape == (batch.rows, 3, 2)
    assert np.array_equal(np.isnan(image).all(axis=(1, 2)), missing)
    if missing.any():
        with pytest.raises(ValueError, match="null"):
            batch.tensor("inputs.image")


@given(batches())
def test_groups_partition_the_rows(batch: Batch) -> None:
    groups = list(batch.groups("entity"))
    rows = [row for _, index in groups for row in index.tolist()]
    assert sorted(rows) == list(range(batch.rows))
    assert len({value for value, _ in groups}) == len(groups)
    entities = batch.column("entity")
    for value, index in groups:
        assert [entities[row] for row in index] == [value] * len(index)


# ---- digests ---------------------------------------------------------------------------------------------


@given(batches(min_size=1))
def test_digests_do_not_depend_on_integers_becoming_floats(batch: Batch) -> None:
    wide = {
        name: batch.to_arrow().column(name).cast(pa.float64())
        for name in batch.names
        if "." in name and pa.types.is_integer(batch.to_arrow().schema.field(name).type)
    }
    assert batch.with_columns(wide).content_digests().tolist() == batch.content_digests().tolist()


@given(batches())
def test_digests_do_not_depend_on_a_column_that_is_all_null(batch: Batch) -> None:
    for kind in (pa.null(), pa.string(), pa.int64()):
        more = batch.with_columns({"inputs.other": pa.nulls(batch.rows, kind)})
        assert more.content_digests().tolist() == batch.content_digests().tolist()


@given(batches(), st.data())
def test_digests_belong_to_records_wherever_they_stand(batch: Batch, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(batch.rows)))
    assert batch.take(order).content_digests().tolist() == batch.content_digests()[order].tolist()


@given(records(min_size=1), st.data())
def test_any_changed_value_changes_the_digest(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    part, _, field = name.partition(".")
    row = data.draw(st.integers(0, len(sent) - 1))
    old = sent[row].get(part, {}).get(field)
    new = data.draw(FIELDS[name].filter(lambda value: value != old))
    if name in ("inputs.image", "outputs.probs"):
        assume(not np.array_equal(np.array(new, np.float32), np.array(old, np.float32)))
    changed = [dict(record) for record in sent]
    changed[row][part] = changed[row].get(part, {}) | {field: new}
    before = Batch.from_records(sent, model="m").content_digests()
    after = Batch.from_records(changed, model="m").content_digests()
    different = np.flatnonzero(before != after).tolist()
    assert different == [row]


@given(st.integers(-(2**63), 2**63 - 2))
def test_neighbouring_integers_have_different_digests(value: int) -> None:
    first, second = Batch.from_columns({"inputs.x": [value, value + 1]}, model="m").content_digests()
    assert first != second


@given(st.floats(-1e30, 1e30))
def test_neighbouring_doubles_in_a_tensor_have_different_digests(value: float) -> None:
    pair = np.array([[value, 1.0], [np.nextafter(value, np.inf), 1.0]])
    first, second = Batch.from_columns({"inputs.x": pair}, model="m").content_digests()
    assert first != second


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4))
def test_the_precision_that_holds_a_tensor_does_not_change_its_digest(values: list[float]) -> None:
    single, double = (
        Batch.from_columns({"inputs.x": np.array([values], dtype)}, model="m")
        for dtype in (np.float32, float)
    )
    assert single.content_digests().tolist() == double.content_digests().tolist()


def test_swapped_pixels_and_swapped_columns_change_the_digest() -> None:
    pixels = Batch.from_columns({"inputs.x": np.array([[1.0, 2.0], [2.0, 1.0]])}, model="m")
    columns = Batch.from_columns({"inputs.a": [1, 2], "inputs.b": [2, 1]}, model="m")
    for batch in (pixels, columns):
        first, second = batch.content_digests()
        assert first != second


def test_plus_and_minus_zero_are_one_value_and_null_is_another() -> None:
    digests = Batch.from_columns({"inputs.x": [0.0, -0.0, None]}, model="m").content_digests()
    assert digests[0] == digests[1] != digests[2]
