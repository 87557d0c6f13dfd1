"""Lists at the border: objects and plain values, types that only grow, faults named to the field."""

import contextlib
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.assertions.batch.columns import as_type, common_type, row_hashes
from outrider.assertions.comparison.typed_text import typed_texts
from outrider.dataops.journal.journal import SchemaSeen
from outrider.errors import ConfigError
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.schema_book import SchemaBook
from tests.soak import examples

from .decoding import decode_body

Sent = list[Any]
NAME = "outputs.boxes"


def decoder(declared: str | None = None, **limits: Any) -> Decoder:
    return Decoder(SchemaBook({"m": {} if declared is None else {NAME: declared}}), **limits)


def send(decoder: Decoder, values: Sent, *, form: str = "json") -> Decoded:
    records = [
        {"model": "m", "id": str(row), "outputs": {"boxes": value, "n": 1}}
        for row, value in enumerate(values)
    ]
    body = "\n".join(map(json.dumps, records)) if form == "lines" else json.dumps(records)
    return decode_body(decoder, body.encode(), kind="records", form=form, received_us=1)  # type: ignore[arg-type]


def send_arrow(decoder: Decoder, column: pa.Array) -> Decoded:
    table = pa.record_batch(
        {"id": [str(row) for row in range(len(column))], NAME: column, "outputs.n": [1] * len(column)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body = sink.getvalue().to_pybytes()
    return decode_body(decoder, body, kind="records", form="arrow", received_us=1, model="m")


def lists(decoded: Decoded) -> Sent:
    (block,) = decoded.blocks
    kept: Sent = block.table.column(NAME).to_pylist()
    return kept


def kind(decoded: Decoded) -> str:
    return str(decoded.blocks[0].table.schema.field(NAME).type)


def faults(decoded: Decoded) -> list[tuple[str | None, str, str]]:
    return [(fault.id, fault.field, fault.reason) for fault in decoded.rejected.listed]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_lists_of_objects_become_lists_of_structs(form: str) -> None:
    sent = [[{"left": 1, "label": "car"}, {"left": 2.5, "label": None}], [], None, [{"left": 3}]]
    decoded = send(decoder(), sent, form=form)
    assert kind(decoded) == "list<item: struct<left: double, label: string>>"
    assert lists(decoded) == [
        [{"left": 1.0, "label": "car"}, {"left": 2.5, "label": None}],
        [],
        None,
        [{"left": 3.0, "label": None}],
    ]
    elements = Batch.from_arrow(decoded.blocks[0].table).explode(NAME)
    assert elements.column(f"{NAME}.left").tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([["a", "b"], []], "list<item: string>"),
        ([[1, 2], [3]], "list<item: int64>"),
        ([[1, 2], [0.5]], "list<item: double>"),
        ([[True], []], "list<item: bool>"),
        ([[], None], "list<item: null>"),
    ],
)
def test_lists_of_plain_values(sent: Sent, expected: str) -> None:
    decoded = send(decoder(), sent)
    assert (kind(decoded), lists(decoded)) == (expected, sent)


def test_even_lists_of_numbers_stay_tensors_unless_a_list_is_declared() -> None:
    even = [[1.0, 2.0], [3.0, 4.0]]
    learned = decoder()
    assert "fixed_shape_tensor" in kind(send(learned, even))
    assert "got shape (3)" in send(learned, [[1, 2, 3]]).rejected.listed[0].reason
    declared = decoder("list(float)")
    assert lists(send(declared, even)) == even
    assert lists(send(declared, [[1, 2, 3], []])) == [[1.0, 2.0, 3.0], []]


