"""Records without the inputs that their model was declared with: refused with the names, or flagged."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from outrider.assertions import Batch
from outrider.monitor.host.missing_inputs import missing_inputs
from outrider.monitor.host.process import LoadingReport, ModelCode
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.intake_sections import ModelIntakeSettings

from .decoding import decode_body
from .event_payloads import mlserver
from .test_intake_mirrors import Target

RECEIVED = 1_700_000_000_000_000
NAMES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[models.iris]
predictor = "model.py:predict"
inputs = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
[models.iris.intake]
{intake}
[models.chat]
predictor = "model.py:predict"
inputs = ["prompt"]
"""
SIDES = """answers = "joined"
request_models = ["iris"]
[models.iris.intake.tensors.inputs]
predict = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
[models.iris.intake.tensors.outputs]
predict = ["label"]
"""
# As MLServer's scikit-learn runtime takes and gives them: both tensors are called predict.
SKLEARN_REQUEST: dict[str, Any] = {
    "id": "2fb8a086-ee22-4285-9826-9d38111cbb9e",
    "parameters": {"content_type": None, "headers": None},
    "inputs": [
        {
            "name": "predict",
            "shape": [2, 4],
            "datatype": "FP32",
            "parameters": {"content_type": "np"},
            "data": [6.75, 2.75, 4.75, 1.5, 6.0, 3.5, 4.5, 1.25],
        }
    ],
}
SKLEARN_RESPONSE: dict[str, Any] = {
    "model_name": "iris",
    "model_version": "v0.1.0",
    "id": "2fb8a086-ee22-4285-9826-9d38111cbb9e",
    "parameters": {},
    "outputs": [
        {
            "name": "predict",
            "shape": [2, 1],
            "datatype": "INT64",
            "parameters": {"content_type": "np"},
            "data": [1, 2],
        }
    ],
}


@contextmanager
def running(folder: Path, intake: str = "") -> Iterator[Target]:
    path = folder / "outrider.toml"
    path.write_text(CONFIG.format(intake=intake), encoding="utf-8")
    made = ServerProcess(load_settings(path))
    made.writer.start()
    try:
        yield Target(made)
    finally:
        made.close()


def tensor(name: str, data: list[float]) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": "FP32", "data": data}


