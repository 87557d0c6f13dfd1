"""V2 requests that fit as they are become the same records as on the general way; all others go that way."""

import json
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions.batch import Batch
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.protocols import quick_tensors
from outrider.monitor.intake.protocols.base import Arrival, ParsedRequest
from outrider.monitor.intake.protocols.open_inference import MirrorTarget, OpenInference
from outrider.monitor.intake.protocols.quick_tensors import TensorShape
from outrider.monitor.intake.protocols.request_models import RequestModels
from outrider.monitor.intake.protocols.tensors import DTYPES
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import LimitSettings
from tests.soak import examples

COLUMNS = {
    "inputs.x": "tensor(3)",
    "inputs.image": "tensor(2, 2)",
    "inputs.age": "int",
    "inputs.score": "float",
    "inputs.member": "bool",
    "inputs.name": "string",
    "outputs.label": "int",
}
X = ("x", "FP32", np.arange(6, dtype="<f4").reshape(2, 3))


class Path:
    """An intake with a decoder, and what both make of a request."""

    def __init__(self, **intake: Any) -> None:
        model = ModelSettings.model_validate(
            {"columns": COLUMNS, "intake": {"answers": "replica", "entity_header": "x-user"} | intake}
        )
        self.decoder = Decoder(SchemaBook({"m": COLUMNS}))
        self.intake = OpenInference(
            {"m": MirrorTarget.of(model, LimitSettings())},
            RequestModels({"m": ()}),
            schema=self.decoder.schema,
        )

    def build(self, reading: ParsedRequest, received_us: int = 7) -> Decoded:
        return self.decoder.build(
            reading.parts, reading.rejected, kind="records", received_us=received_us, halves=reading.halves
        )


def arrival(
    *tensors: tuple[str, str, np.ndarray[Any, Any]], cut: int = 0, more: bytes = b"",
    headers: dict[str, str] | None = None, **members: Any,
) -> Arrival:  # fmt: skip
    described: list[dict[str, Any]] = []
    for name, kind, values in tensors:
        size = {"binary_data_size": values.nbytes}
        described.append({"name": name, "shape": list(values.shape), "datatype": kind, "parameters": size})
    head = json.dumps({"inputs": described} | members).encode()
    body = head + b"".join(values.tobytes() for *_, values in tensors) + more
    told = {"host": "m-shadow", "inference-header-content-length": str(len(head)), "x-request-id": "q"}
    return Arrival("POST", "/v2/models/m/infer", {}, told | (headers or {}), body[: len(body) - cut], 7)


def tables(decoded: list[Decoded]) -> list[dict[str, Any]]:
    """Records that a group of these requests becomes in the journal."""
    rows: list[dict[str, Any]] = []
    for entry in merge([block for one in decoded for block in one.blocks]):
        for table in pa.ipc.open_stream(entry.payload).read_all().to_batches():
            table.validate(full=True)
            assert table.schema.equals(pa.ipc.read_schema(pa.py_buffer(entry.schema)), check_metadata=True)
            rows += Batch.from_arrow(table).to_records()
    return rows


def test_both_ways_make_the_same_records() -> None:
    request = arrival(
        X,
        ("image", "FP32", np.arange(8, dtype="<f4").reshape(2, 2, 2)),
        ("age", "INT16", np.array([[41], [-2]], dtype="<i2")),
        ("score", "FP32", np.array([0.1, 1e30], dtype="<f4")),
        ("member", "BOOL", np.array([True, False])),
        headers={"x-user": "u7"},
        parameters={"binary_data_output": True, "priority": 1},
    )
    path = Path()
    quick = path.intake.quick(request)
    assert quick is not None
    built = path.build(quick)
    assert isinstance(built.blocks[0].shape, TensorShape)
    assert built.accepted == 2
    assert tables([built]) == tables([path.build(path.intake.read(request))])
    assert [row["id"] for row in tables([built])] == ["q:0", "q:1"]


def test_a_group_of_requests_is_one_block_in_order() -> None:
    path = Path()
    one = [
        arrival(X, headers={"x-request-id": "a", "x-user": "u1"}),
        arrival(("x", "FP32", np.full((1, 3), 9, dtype="<f4")), headers={"x-request-id": "grün"}),
        arrival(X, headers={"x-request-id": "", "x-user": "u2"}),
        arrival(X, headers={"x-request-id": "c"}, parameters={"sequence_id": 42}),
    ]
    built = []
    for number, request in enumerate(one):
        reading = path.intake.quick(msgspec.structs.replace(request, received_us=number + 1))
        assert reading is not None
        built.append(path.build(reading))
    [entry] = merge([block for decoded in built for block in decoded.blocks])
    assert entry.rows == 7
    rows = tables(built)
    assert [row["id"] for row in rows[:3]] == ["a:0", "a:1", "grün"]
    assert [row["id"] for row in rows[5:]] == ["c:0", "c:1"]
    assert {len(row["id"]) for row in rows[3:5]} == {36}
    assert [row.get("entity") for row in rows] == ["u1", "u1", None, "u2", "u2", "42", "42"]
    assert [row["inputs"]["x"][0] for row in rows] == [0, 3, 9, 0, 3, 0, 3]
    table = pa.ipc.open_stream(entry.payload).read_all()
    assert table.column("received").cast(pa.int64()).to_pylist() == [1, 1, 2, 3, 3, 4, 4]
    assert table.column("ts").equals(table.column("received"))


