"""A real Prometheus scrapes the running service: every panel has something to show, no rule fires idly.

What the rules say of the demo stands in `test_demo`.
"""

import time
from pathlib import Path

import pytest

from tests.prometheus import alerts_so_far, are_all_up, impatient, query, run_prometheus, silent_panels
from tests.soak import PATIENCE_S

from .loop import Loop, flowing
from .service import Service, wait_until, write_project

BRIEF = "Improvement loop / Agreement with the champion:"
"""Empty here: the gate has judged the challenger before a shadow test knows anything of it."""
OBJECTIVE = "Shadow / From capture to verdict: max by (model) (outrider_slo_seconds"
"""Empty here: this model has no objective, and a gauge that nobody sets does not exist."""
UNCOUNTED = (
    "Flags / Flags by slice:",
    "Flags / Flags thinned:",
    "Flags / Values without a name:",
    "Flags / Weak labels and late records: sum by (assertion) (rate(outrider_weak_labels_total",
)
"""Empty here: no slice is named, all values have a name, no storm was thinned, and no correction proposed."""


def test_every_panel_shows_data_while_a_challenger_runs_beside_the_champion(
    loop: Loop, tmp_path: Path
) -> None:
    service = loop.service
    target = f"127.0.0.1:{service.client.base_url.port}"
    with flowing(loop.traffic, labels=True), run_prometheus(tmp_path, target, scrapes=2) as url:
        answer = service.client.post("/v1/retrains", json={"model": "sign", "epochs": 2})
        assert answer.status_code == 202, answer.text
        deadline = time.monotonic() + PATIENCE_S
        silent = {
            panel for panel in silent_panels(url) if not panel.startswith((BRIEF, OBJECTIVE, *UNCOUNTED))
        }
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


IDLE_SCRAPES = 30
"""More than the longest windows that an idle service can fill: 10 s, and 10 s before them."""


@pytest.mark.costly("Prometheus scrapes until its longest windows are full")
def test_no_rule_says_anything_of_a_fresh_idle_service(tmp_path: Path) -> None:
    with Service(write_project(tmp_path)) as service:
        target = f"127.0.0.1:{service.client.base_url.port}"
        wait_until(lambda: are_all_up(target), "report of every process", service)
        with run_prometheus(tmp_path, target, scrapes=IDLE_SCRAPES, rules=impatient()) as url:
            assert alerts_so_far(url) == set()
            # Who does not know a figure says nothing: no 0 of another process stands beside it.
            assert query(url, "count by (__name__) ({__name__=~'outrider_live_endpoint_up'})") == []
            (lag,) = query(url, 'outrider_lag_seconds{role="champion"}')
            assert lag["metric"]["process"] == "worker"
