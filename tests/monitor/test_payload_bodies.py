"""Payloads in bodies: every form of JSON, framed and Arrow gives one and the same column."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.payloads.columns import PAYLOAD
from outrider.dataops.payloads.roots import PayloadRules, parse_roots
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, Decoder, Form
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.intake.schema_book import SchemaBook

from .decoding import decode_body

PNG = b"\x89PNG and so on"
SHA = hashlib.sha256(PNG).hexdigest()
ROOT = "/data/images"


def decoder(columns: dict[str, str] | None = None, **rules: Any) -> Decoder:
    given = {"roots": parse_roots([ROOT], Path("/"), timeout_s=1.0)} | rules
    return Decoder(SchemaBook({"m": columns or {}}, payloads={"m": PayloadRules(**given)}))


def take(records: Any, columns: dict[str, str] | None = None, **rules: Any) -> Decoded:
    body = json.dumps(records).encode()
    return decode_body(decoder(columns, **rules), body, kind="records", form="json", received_us=1, model="m")


def framed(head: Any, *parts: bytes) -> bytes:
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def image(value: Any, **rest: Any) -> dict[str, Any]:
    return {"id": "a", "inputs": {"image": value}, **rest}


def bytes_of(data: bytes, **rest: Any) -> dict[str, Any]:
    return {"$bytes": base64.b64encode(data).decode(), **rest}


def column(decoded: Decoded, name: str = "inputs.image") -> list[Any]:
    (block,) = decoded.blocks
    assert block.table.column(name).type.equals(PAYLOAD)
    return block.table.column(name).to_pylist()  # type: ignore[no-any-return]  # pyarrow publishes no types


def reasons(decoded: Decoded) -> list[tuple[str, str]]:
    return [(rejection.field, rejection.reason) for rejection in decoded.rejected.listed]


def test_bytes_in_json_in_a_frame_and_in_arrow_give_the_same_column() -> None:
    whole = {"bytes": PNG, "uri": None, "sha256": None, "media_type": "image/png"}
    assert column(take(image(bytes_of(PNG, media_type="image/png")))) == [whole]

    head = {"sizes": [len(PNG)], "records": [image({"$part": 0, "media_type": "image/png"})]}
    d = decoder()
    assert column(
        decode_body(d, framed(head, PNG), kind="records", form="framed", received_us=1, model="m")
    ) == [whole]

    for kind in (pa.binary(), pa.large_binary()):
        field = pa.field("inputs.image", kind, metadata={"outrider.media_type": "image/png"})
        table = pa.table([pa.array([PNG], kind)], schema=pa.schema([field]))
        assert column(
            decode_body(d, stream(table), kind="records", form="arrow", received_us=1, model="m")
        ) == [whole]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow publishes no types


def test_references_in_json_and_arrow_give_the_same_column_and_may_stand_beside_bytes() -> None:
    uri = f"file://{ROOT}/a.png"
    whole = {"bytes": None, "uri": uri, "sha256": SHA, "media_type": None}
    declared = {"inputs.image": "image(28, 28)"}
    records = [
        image({"$uri": uri, "sha256": SHA}),
        image(bytes_of(PNG)) | {"id": "b"},
        {"id": "c", "outputs": {"y": 1}},
    ]
    found = column(take(records, declared))
    assert found == [whole, {"bytes": PNG, "uri": None, "sha256": None, "media_type": None}, None]

    structs = pa.array([{"uri": uri, "sha256": SHA}])
    body = stream(pa.table({"inputs.image": structs}))
    decoded = decode_body(decoder(declared), body, kind="records", form="arrow", received_us=1, model="m")
    assert column(decoded) == [whole]


def test_arrays_become_the_tensors_that_lists_become() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = {"$array": base64.b64encode(values.tobytes()).decode(), "dtype": "float32", "shape": [2, 3]}
    as_lists = take(image(values.tolist())).blocks[0].table
    assert take(image(array)).blocks[0].table.column("inputs.image").equals(as_lists.column("inputs.image"))

    head = {"sizes": [24], "records": [image({"$part": 0, "dtype": "float32", "shape": [2, 3]})]}
    decoded = decode_body(
        decoder(), framed(head, values.tobytes()), kind="records", form="framed", received_us=1, model="m"
    )
    assert decoded.blocks[0].table.column("inputs.image").equals(as_lists.column("inputs.image"))

    both = take([image(array), image(values.tolist()) | {"id": "b"}]).blocks[0].table
    assert np.array_equal(Batch(both, model="m").tensor("inputs.image"), np.stack([values, values]))


def test_vectors_of_changing_length_become_lists_as_in_json() -> None:
    def vector(*values: int) -> dict[str, Any]:
        data = np.array(values, dtype=np.int64).tobytes()
        return {"$array": base64.b64encode(data).decode(), "dtype": "int64", "shape": [len(values)]}

    decoded = take([image(vector(1, 2)), image(vector(3)) | {"id": "b"}])
    assert decoded.blocks[0].table.column("inputs.image").to_pylist() == [[1, 2], [3]]


def test_a_declared_text_takes_texts_bytes_and_references_in_one_column() -> None:
    declared = {"inputs.image": "text"}
    records = [image("héllo"), image(bytes_of("wörld".encode())) | {"id": "b"}]
    found = column(take(records, declared))
    assert [row["bytes"].decode() for row in found] == ["héllo", "wörld"]
    body = stream(pa.table({"inputs.image": ["héllo", None]}))
    decoded = decode_body(decoder(declared), body, kind="records", form="arrow", received_us=1, model="m")
    assert column(decoded) == [found[0], None]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"$bytes": "####"}, "base64 expected"),
        ({"$bytes": 7}, "text in base64 expected, got 7"),
        ({"$bytes": "", "sha256": SHA}, "beside $bytes only media_type expected, got 'sha256'"),
        ({"$uri": f"file://{ROOT}/a.png"}, "sha256: 64 lower-case hex digits expected"),
        ({"$uri": f"file://{ROOT}/../key", "sha256": SHA}, "in no folder or bucket of intake.payload_roots"),
        ({"$uri": f"file://{ROOT}/%2e%2e/key", "sha256": SHA}, "in no folder or bucket"),
        ({"$uri": "file:///etc/passwd", "sha256": SHA}, "in no folder or bucket"),
        ({"$uri": f"file://host{ROOT}/a.png", "sha256": SHA}, "in no folder or bucket"),
        ({"$uri": f"http://127.0.0.1{ROOT}/a.png", "sha256": SHA}, "in no folder or bucket"),
        ({"$uri": f"{ROOT}2/a.png", "sha256": SHA}, "in no folder or bucket"),
        ({"$array": "AAAA", "dtype": "float32", "shape": [2]}, "8 bytes expected for float32"),
        ({"$array": "AAAA", "dtype": "object", "shape": [1]}, "dtype: one of bool, float32"),
        ({"$array": "", "dtype": "int8", "shape": [0]}, "shape: a list of 1 to 16 sizes > 0"),
        ({"$part": 0}, "none (the body is not framed)"),
        ([{"$bytes": ""}], "a payload cannot stand in a list"),
        (bytes_of(b"x" * 101), "101 bytes, at most 100 expected"),
        ("plain", 'expected payload ({"$bytes": …} or {"$uri": …}), got text'),
        ([[1.0]], "expected payload"),
    ],
)
def test_what_is_no_payload_is_refused_alone_with_its_reason(value: Any, reason: str) -> None:
    decoded = take(
        [image(value), image(bytes_of(PNG)) | {"id": "b"}], {"inputs.image": "image(2, 2)"}, max_bytes=100
    )
    assert decoded.accepted == 1
    ((field, why),) = reasons(decoded)
    assert field == "inputs.image"
    assert reason in why


def test_a_reference_needs_a_declared_column() -> None:
    decoded = take(image({"$uri": f"file://{ROOT}/a.png", "sha256": SHA}))
    assert "declared column" in reasons(decoded)[0][1]


def test_payloads_do_not_fit_a_column_of_numbers_and_the_other_way_round() -> None:
    d = decoder({"inputs.image": "float"})
    body = stream(pa.table({"inputs.image": pa.array([PNG, None], pa.binary()), "inputs.x": [1, 2]}))
    decoded = decode_body(d, body, kind="records", form="arrow", received_us=1, model="m")
    assert reasons(decoded) == [("inputs.image", "expected float, got a payload")]
    assert decoded.accepted == 1


@pytest.mark.parametrize(
    ("head", "parts", "reason"),
    [
        ({"sizes": [3], "records": [image({"$part": 0})]}, b"xx", "parts of 3 bytes announced, got 2"),
        ({"sizes": [-1, 3], "records": []}, b"xx", "announced"),
        ({"sizes": "x", "records": []}, b"", "expected"),
        ({"records": []}, b"", "expected"),
    ],
)
def test_a_frame_that_lies_is_refused_as_a_whole(head: Any, parts: bytes, reason: str) -> None:
    form: Form = "framed"
    with pytest.raises(ProblemError, match=reason):
        decode_body(decoder(), framed(head, parts), kind="records", form=form, received_us=1, model="m")
    for body in (b"", b"1234", (2**63).to_bytes(8, "little") + b"{}"):
        with pytest.raises(ProblemError, match="framed body"):
            decode_body(decoder(), body, kind="records", form=form, received_us=1, model="m")


def test_one_bad_part_costs_one_record_of_a_frame() -> None:
    head = {"sizes": [1], "records": [image({"$part": 1}), image({"$part": 0}) | {"id": "b"}]}
    decoded = decode_body(
        decoder(), framed(head, b"x"), kind="records", form="framed", received_us=1, model="m"
    )
    assert decoded.accepted == 1
    assert [(r.index, r.id, r.field) for r in decoded.rejected.listed] == [(0, "a", "inputs.image")]


def test_a_part_may_be_the_text_of_an_ordinary_column() -> None:
    part = {"$part": 0, "text": True}
    records = [
        {"model": "m", "id": "a", "inputs": {"prompt": "short"}},
        {"model": "m", "id": "b", "inputs": {"prompt": part}},
        {"model": "m", "id": "c", "inputs": {"prompt": {"$part": 1, "text": True}}},
        {"model": "m", "id": "d", "inputs": {"prompt": part | {"media_type": "text/plain"}}},
    ]
    body = framed({"sizes": [6, 1], "records": records}, "größ".encode() + b"\xff")
    decoded = decode_body(decoder(), body, kind="records", form="framed", received_us=1, model="m")
    [block] = decoded.blocks
    assert block.table.column("inputs.prompt").to_pylist() == ["short", "größ"]
    assert [(r.id, r.field) for r in decoded.rejected.listed] == [
        ("c", "inputs.prompt"),
        ("d", "inputs.prompt"),
    ]


def test_blocks_are_cut_so_that_their_images_can_be_decoded_together() -> None:
    records = [image(bytes_of(PNG)) | {"id": str(n)} for n in range(130)]
    decoded = take(records, {"inputs.image": "image(224, 224, 3)"})
    assert [block.table.num_rows for block in decoded.blocks] == [111, 19]


def test_bytes_of_a_binary_tensor_are_payloads() -> None:
    part = RequestPart(
        "m", [0, 1, 2], {}, columns={"inputs.image": [PNG, None, b"GIF"], "inputs.x": [1, 2, 3]}
    )
    decoded = decoder({"inputs.image": "image(2, 2)"}).build([part], kind="records", received_us=1)
    assert [row and row["bytes"] for row in column(decoded)] == [PNG, None, b"GIF"]