def test_types_grow_from_block_to_block_and_never_change() -> None:
    d = decoder()
    blocks: list[Sent] = [
        [[]],
        [[{"left": 1}]],
        [[{"left": 2, "label": "car"}], [{"left": 3, "label": 7}]],
        [[{"left": 0.5}], [{"left": "x"}], ["car"], "car"],  # its type is that of the block before
    ]
    found = [send(d, sent) for sent in blocks]
    assert [kind(decoded) for decoded in found] == [
        "list<item: null>",
        "list<item: struct<left: int64>>",
        "list<item: struct<left: int64, label: string>>",
        "list<item: struct<left: double, label: string>>",
    ]
    assert faults(found[2]) == [("1", f"{NAME}[0].label", "expected string, got int 7")]
    assert faults(found[3]) == [
        ("1", f"{NAME}[0].left", "expected float, got text 'x'"),
        ("2", f"{NAME}[0]", "expected an object, got text 'car'"),
        ("3", NAME, "expected list(left: int, label: string), got text 'car'"),
    ]
    assert lists(send(d, [[]])) == [[]]


def test_a_refused_record_teaches_no_field() -> None:
    d = decoder()
    send(d, [[{"left": 1}]])
    decoded = send(d, [[{"left": "x", "new": 1}], [{"left": 1, "new": "text"}]])
    assert faults(decoded) == [("0", f"{NAME}[0].left", "expected int, got text 'x'")]
    assert lists(decoded) == [[{"left": 1, "new": "text"}]]


def test_the_journal_remembers_the_fields() -> None:
    block = send(decoder(), [[{"left": 1.5}]]).blocks[0]
    seen = SchemaSeen("m", block.digest, block.table.schema.serialize().to_pybytes(), 1)
    again = Decoder(SchemaBook({"m": {}}, [seen]))
    assert send(again, [[{"left": 2}]]).blocks[0].digest == block.digest


@pytest.mark.parametrize(
    ("value", "below", "reason"),
    [
        ([{"left": 1}, None], "[1]", "a null is no element"),
        ([{"left": 1}, {"left": [1]}], "[1].left", "expected int, got list of 1"),
        ([{"left": 1, "at": {"x": 1}}], "[0].at", "a number, text or boolean, got object of 1"),
        ([{"left": 1, "": 1}], "[0].", "a field needs a name"),
        ([{"left": 1, "n" * 300: 1}], f"[0].{'n' * 256}", "at most 256 characters"),
        ([{"left": 1, "\ud800": 1}], r"[0].'\ud800'", "names of fields are texts"),
        ([{"left": float("nan")}], "[0].left", "nan is not a finite number"),
        ([{"left": 2**70}], "[0].left", "expected int of 64 bits"),
        ([{"left": True}], "[0].left", "expected int, got boolean True"),
        ([{"left": 1, "kind": "\ud800"}], "[0].kind", "surrogate"),
        ([3], "[0]", "expected an object, got int 3"),
        ([[1, 2]], "[0]", "expected an object, got list of 2"),
    ],
)
def test_a_bad_element_is_named_and_hurts_its_record_only(value: Sent, below: str, reason: str) -> None:
    d = decoder()
    send(d, [[{"left": 1}]])
    decoded = send(d, [[{"left": 1}], value, [{"left": 3}]])
    assert [element["left"] for (element,) in lists(decoded)] == [1, 3]
    ((id_, field, said),) = faults(decoded)
    assert (id_, field) == ("1", f"{NAME}{below}")
    assert reason in said


def test_bounds() -> None:
    assert "limits.elements" in send(decoder(max_elements=3), [["a"] * 4]).rejected.listed[0].reason
    d = decoder(max_columns=4)
    wide = send(d, [[{"a": 1, "b": 1}]])  # beside outputs.n
    assert wide.accepted == 1
    wide = send(d, [[{"a": 1, "c": 1}], [{"d": 1}]])
    assert wide.accepted == 1
    assert "limits.columns" in wide.rejected.listed[0].reason
    sparse = [[{f"f{n}": 1} for n in range(500)] + [{}] * 99_000]
    with pytest.raises(ProblemError, match="fields are too many"):
        send(decoder(max_columns=1000), sparse)