def test_the_id_of_a_single_record_is_known_at_once() -> None:
    path = Path()
    reading = path.intake.quick(
        arrival(("x", "FP32", np.ones((1, 3), dtype="<f4")), headers={"x-request-id": ""})
    )
    assert reading is not None
    built = path.build(reading)
    answer = path.intake.answer(arrival(X), built)
    assert answer.headers["x-outrider-id"] == tables([built])[0]["id"]


NAN = X[2].copy()
NAN[1, 2] = np.nan


@pytest.mark.parametrize(
    "request_",
    [
        arrival(("x", "FP32", NAN)),
        arrival(("x", "FP64", X[2].astype("<f8"))),
        arrival(("x", "FP32", X[2].reshape(3, 2))),
        arrival(("new", "FP32", X[2])),
        arrival(("age", "FP32", np.array([1.5, 2], dtype="<f4"))),
        arrival(("score", "INT64", np.array([1, 2], dtype="<i8"))),
        arrival(("age", "UINT64", np.array([1, 2], dtype="<u8"))),
        arrival(("name", "BYTES", np.frombuffer(b"\x01\x00\x00\x00a", np.uint8))),
        arrival(X, X),
        arrival(X, ("age", "INT8", np.array(1, dtype="i1"))),
        arrival(X, model_version="7"),
        arrival(X, ("age", "INT8", np.array([1], dtype="i1"))),
        arrival(X, cut=1),
        arrival(X, more=b"!"),
        arrival(X, parameters={"region": "eu"}),
        arrival(X, headers={"host": "m"}),
        arrival(X, headers={"inference-header-content-length": "0"}),
        arrival(X, headers={"inference-header-content-length": "x"}),
        arrival(X, headers={"inference-header-content-length": "9" * 40}),
        arrival(X, headers={"x-user": "u" * 257}),
        arrival(),
    ],
)
def test_whatever_takes_a_second_look_goes_the_general_way(request_: Arrival) -> None:
    assert Path().intake.quick(request_) is None


@pytest.mark.parametrize("own", [{"answers": "joined"}, {"batched": False}, {"tensors": {"x": ["y"]}}])
def test_models_with_ways_of_their_own_go_the_general_way(own: dict[str, Any]) -> None:
    assert Path(**own).intake.quick(arrival(X)) is None


def test_columns_declared_as_vectors_of_one_stay_vectors() -> None:
    columns = {"inputs.v": "tensor(1)"}
    decoder = Decoder(SchemaBook({"m": columns}))
    target = MirrorTarget.of(
        ModelSettings.model_validate({"columns": columns, "intake": {"answers": "replica"}}), LimitSettings()
    )
    intake = OpenInference({"m": target}, RequestModels({"m": ()}), schema=decoder.schema)
    reading = intake.quick(arrival(("v", "FP32", np.array([[1], [2]], dtype="<f4"))))
    assert reading is not None
    built = decoder.build(reading.parts, kind="records", received_us=7)
    assert [row["inputs"]["v"] for row in tables([built])] == [[1.0], [2.0]]


def test_a_schema_that_changes_in_between_is_followed() -> None:
    path = Path()
    first = path.intake.quick(arrival(X))
    assert first is not None
    built = [path.build(first)]
    built.append(path.build(path.intake.read(arrival(X, ("new", "INT8", np.array([1, 2], dtype="i1"))))))
    again = path.intake.quick(arrival(("new", "INT8", np.array([3, 4], dtype="i1")), X))
    assert again is not None
    built.append(path.build(again))
    rows = tables(built)
    assert [row["inputs"].get("new") for row in rows] == [None, None, 1, 2, 3, 4]


def test_shapes_of_strangers_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_tensors, "_MOST_SHAPES", 3)
    path = Path()
    assert path.intake.quick(arrival((f"n{'n' * 1_000}", "FP32", X[2]))) is None
    assert path.intake._tensors._shapes == {}
    others = [("age", "INT8", np.ones(2, "i1")), ("score", "FP32", np.ones(2, "<f4")), X]
    for order in permutations(others):
        assert path.intake.quick(arrival(*order)) is not None
    assert len(path.intake._tensors._shapes) <= 3


@settings(max_examples=examples(80))
@given(
    data=st.data(),
    rows=st.integers(1, 4),
    names=st.sets(st.sampled_from(["x", "image", "age", "score", "member"]), min_size=1),
)
def test_quick_or_not_a_request_becomes_the_same(data: st.DataObject, rows: int, names: set[str]) -> None:
    inner = {"x": (3,), "image": (2, 2)}
    tensors = []
    for name in sorted(names):
        kind = data.draw(st.sampled_from(sorted(set(DTYPES) - {"BF16", "FP16"})))
        shape = (rows, *inner.get(name, data.draw(st.sampled_from([(), (1,)]))))
        dtype = DTYPES[kind]
        size = int(np.prod(shape)) * dtype.itemsize
        raw = data.draw(st.binary(min_size=size, max_size=size))
        if dtype.kind == "b":
            raw = bytes(byte & 1 for byte in raw)
        tensors.append((name, kind, np.frombuffer(raw, dtype).reshape(shape)))
    request = arrival(*tensors)
    path = Path()
    quick = path.intake.quick(request)
    if quick is None:
        return
    slow = path.build(path.intake.read(request))
    assert not slow.rejected
    assert tables([path.build(quick)]) == tables([slow])
