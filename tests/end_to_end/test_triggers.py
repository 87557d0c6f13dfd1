"""A real service with triggers: an incident and an alert suggest a retraining, and say why."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.soak import PATIENCE_S

from .service import CONFIG, Service, outrider, wait_until, write_project

TRIGGERS = """
[models.toy.retrain]
enabled = true
mode = "suggest"
[models.toy.retrain.triggers]
incidents = "critical"
alerts = ["Drift"]
"""
ALERT = {
    "status": "firing",
    "labels": {"alertname": "Drift", "model": "toy"},
    "startsAt": "2026-01-05T10:00:00Z",
    "fingerprint": "c0ffee",
}


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_an_incident_and_an_alert_suggest_a_retraining_and_say_why(tmp_path: Path) -> None:
    with Service(write_project(tmp_path, config=CONFIG + TRIGGERS)) as service:
        service.post([{"id": "calm", "inputs": {"x": 0.1}}])
        service.wait_judged(1)
        wait_until(lambda: len(last(service)) == 2, "both triggers evaluated", service, PATIENCE_S)
        assert {one["outcome"] for one in last(service).values()} == {"quiet"}
        assert "no alert fires" in outrider(tmp_path, "triggers", "toy").stdout

        service.post([{"id": "high", "inputs": {"x": 0.95}}])
        body = {"version": "4", "alerts": [ALERT, ALERT | {"labels": {"model": "toy"}}]}
        taken = service.client.post("/v1/alerts", json=body)
        assert (taken.status_code, taken.json()["accepted"]) == (202, 1)
        wait_until(lambda: len(suggested(service)) == 2, "both suggest", service, PATIENCE_S)
        assert {one["trigger"] for one in suggested(service)} == {"incidents", "alerts"}

        told = outrider(tmp_path, "triggers", "toy").stdout
        assert re.search(
            r"suggested since .*Z: incident inc_\w+ of too_high \(critical\) is open; `outrider", told
        )
        assert "alerts suggested: alert Drift fires" in told
        assert "A retraining is suggested: alert Drift fires" in service.client.get("/m/toy").text
        assert service.client.get("/v1/retrains").json()["retrains"] == []
        counted = r'outrider_trigger_evaluations_total{.*outcome="suggested".*trigger="alerts"} 1.0'
        wait_until(
            lambda: re.search(counted, service.client.get("/metrics").text) is not None,
            "the metric", service, PATIENCE_S,
        )  # fmt: skip
        assert service.stop() == 0


def last(service: Service) -> dict[str, Any]:
    """Newest evaluation of the triggers that were evaluated, but that of labels."""
    found = service.client.get("/v1/models/toy/triggers").json()["triggers"]
    return {one["trigger"]: one["last"] for one in found[1:] if one["last"]}


def suggested(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.client.get("/v1/models/toy/triggers").json()["suggestions"]
    return found
