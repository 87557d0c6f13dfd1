"""A V2 endpoint that an upload names, in a running service: live records, and its own key alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from outrider.addresses import origin_of
from tests.scripted_server import Asked, Reply, scripted_server

from .service import CONFIG, Service, outrider, wait_until, write_project

WAITS = CONFIG + "[models.toy.gate]\nshadow_rows = 100000\n"  # the gate leaves it in the shadow
SECRET, OWN = "the-owners-key", "the-scorers-key"


def infer(asked: Asked) -> Reply:
    """Class 1 above 0.2, in the Open Inference Protocol."""
    (tensor,) = json.loads(asked.body)["inputs"]
    label = (np.array(tensor["data"]) > 0.2).astype(int)
    output = {"name": "label", "datatype": "INT64", "shape": [len(label)], "data": label.tolist()}
    return Reply(json.dumps({"model_name": "m", "outputs": [output]}).encode())


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_uploaded_v2_endpoint_answers_live_records_with_its_own_key_alone_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    with scripted_server(infer) as server:
        uploads = f'[models.toy.uploads]\nendpoints = ["{origin_of(server.url)[1]}"]\n'
        uploads += f'key_envs = {{ "{server.url}" = "SCORER_KEY" }}\n'
        config = write_project(tmp_path / "project", config=WAITS + uploads)
        with Service(config, env={"OUTRIDER_MODEL_KEY": SECRET, "SCORER_KEY": OWN}) as service:
            body = {"kind": "endpoint", "url": f"{server.url}/v2/models/m"}
            begun = service.client.post("/v1/models/toy/versions", json=body)
            assert begun.status_code == 201, begun.text
            done = service.client.post(begun.json()["complete"], json={})
            assert done.status_code == 201, done.text

            def is_asked() -> bool:
                service.post([{"inputs": {"x": 0.3}} for _ in range(20)])
                return len(server.asked) > 0

            wait_until(is_asked, "a request for live records", service)
            config.write_text(WAITS)
            reloaded = outrider(config.parent, "reload")
            assert reloaded.returncode == 4, reloaded.stdout
            assert "toy@2: ConfigError" in reloaded.stderr
            assert "is not asked: an upload named it" in reloaded.stderr
            count = len(server.asked)
            service.post([{"inputs": {"x": 0.95}} for _ in range(20)])
            flagged = "SELECT count(*) FROM flag WHERE assertion = 'too_high'"
            wait_until(lambda: service.query(flagged)[0][0] == 20, "flags of later records", service)
    assert len(server.asked) == count
    assert SECRET not in str(server.asked)
    assert {asked.path for asked in server.asked} == {"/v2/models/m/infer"}
    assert {asked.headers.get("authorization") for asked in server.asked} == {f"Bearer {OWN}"}