def test_declared_objects_take_no_further_field() -> None:
    d = decoder("list(left: float, kind: string)")
    decoded = send(d, [[{"left": 1}], [{"left": 1, "top": 2}]])
    assert lists(decoded) == [[{"left": 1.0, "kind": None}]]
    assert faults(decoded) == [
        ("1", f"{NAME}[0].top", "is not among the declared fields of left: float, kind: string")
    ]


@pytest.mark.parametrize(
    "text", ["list()", "list(x)", "list(a: float, a: int)", "list(: float)", "list(a: list)"]
)
def test_a_wrong_declaration_of_a_list_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"list\("):
        decoder(text)


def test_labels_may_be_lists() -> None:
    body = [
        {"model": "m", "id": "a", "label": {"boxes": [{"left": 1.0}]}},
        {"model": "m", "id": "b", "label": {"boxes": []}},
    ]
    decoded = decode_body(decoder(), json.dumps(body).encode(), kind="labels", form="json", received_us=1)
    assert decoded.blocks[0].table.column("label.boxes").to_pylist() == [[{"left": 1.0}], []]


# ---- Arrow ---------------------------------------------------------------------------------------------


def test_arrow_lists_are_cast_whole() -> None:
    kinds = pa.large_list(pa.struct({"left": pa.float32(), "kind": pa.large_string(), "empty": pa.null()}))
    column = pa.array([[{"left": 1.5, "kind": "a"}], [], None, [{"left": 2.0}]], kinds)
    d = decoder()
    decoded = send_arrow(d, column.slice(0))
    assert kind(decoded) == "list<item: struct<left: double, kind: string>>"
    assert lists(decoded) == [[{"left": 1.5, "kind": "a"}], [], None, [{"left": 2.0, "kind": None}]]
    more = send_arrow(d, pa.array([[{"new": 1}], []]).slice(0, 1))
    assert lists(more) == [[{"left": None, "kind": None, "new": 1}]]
    assert lists(send_arrow(decoder(), pa.array([["x"], []], pa.list_(pa.large_string())))) == [["x"], []]
    assert lists(send_arrow(decoder(), pa.array([[1], [2, 3]], pa.list_(pa.int8())))) == [[1], [2, 3]]


def test_arrow_lists_that_do_not_fit_are_rejected_alone() -> None:
    column = pa.array([[{"left": 1.0}], [{"left": float("nan")}], [None], [{"left": 2.0}]])
    decoded = send_arrow(decoder(), column)
    assert [fault[:2] for fault in faults(decoded)] == [("1", f"{NAME}[0].left"), ("2", f"{NAME}[0]")]
    assert lists(decoded) == [[{"left": 1.0}], [{"left": 2.0}]]


def test_arrow_fields_that_nobody_could_read_are_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(ProblemError, match="two fields of one name"):
        send_arrow(decoder(), pa.ListArray.from_arrays([0, 1], twice))
    far = pa.array([[2**62]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("s", "UTC")))
    with pytest.raises(ProblemError, match="cannot be read"):
        send_arrow(decoder(), far)


def test_damaged_arrow_streams_never_crash() -> None:
    column = pa.array([[{"left": 1.0, "kind": "x"}], [], None])
    table = pa.record_batch({NAME: column, "outputs.words": [["a"], ["b", "c"], None]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body, rng = sink.getvalue().to_pybytes(), random.Random(0)
    for _ in range(1500):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(body))] = rng.randrange(256)
        with contextlib.suppress(ProblemError):
            decode_body(decoder(), bytes(damaged), kind="records", form="arrow", received_us=1, model="m")


# ---- what follows --------------------------------------------------------------------------------------


