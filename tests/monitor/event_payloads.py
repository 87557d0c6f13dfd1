"""Events as their senders put them on the wire: recorded shapes of KServe's logger, Seldon and MLServer."""

import json
from typing import Any

Call = tuple[dict[str, str], bytes]

IRIS = [[6.8, 2.8, 4.8, 1.4], [6.0, 3.4, 4.5, 1.6]]


def kserve(side: str, body: Any, *, id_: str = "0009174a-24a8-4603-b098-09c8799950e9", **more: str) -> Call:
    """KServe's agent: CloudEvents 1.0, binary; the response is logged with the request's content type."""
    headers = {
        "ce-specversion": "1.0",
        "ce-id": id_,
        "ce-source": "http://localhost:9081/",
        "ce-type": f"org.kubeflow.serving.inference.{side}",
        "ce-time": "2026-01-05T10:00:00.348264937Z",
        "ce-component": "predictor",
        "ce-endpoint": "default",
        "ce-inferenceservicename": "sklearn-iris",
        "ce-metadata": "{}",
        "ce-namespace": "kserve-test",
        "content-type": "application/json",
        "user-agent": "Go-http-client/1.1",
        "traceparent": "00-f8c1c9c5ba9c5e6a30ab5a5a0cd8ea19-6c2b3ab5a1b1a3d2-00",
    }
    return headers | more, body if isinstance(body, bytes) else json.dumps(body).encode()


def seldon(side: str, body: Any, *, puid: str = "92c8a6d1", event: str = "e1") -> Call:
    """Seldon Core's executor: every event has an id of its own, and both the request's ``requestid``."""
    headers = {
        "Ce-Specversion": "1.0",
        "Ce-Id": event,
        "Ce-Source": "http://:8000/",
        "Ce-Type": f"io.seldon.serving.inference.{side}",
        "Ce-Requestid": puid,
        "Ce-Modelid": "classifier",
        "Ce-Inferenceservicename": "iris-model",
        "Ce-Namespace": "seldon",
        "Ce-Endpoint": "default",
        "Ce-Protocol": "seldon",
        "Content-Type": "application/json",
    }
    return headers, json.dumps(body).encode()


def mlserver(side: str, body: Any, *, id_: str = "2fb8a086-ee22-4285-9826-9d38111cbb9e") -> Call:
    """MLServer behind Seldon Core 2: version 0.3, and the model's name with its number."""
    headers = {
        "Ce-Id": id_,
        "Ce-Specversion": "0.3",
        "Ce-Source": "io.seldon.serving.deployment.mlserver.seldon-mesh",
        "Ce-Type": f"io.seldon.serving.inference.{side}",
        "Ce-Requestid": id_,
        "Ce-Modelid": "iris_1",
        "Ce-Inferenceservicename": "mlserver",
        "Ce-Namespace": "seldon-mesh",
        "Ce-Endpoint": "iris_1",
        "Content-Type": "application/json",
    }
    return headers, json.dumps(body).encode()
