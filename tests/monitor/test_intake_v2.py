"""The V2 protocol: every datatype, in JSON and binary, becomes the same columns; what is wrong is named."""

import json
import re
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import tensor_type
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.protocols.tensors import DTYPES
from outrider.monitor.intake.protocols.v2 import Message, V2Form, V2Message, header_length
from outrider.monitor.intake.schema_book import SchemaBook
from tests.soak import examples

RECEIVED = 1_700_000_000_000_000


def tensor(name: str, values: Any, datatype: str, **parameters: Any) -> dict[str, Any]:
    array = np.asarray(values)
    made = {"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.tolist()}
    return made | ({"parameters": parameters} if parameters else {})


def as_json(*tensors: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"inputs": list(tensors)} | members).encode()


def elements(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def as_binary(
    *tensors: tuple[str, list[int], str, bytes], side: str = "inputs", **members: Any
) -> tuple[bytes, int]:
    described = [
        {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(raw)}}
        for name, shape, datatype, raw in tensors
    ]
    head = json.dumps({side: described} | members).encode()
    return head + b"".join(raw for *_, raw in tensors), len(head)


def read(body: bytes, message: Message = "request", length: int | None = None, **form: Any) -> V2Message:
    return V2Form(**form).read(body, message, header_length=length)


def built(found: V2Message, *, declared: dict[str, str] | None = None, id_: str | None = "r") -> Decoded:
    decoder = Decoder(SchemaBook({"m": declared or {}}))
    return decoder.build([found.part("m", id_=id_)], kind="records", received_us=RECEIVED)


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    assert not decoded.rejected
    return [row for block in decoded.blocks for row in Batch.from_arrow(block.table).to_records()]


@pytest.mark.parametrize("datatype", sorted(set(DTYPES) - {"BF16"}))
@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 2), (3, 2, 2)])
def test_json_and_binary_become_the_same_columns(datatype: str, shape: tuple[int, ...]) -> None:
    dtype = DTYPES[datatype]
    values = np.arange(int(np.prod(shape))).reshape(shape) % 2
    values = (values * 1.1 if dtype.kind == "f" else values).astype(dtype)
    binary, length = as_binary(("x", list(shape), datatype, values.tobytes()))
    one = rows(built(read(binary, length=length)))
    other = rows(built(read(as_json(tensor("x", values, datatype)))))
    assert one == other
    assert [row["id"] for row in one] == ["r:0", "r:1", "r:2"]
    got = np.array([row["inputs"]["x"] for row in one], dtype=np.float32)
    np.testing.assert_array_equal(got, values.astype(np.float32).reshape(got.shape))