def binary(names: tuple[str, ...]) -> tuple[bytes, int]:
    """A request of binary tensors of one row, and the length of its JSON."""
    inputs = [
        {"name": name, "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
        for name in names
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return head + np.ones(len(names), np.float32).tobytes(), len(head)


def test_v2_request_with_a_renamed_tensor_is_refused_with_the_names(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        body = {"inputs": [tensor(name.replace("_", "-"), [1.0]) for name in NAMES]}
        answer = target.post("/v2/models/iris/infer", body)
        assert answer.status_code == 422
        assert all(f"inputs.{name}" in answer.json()["detail"] for name in NAMES)
        assert "sepal-length" in answer.json()["detail"]
        one_less = {"inputs": [tensor(name, [1.0]) for name in NAMES[1:]]}
        answer = target.post("/v2/models/iris/infer", one_less)
        assert answer.status_code == 422
        assert "missing: inputs.sepal_length; got" in answer.json()["detail"]
        assert target.rows("iris") == []
        whole = {"inputs": [tensor(name, [1.0]) for name in (*NAMES, "extra")]}
        assert target.post("/v2/models/iris/infer", whole).status_code == 200
        assert len(target.rows("iris")) == 1


def test_v2_binary_request_of_a_known_shape_is_held_to_the_same(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        for names, status in ((NAMES, 200), (NAMES, 200), (NAMES[:2], 422), (("x", *NAMES), 200)):
            body, length = binary(names)
            answer = target.post("/v2/models/iris/infer", body, inference_header_content_length=str(length))
            assert answer.status_code == status
        assert len(target.rows("iris")) == 3


def test_v2_request_that_lacks_inputs_is_taken_where_it_is_to_be_flagged(tmp_path: Path) -> None:
    with running(tmp_path, 'missing_inputs = "flag"') as target:
        body = {"inputs": [tensor("sepal-length", [1.0])]}
        assert target.post("/v2/models/iris/infer", body).status_code == 200
        assert len(target.rows("iris")) == 1
        settings = target.intake.settings
        ours, theirs = socket.socketpair()
        with ours, theirs:
            code = ModelCode(settings, settings.models["iris"], LoadingReport(ours, {}))
        judge = code.assertions["missing_inputs"]
        assert judge.level == "critical"
        assert judge.severities(target.blocks("iris")[0]).tolist() == [1.0]


@pytest.mark.parametrize("sides", [SIDES, SIDES.partition("[models.iris.intake.tensors.outputs]")[0]])
def test_request_and_response_of_mlserver_sklearn_may_both_be_called_predict(
    tmp_path: Path, sides: str
) -> None:
    with running(tmp_path, sides) as target:
        for side, body in (("request", SKLEARN_REQUEST), ("response", SKLEARN_RESPONSE)):
            headers, content = mlserver(side, body)
            named = {name.lower().replace("-", "_"): value for name, value in headers.items()}
            answer = target.post("/v1/cloudevents?model=iris", content, **named)
            assert answer.json() == {"accepted": 2, "rejected": []}
        rows = target.rows("iris")
        assert [row["inputs"]["sepal_length"] for row in rows] == [6.75, 6.0]
        said = "label" if "outputs" in sides else "predict"
        assert [row["outputs"] for row in rows] == [{said: 1}, {said: 2}]


def test_names_of_tensors_without_a_side_hold_for_both() -> None:
    old = ModelIntakeSettings.model_validate({"tensors": {"OUTPUT__0": ["score"], "x": ["a", "b"]}})
    assert old.tensors_of("inputs") == old.tensors_of("outputs") == {"OUTPUT__0": ("score",), "x": ("a", "b")}
    both = ModelIntakeSettings.model_validate(
        {"tensors": {"x": ["a", "b"], "outputs": {"x": ["label"], "y": ["score"]}}}
    )
    assert both.tensors_of("inputs") == {"x": ("a", "b")}
    assert both.tensors_of("outputs") == {"x": ("label",), "y": ("score",)}
    plain = ModelIntakeSettings.model_validate({"tensors": {"inputs": ["image"]}})  # a tensor called so
    assert plain.tensors_of("inputs") == {"inputs": ("image",)}
    refused: list[dict[str, Any]] = [
        {"other": {"x": ["a"]}},
        {"inputs": {"x": []}},
        {"outputs": {"x": ["a", "a"]}},
    ]
    for wrong in refused:
        with pytest.raises(ValidationError):
            ModelIntakeSettings.model_validate({"tensors": wrong})


# ---- records -----------------------------------------------------------------------------------------------


def decoder() -> Decoder:
    return Decoder(SchemaBook({"m": {}}, inputs={"m": ("inputs.age", "inputs.income")}))


def decode(d: Decoder, records: list[dict[str, Any]]) -> Decoded:
    body = json.dumps([{"model": "m"} | record for record in records]).encode()
    return decode_body(d, body, kind="records", form="json", received_us=RECEIVED)


def test_native_record_with_inputs_but_none_of_the_declared_is_refused_alone() -> None:
    d = decoder()
    records: list[dict[str, Any]] = [
        {"inputs": {"age": 41, "years": 1}},
        {"inputs": {"years": 41, "salary": 9.5}},
        {"inputs": {"income": 9.5}},  # a missing value is no fault: `required` finds it
        {"inputs": {"age": None, "income": None}},
        {"inputs": {"age": None, "years": 41}},
        {"outputs": {"label": "a"}},
        {"inputs": {}, "outputs": {"label": "a"}},
    ]
    for _ in range(3):  # the second time records of a known shape come
        decoded = decode(d, records)
        assert [one.index for one in decoded.rejected.listed] == [1, 4]
        assert "inputs.age, inputs.income" in decoded.rejected.listed[0].reason
        assert "inputs.years" in decoded.rejected.listed[0].reason
        assert decode(d, [{"inputs": {"years": 3}}]).accepted == 0
        assert not decode(d, [{"inputs": {"years": 3, "age": 2}}]).rejected
        assert not decode(d, [{"outputs": {"label": "a"}}]).rejected


def test_arrow_columns_without_the_declared_inputs_are_refused_by_row() -> None:
    d = decoder()
    decode(d, [{"inputs": {"age": 41, "years": 1}}])
    for ages, refused in (([None, 3], [0]), ([2, 3], []), (None, [0, 1])):
        columns = {"inputs.years": pa.array([1, 2])}
        if ages is not None:
            columns["inputs.age"] = pa.array(ages, pa.int64())
        table = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(table)
        body = sink.getvalue().to_pybytes()
        decoded = decode_body(d, body, kind="records", form="arrow", received_us=RECEIVED, model="m")
        assert [one.index for one in decoded.rejected.listed] == refused


def test_members_of_a_declared_object_count_for_it() -> None:
    d = Decoder(SchemaBook({"m": {}}, inputs={"m": ("inputs.customer",)}))
    for _ in range(3):
        assert not decode(d, [{"inputs": {"customer": {"age": 3}, "more": 1}}]).rejected
        assert decode(d, [{"inputs": {"customers": {"age": 3}}}]).rejected.count == 1


def test_chat_without_a_prompt_of_a_user_is_taken(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        body = {"model": "chat", "messages": [{"role": "system", "content": "Greet."}]}
        assert target.post("/v1/chat/completions", body).status_code == 200
        assert len(target.rows("chat")) == 1


def test_flag_of_missing_inputs_has_the_share_that_is_missing() -> None:
    records: list[dict[str, Any]] = [
        {"inputs": {"age": 1, "income": 2.0}},
        {"inputs": {"age": 1}},
        {"inputs": {"years": 1}},
        {"outputs": {"label": 1}},
    ]
    judge = missing_inputs(("inputs.age", "inputs.income"))
    assert judge.severities(Batch.from_records(records, model="m")).tolist() == [0.0, 0.5, 1.0, 0.0]
