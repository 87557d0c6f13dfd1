"""Endpoints that a shadow target has not: each says so, with what there is."""

import pytest

from outrider.monitor.intake.protocols.unsupported import is_unsupported_openai, is_unsupported_v2

from .test_intake_mirrors import Target, target

__all__ = ["target"]
V2 = [
    ("GET", "/v2/models/churn/stats", "statistics"),
    ("GET", "/v2/models/churn/versions/1/stats", "statistics"),
    ("GET", "/v2/models/stats", "statistics"),
    ("GET", "/v2/systemsharedmemory/status", "shared memory"),
    ("POST", "/v2/systemsharedmemory/region/a/register", "shared memory"),
    ("POST", "/v2/cudasharedmemory/unregister", "shared memory"),
    ("POST", "/v2/repository/index", "loads and unloads no models"),
    ("POST", "/v2/repository/models/churn/load", "loads and unloads no models"),
    ("POST", "/v2/models/churn/generate", "generate extension"),
    ("POST", "/v2/models/churn/generate_stream", "generate extension"),
    ("GET", "/v2/models/churn/trace/setting", "tracing"),
    ("GET", "/v2/logging", "logging"),
]
OPENAI = ["responses", "responses/resp_1", "embeddings", "audio/transcriptions", "messages"]


def keyed(target: Target) -> dict[str, str]:
    return {"authorization": f"Bearer {target.key}"}


@pytest.mark.parametrize(("method", "path", "what"), V2)
def test_an_extension_of_v2_is_refused_with_what_is_supported(
    target: Target, method: str, path: str, what: str
) -> None:
    answer = target.call(method, path, b"", keyed(target))
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert "not supported" in told["detail"]
    assert what in told["detail"]
    assert "/infer" in told["detail"]
    assert told["error"] == told["detail"]  # as tritonclient shows one


@pytest.mark.parametrize("path", OPENAI)
def test_an_endpoint_of_openai_is_refused_with_what_is_supported(target: Target, path: str) -> None:
    answer = target.call("POST", f"/v1/{path}", b'{"model": "gpt-4o", "input": "hello"}', keyed(target))
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert f"not supported: /v1/{path.partition('/')[0]}" in message
    assert "/v1/chat/completions" in message


def test_tensors_in_shared_memory_are_refused_with_the_reason(target: Target) -> None:
    place = {"shared_memory_region": "in", "shared_memory_byte_size": 8}
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "parameters": place}
    answer = target.post("/v2/models/churn/infer", {"inputs": [tensor]})
    assert answer.status_code == 422
    assert "tensor x: not supported: shared memory" in answer.json()["detail"]
    assert target.rows("churn") == []


def test_none_of_it_counts_as_a_refused_record_and_none_is_open(target: Target) -> None:
    for method, path, _ in V2:
        assert target.call(method, path, b"", {}).status_code == 401
        target.call(method, path, b"", keyed(target))
    metrics = target.call("GET", "/metrics", b"", keyed(target)).text
    assert 'outrider_responses_total{process="intake",route="infer",status="4xx"} 12.0' in metrics
    assert 'outrider_records_rejected_total{process="intake",reason="malformed"} 0.0' in metrics


def test_a_model_may_have_such_a_name() -> None:
    assert not is_unsupported_v2("/v2/models/stats/infer")
    assert not is_unsupported_v2("/v2/models/stats/ready")
    assert not is_unsupported_openai("/v1/records/toy/v1/responses")
    assert not is_unsupported_v2("/v1/records/toy/v2/models/toy/stats")