def test_half_precision_of_the_brain_is_the_upper_half_of_a_float() -> None:
    values = np.array([1.5, -2.0, 0.15625], dtype=np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    body, length = as_binary(("x", [3], "BF16", raw))
    column: Any = read(body, length=length).columns["inputs.x"]
    assert column.to_pylist() == values.tolist()


def test_large_whole_numbers_stay_exact_and_what_no_column_holds_is_refused_alone() -> None:
    values = np.array([2**53 + 1, 2**64 - 1, 7], dtype=np.uint64)
    body, length = as_binary(("x", [3], "UINT64", values.tobytes()))
    decoded = built(read(body, length=length))
    [refused] = decoded.rejected.listed
    assert (refused.index, refused.id, refused.field) == (1, "r:1", "inputs.x")
    assert decoded.blocks[0].table.column("inputs.x").to_pylist() == [2**53 + 1, 7]


def test_bytes_are_texts_and_lists_of_texts() -> None:
    body, length = as_binary(
        ("text", [2, 1], "BYTES", elements("grün".encode(), b"")),
        ("words", [2, 2], "BYTES", elements(b"a", b"b", b"c", b"d")),
    )
    one = rows(built(read(body, length=length)))
    other = rows(built(read(as_json(
        tensor("text", [["grün"], [""]], "BYTES"), tensor("words", [["a", "b"], ["c", "d"]], "BYTES")
    ))))  # fmt: skip
    assert one == other
    assert [row["inputs"] for row in one] == [
        {"text": "grün", "words": ["a", "b"]}, {"text": "", "words": ["c", "d"]}
    ]  # fmt: skip


def test_bytes_that_are_no_text_stay_bytes() -> None:
    image = b"\xff\xd8\xff\xe0" + bytes(range(256))
    body, length = as_binary(("image", [2], "BYTES", elements(image, b"\x89PNG")))
    assert read(body, length=length).columns["inputs.image"] == [image, b"\x89PNG"]
    encoded = tensor("image", ["/9j/4A==", "/9j/4Q=="], "BYTES", content_type="base64")
    assert read(as_json(encoded)).columns["inputs.image"] == [b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1"]


def test_a_row_that_is_not_finite_is_refused_alone() -> None:
    values = np.ones((4, 2, 2), dtype=np.float32)
    values[2, 1, 0] = np.nan
    body, length = as_binary(("x", [4, 2, 2], "FP32", values.tobytes()))
    decoded = built(read(body, length=length))
    assert [(r.index, r.id, r.field) for r in decoded.rejected.listed] == [(2, "r:2", "inputs.x")]
    assert "finite" in decoded.rejected.listed[0].reason
    assert decoded.blocks[0].table.schema.field("inputs.x").type == tensor_type([2, 2])
    assert decoded.accepted == 3


def test_a_null_or_a_text_among_numbers_concerns_its_row_only() -> None:
    body = as_json(
        {"name": "age", "shape": [3], "datatype": "INT64", "data": [41, None, "x"]},
        {"name": "x", "shape": [3, 2], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0, 5.0, None]},
    )
    decoded = built(read(body), declared={"inputs.age": "int", "inputs.x": "tensor(2)"})
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [(2, "inputs.age")]
    assert decoded.accepted == 2


def test_names_for_a_tensor_rename_or_split_it() -> None:
    body = as_json(tensor("input-0", [[1.0, 2.0], [3.0, 4.0]], "FP64"), tensor("flag", [True, False], "BOOL"))
    found = read(body, tensors={"input-0": ("age", "income"), "flag": ("member",)})
    assert [row["inputs"] for row in rows(built(found))] == [
        {"age": 1.0, "income": 2.0, "member": True}, {"age": 3.0, "income": 4.0, "member": False}
    ]  # fmt: skip
    with pytest.raises(ProblemError, match=r"3 names are given for it, so shape \[n, 3\] expected"):
        read(body, tensors={"input-0": ("a", "b", "c")})


def test_a_model_without_batches_has_one_record_per_request() -> None:
    body = as_json(tensor("x", [1.0, 2.0, 3.0], "FP32"), tensor("k", [5], "INT32"))
    [row] = rows(built(read(body, batched=False)))
    assert row["inputs"] == {"x": [1.0, 2.0, 3.0], "k": 5}
    assert row["id"] == "r"
    with pytest.raises(ProblemError, match=r"batched = false"):
        read(body)


def test_columns_declared_as_lists_or_vectors_stay_so_in_shape_n_1() -> None:
    declared = {"inputs.tokens": "list(int)", "inputs.x": "tensor(1)"}
    tensors = [tensor("tokens", [[7], [8]], "INT64"), tensor("x", [[1.0], [2.0]], "FP32")]
    decoder = Decoder(SchemaBook({"m": declared}))
    for body in (as_json(*tensors), as_json(tensor("tokens", [[7, 8, 9], [1, 2, 3]], "INT64"))):
        found = read(body, shaped=frozenset(declared))
        decoded = decoder.build([found.part("m")], kind="records", received_us=RECEIVED)
        assert not decoded.rejected
        assert decoded.blocks[0].table.schema.field("inputs.tokens").type == pa.list_(pa.int64())
    assert decoded.blocks[0].table.column("inputs.tokens").to_pylist() == [[7, 8, 9], [1, 2, 3]]


def test_a_tensor_of_two_dimensions_is_no_list() -> None:
    decoded = built(
        read(as_json(tensor("x", np.zeros((2, 2, 2)), "FP32"))), declared={"inputs.x": "list(float)"}
    )
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [(0, "inputs.x[0]"), (1, "inputs.x[0]")]


def test_parameters_become_attributes_and_the_sequence_the_entity() -> None:
    body = as_json(
        tensor("x", [1, 2], "INT8"),
        id="b1",
        parameters={
            "sequence_id": 42,
            "sequence_start": True,
            "binary_data_output": True,
            "region": "eu",
            "k": 3,
        },
    )
    found = read(body)
    assert (found.id, found.entity, found.attrs) == ("b1", "42", {"region": "eu", "k": 3})
    assert [(row["entity"], row["attrs"]) for row in rows(built(found))] == [
        ("42", {"region": "eu", "k": 3})
    ] * 2


def test_a_response_names_its_model_and_version() -> None:
    scores = np.array([0.25, 0.75], dtype=np.float32)
    body, length = as_binary(
        ("score", [2], "FP32", scores.tobytes()), ("label", [2, 1], "BYTES", elements(b"no", b"yes")),
        side="outputs", model_name="churn", model_version="3", id="r7",
    )  # fmt: skip
    for known in (length, None):  # loggers lose the header
        found = read(body, "response", known)
        assert (found.model, found.version, found.id) == ("churn", "3", "r7")
        [first, second] = rows(built(found))
        assert (first["outputs"], first["version"]) == ({"score": 0.25, "label": "no"}, "3")
        assert second["outputs"] == {"score": 0.75, "label": "yes"}


def test_a_raw_body_is_the_only_tensor() -> None:
    values = np.arange(8, dtype=np.float32)
    found = V2Form().raw(values.tobytes(), "x", tensor_type([4]))
    assert found.rows == 2
    column: Any = found.columns["inputs.x"]
    assert column.to_numpy_ndarray().tolist() == values.reshape(2, 4).tolist()
    assert V2Form().raw(b"\xff\xd8", "image", None).columns["inputs.image"] == [b"\xff\xd8"]
    with pytest.raises(ProblemError, match="multiple of 16 bytes expected, got 15"):
        V2Form().raw(b"x" * 15, "x", tensor_type([4]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "malformed JSON"),
        (b"[]", "object"),
        (b"{}", "inputs: a list of tensors expected"),
        (b'{"inputs": []}', "inputs: a list of tensors expected"),
        (b'{"inputs": [{"name": "x"}]}', "shape"),
        (as_json({"name": "x", "shape": [1], "datatype": "FP8", "data": [1]}), "datatype 'FP8' is none of"),
        (as_json({"name": "x", "shape": [-1], "datatype": "FP32", "data": [1]}), "sizes >= 1 expected"),
        (as_json({"name": "x", "shape": [0], "datatype": "FP32", "data": []}), "sizes >= 1 expected"),
        (as_json({"name": "x", "shape": [1] * 17, "datatype": "FP32", "data": [1]}), "up to 16 sizes"),
        (as_json({"name": "x", "shape": [3], "datatype": "FP32", "data": [1]}), "3 values expected"),
        (as_json({"name": "x", "shape": [2], "datatype": "FP32", "data": [[1], 2]}), "nested unevenly"),
        (as_json({"name": "x", "shape": [2], "datatype": "FP32"}), "a list of 2 values expected"),
        (as_json(tensor("x", [1], "INT8"), tensor("x", [1], "INT8")), "two tensors become inputs.x"),
        (as_json(tensor("x", ["?"], "BYTES", content_type="base64")), "base64 expected"),
        (as_binary(("x", [2], "FP32", b"1234"))[0], "expected 8 bytes for FP32"),
        (as_binary(("x", [1], "FP32", b"1234"))[0] + b"!", "1 bytes behind the last tensor"),
        (as_binary(("x", [1], "BYTES", b"\xff\xff\xff\xffa"))[0], "element 0 is cut off"),
        (as_binary(("x", [2], "BYTES", elements(b"a")))[0], "2 elements expected, got 1"),
        (as_binary(("x", [1], "FP32", b"1234"))[0][:-2], "4 bytes of binary data, 2 are there"),
        (as_json(tensor("x", [1], "INT8", binary_data_size="4")), "'4' bytes of binary data"),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_refused_with_its_reason(body: bytes, expected: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(expected)) as refused:
        read(body)
    assert refused.value.problem.status == 400


def test_rows_beyond_the_limit_and_errors_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"3 records, at most 2 in one request \(limits.records\)"):
        read(as_json(tensor("x", [1, 2, 3], "INT8")), max_rows=2)
    with pytest.raises(ProblemError, match="an error instead of tensors: out of memory"):
        read(b'{"error": "out of memory"}', "response")


def test_the_header_is_a_number_of_bytes() -> None:
    assert header_length({}) is None
    assert header_length({"inference-header-content-length": "17"}) == 17
    for wrong in ("-1", "x", "1.5", ""):
        with pytest.raises(ProblemError, match="a number of bytes expected"):
            header_length({"inference-header-content-length": wrong})
    with pytest.raises(ProblemError, match="is 99, the body has 2 bytes"):
        read(b"{}", length=99)


@settings(max_examples=examples(60))
@given(
    rows_=st.integers(1, 5),
    width=st.integers(1, 4),
    datatype=st.sampled_from(sorted(set(DTYPES) - {"BF16", "UINT64"})),
    data=st.data(),
)
def test_any_tensor_comes_back_from_the_block(
    rows_: int, width: int, datatype: str, data: st.DataObject
) -> None:
    dtype = DTYPES[datatype]
    raw = data.draw(
        st.binary(min_size=rows_ * width * dtype.itemsize, max_size=rows_ * width * dtype.itemsize)
    )
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    values = np.frombuffer(raw, dtype).reshape(rows_, width)
    body, length = as_binary(("x", [rows_, width], datatype, raw))
    decoded = built(read(body, length=length))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(
            np.float32 if width > 1 or (dtype.kind == "f" and dtype.itemsize < 8) else dtype
        )
        finite = np.isfinite(expected.astype(np.float64)).all(axis=1)
    assert [r.index for r in decoded.rejected.listed] == np.flatnonzero(~finite).tolist()
    if decoded.accepted:
        [block] = decoded.blocks
        column = block.table.column("inputs.x")
        got = column.to_numpy_ndarray() if width > 1 else np.array(column.to_pylist()).reshape(-1, 1)
        np.testing.assert_array_equal(got, expected[finite])


@settings(max_examples=examples(150))
@given(
    cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)
)
def test_a_damaged_body_is_read_or_refused(cut: int, flips: list[tuple[int, int]]) -> None:
    whole, length = as_binary(
        ("x", [2, 3], "FP32", np.arange(6, dtype=np.float32).tobytes()),
        ("t", [2], "BYTES", elements(b"a", b"b")),
    )
    damaged = bytearray(whole[: max(1, len(whole) - cut)])
    for at, byte in flips:
        damaged[at % len(damaged)] = byte
    for known in (length, None):
        try:
            found = read(bytes(damaged), length=known)
        except ProblemError:
            continue
        built(found)