def test_blocks_of_one_schema_are_merged() -> None:
    d = decoder()
    sendings: list[Sent] = [[[{"a": 1}]], [[], None], [[{"a": 2}] * 2]]
    blocks = [block for sent in sendings for block in send(d, sent).blocks]
    (entry,) = merge(blocks)
    assert Batch.from_ipc(entry.payload).arrow(NAME).to_pylist() == [[{"a": 1}], [], None, [{"a": 2}] * 2]


def test_a_repeat_has_the_same_content_whatever_was_learned_in_between() -> None:
    d = decoder()
    sent: Sent = [[], [{"a": 1}], [{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], None]
    first = [send(d, [[]]), send(d, sent)]
    send(d, [[{"a": 0.5, "b": "x"}]])
    again = send(d, sent)
    digests = [Batch.from_arrow(decoded.blocks[0].table).content_digests() - 0 for decoded in (*first, again)]
    ids = [row_hashes(decoded.blocks[0].table.column("id"), "id") for decoded in (first[1], again)]
    assert (ids[0] == ids[1]).all()
    assert (digests[1] == digests[2]).all()
    assert digests[0][0] == digests[1][0]
    assert len(set(digests[1].tolist())) == len(sent)


def test_lists_are_compared_by_a_short_text() -> None:
    column = pa.array([[{"a": 1}], [{"a": 1}, {"a": 2}], None, [], [{"a": 1}]])
    shown = typed_texts(column)
    assert shown[0] == shown[4] == typed_texts(pa.array([[{"a": 1.0, "b": None}]]))[0]
    assert [text and text.partition(" #")[0] for text in shown] == [
        "1 element", "2 elements", None, "0 elements", "1 element"
    ]  # fmt: skip
    assert len(set(shown)) == 4


objects = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=1))),
    max_size=3,
)
columns = st.lists(
    st.one_of(st.none(), objects, st.lists(st.integers(0, 3), max_size=3), st.just("x")), max_size=8
)


@given(st.lists(columns, max_size=3))
@settings(max_examples=examples(100))
def test_every_record_is_taken_as_it_was_sent_or_rejected(blocks: list[Sent]) -> None:
    d = decoder()
    for sent in blocks:
        decoded = send(d, sent)
        kept = {
            row["id"]: row[NAME] for block in decoded.blocks for row in block.table.to_pylist() if NAME in row
        }
        refused = [fault.id for fault in decoded.rejected.listed]
        rows = [key for block in decoded.blocks for key in block.table.column("id").to_pylist()]
        assert sorted([*rows, *map(str, refused)]) == sorted(str(row) for row in range(len(sent)))
        for key, value in kept.items():
            assert _known(value) == _known(sent[int(key)])


def _known(value: Any) -> Any:
    """Without fields that are null; tensors are not looked at."""
    if not isinstance(value, list) or (value and not isinstance(value[0], dict)):
        return value if value is None else len(value)
    return [{name: inner for name, inner in element.items() if inner is not None} for element in value]


kinds = st.sampled_from(
    [
        pa.list_(inner)
        for inner in (
            pa.null(), pa.int64(), pa.float64(), pa.struct({"a": pa.int64()}), pa.struct({"a": pa.float64()}),
            pa.struct({"b": pa.string(), "a": pa.int64()}),
        )
    ]
)  # fmt: skip


@given(kinds, kinds)
def test_common_types_are_symmetric_up_to_order_and_keep_hashes(one: pa.DataType, other: pa.DataType) -> None:
    common = common_type(one, other)
    assert (common is None) == (common_type(other, one) is None)
    if common is not None:
        values: Sent = [[], None] if pa.types.is_null(one.value_type) else [[], None, [1, 2]]
        if pa.types.is_struct(one.value_type):
            values = [[], None, [{"a": 1}, {}]]
        column = pa.array(values, one)
        assert as_type(column, common).type == common
        assert np.array_equal(row_hashes(column, "c"), row_hashes(as_type(column, common), "c"))
        assert as_type(column.slice(1), common).to_pylist()[0] is None
