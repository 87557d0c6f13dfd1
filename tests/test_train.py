"""The client of trainings elsewhere: what it takes, and where its token goes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.train import Job

EVENT: dict[str, Any] = {
    "type": "retrain.requested",
    "data": {"job": "job_1", "token": "orj_x", "task": "http://one.example:9/v1/retrains/job_1/task"},
}


def test_the_client_imports_within_60_ms() -> None:
    code = (
        "import time; began = time.process_time(); import outrider.train; print(time.process_time() - began)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    assert min(times) <= 0.06


def test_a_job_of_an_event_or_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Job.from_event(EVENT).url == "http://one.example:9"
    assert Job.from_event(json.dumps(EVENT).encode(), url="https://two.example/").url == "https://two.example"
    for name in ("OUTRIDER_EVENT", "OUTRIDER_URL", "OUTRIDER_JOB", "OUTRIDER_JOB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="OUTRIDER_URL is not set"):
        Job.from_env()
    monkeypatch.setenv("OUTRIDER_URL", "https://three.example")
    monkeypatch.setenv("OUTRIDER_JOB", "job_1")
    monkeypatch.setenv("OUTRIDER_JOB_TOKEN", "orj_x")
    assert repr(Job.from_env()) == "Job('https://three.example', 'job_1')"
    (tmp_path / "event.json").write_text(json.dumps(EVENT))
    for event in (json.dumps(EVENT), str(tmp_path / "event.json")):
        monkeypatch.setenv("OUTRIDER_EVENT", event)
        assert Job.from_env().id == "job_1"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"type": "model.promoted", "data": {}}, "retrain.requested expected, got 'model.promoted'"),
        ({"type": "retrain.requested", "data": {"job": "job_1"}}, "data.token is missing"),
    ],
)
def test_another_event_is_refused(event: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Job.from_event(event)


def test_the_token_goes_to_its_service_alone() -> None:
    with pytest.raises(ValueError, match="the token goes nowhere else"):
        Job.from_event(EVENT)._json("GET", "https://elsewhere.example/v1/x")


def test_pickles_are_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match="pickles"):
        Job.from_event(EVENT).upload(tmp_path / "model.pkl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="has no file"):
        Job.from_event(EVENT).upload(tmp_path / "folder")
