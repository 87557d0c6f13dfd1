"""A real Prometheus scrapes the running service: every panel of the dashboard has something to show."""

import time
from pathlib import Path

import pytest

from tests.prometheus import query, run_prometheus, silent_panels

from .loop import Loop, flowing

BRIEF = "Improvement loop / Agreement with the champion:"
"""Empty here: the gate has judged the challenger before a shadow test knows anything of it."""
pytestmark = pytest.mark.xdist_group("heavy")


def test_every_panel_shows_data_while_a_challenger_runs_beside_the_champion(
    loop: Loop, tmp_path: Path
) -> None:
    service = loop.service
    target = f"127.0.0.1:{service.client.base_url.port}"
    with flowing(loop.traffic, labels=True), run_prometheus(tmp_path, target, scrapes=2) as url:
        answer = service.client.post("/v1/retrains", json={"model": "sign", "epochs": 2})
        assert answer.status_code == 202, answer.text
        deadline = time.monotonic() + 40
        silent = {panel for panel in silent_panels(url) if not panel.startswith(BRIEF)}
        while silent:  # a challenger's figures are there only while there is one
            assert time.monotonic() < deadline, "\n".join(silent)
            time.sleep(1)
            silent &= set(silent_panels(url))
        up = {row["metric"]["process"]: row["value"][1] for row in query(url, "outrider_process_up")}
        assert up == dict.fromkeys(("intake", "worker", "host", "trainer"), "1")
        judged = query(url, 'sum(outrider_records_judged_total{model="sign",role="champion"})')
        assert int(judged[0]["value"][1]) >= len(loop.traffic.truth) - 200
        assert query(url, 'max(outrider_retrains_total{model="sign",status="done"})')[0]["value"][1] == "1"
        assert query(url, 'ALERTS{alertstate="firing"}') == []
