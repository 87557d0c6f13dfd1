"""An ONNX file that somebody uploads, before the gate of a running service."""

import hashlib
import json
from pathlib import Path

import pytest

from outrider.dataops.confinement import landlock_version
from tests.monitor.test_uploads import onnx_file
from tests.requirements import require_package

from .service import CONFIG, Service, wait_until, write_project

require_package("onnxruntime", "pip install outrider[onnx]")
GATED = CONFIG + '[models.toy.gate]\nshadow_rows = 0\nrequires = ["suites"]\n'
SUITE = """
import json, os, sys
from pathlib import Path
from outrider.behavioral_tests import INV


def child(place):
    is_held = "NoNewPrivs:\\t1" in (place / "status").read_text()
    return {"command": (place / "cmdline").read_text().split("\\0"), "is_held": is_held}


def look(batch, rng):
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    seen = {"variables": [*os.environ], "modules": [*sys.modules]}
    seen["children"] = [child(Path("/proc", pid)) for pid in pids]
    Path(__file__).with_name("seen.json").write_text(json.dumps(seen))
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + 0.01})


test_same = INV(cases=[{"inputs": {"x": 0.3}}], perturb=look)
"""


@pytest.mark.costly("a whole service runs, and is fed until it happens")
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_gate_judges_an_uploaded_file_that_a_confined_process_alone_opens(tmp_path: Path) -> None:
    config = write_project(tmp_path / "project", config=GATED)
    content = onnx_file(1)
    digest = hashlib.sha256(content).hexdigest()
    file = {"name": "net.onnx", "bytes": len(content), "sha256": digest}
    with Service(config, env={"SHOP_TOKEN": "7"}) as service:
        begun = service.client.post("/v1/models/toy/versions", json={"kind": "onnx", "files": [file]})
        assert begun.status_code == 201, begun.text
        (config.parent / "test_toy.py").write_text(SUITE, encoding="utf-8")
        sent = service.client.put(begun.json()["files"][0]["url"], content=content)
        assert sent.status_code == 200, sent.text
        done = service.client.post(begun.json()["complete"], json={})
        assert done.status_code == 201, done.text
        ended = "SELECT status, result FROM job WHERE finished_us IS NOT NULL"
        wait_until(lambda: bool(service.query(ended)), "the verdict of the gate", service)
        ((status, result),) = service.query(ended)
        outcomes = service.query("SELECT version, status FROM suite_outcome ORDER BY version")
    assert status == "done", result
    assert outcomes == [("1", "passed"), ("2", "passed")]
    seen = json.loads((config.parent / "seen.json").read_text())
    assert "onnxruntime" not in seen["modules"]
    assert "SHOP_TOKEN" in seen["variables"]  # the owner's tests keep what they need
    (confined,) = [one for one in seen["children"] if "--confine" in one["command"]]
    assert confined["is_held"]
    (path,) = confined["command"][confined["command"].index("--confine") + 1 :][:1]
    assert path.endswith(digest)
