"""A mirrored request at a running service: the replica answers, assertions judge, the page shows it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.service import CONFIG, Service, wait_until, write_project


def test_the_replica_answers_a_mirrored_request_and_its_answer_is_judged_and_shown(tmp_path: Path) -> None:
    values = np.array([[0.95], [0.51]], dtype=np.float32)
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "shape": [2, 1], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
            ]
        }
    ).encode()
    with Service(write_project(tmp_path, config=CONFIG)) as service:
        sent = service.client.post(
            "/v2/models/toy/versions/7/infer",
            content=head + values.tobytes(),
            headers={
                "host": "models.internal-shadow",
                "x-request-id": "envoy-1",
                "inference-header-content-length": str(len(head)),
            },
        )
        assert sent.status_code == 200
        service.wait_judged(2)
        flags = service.client.get("/v1/flags", params={"model": "toy"}).json()["flags"]
        # "unsure" reads the score, which only the replica said.
        found = {(flag["record_id"], flag["assertion"]) for flag in flags if flag["slot"] == "champion"}
        assert found == {("envoy-1:0", "too_high"), ("envoy-1:1", "unsure")}
        record = service.client.get("/v1/records/toy/envoy-1:1").json()
        assert not record["record"].get("outputs")
        assert record["replica_outputs"] == {"label": 1, "score": pytest.approx(0.51)}
        page = service.client.get("/m/toy/records/envoy-1:1").text
        assert "Outputs of the replica" in page
        # What production really answered, and a label, may come later.
        label = {"model": "toy", "id": "envoy-1:1", "label": {"label": 0}}
        assert service.client.post("/v1/labels", json=label).status_code == 202
        wait_until(
            lambda: bool(service.client.get("/v1/records/toy/envoy-1:1").json()["labels"]),
            "the label",
            service,
        )
