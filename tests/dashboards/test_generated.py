"""The generated files follow the catalogue, and Prometheus itself accepts and answers them."""

import itertools
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from outrider.dashboards.alerts import ALERTS
from outrider.dashboards.generate import GENERATED, dashboard, expressions, files, unknown_metrics
from outrider.monitor.metrics.catalogue import CATALOGUE
from outrider.monitor.metrics.channel import ProcessesCollector, new_metrics, pack, read_samples
from outrider.monitor.metrics.exposition import render
from outrider.monitor.metrics.registry import Metrics
from tests.prometheus import PROMETHEUS, query, run_prometheus, silent_panels
from tests.requirements import require_program


def test_generated_files_are_not_stale() -> None:
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"run python -m outrider.dashboards.generate: {path}"


def test_no_panel_or_alert_names_an_unknown_metric() -> None:
    assert unknown_metrics() == []


def test_every_metric_is_shown_somewhere() -> None:
    shown = " ".join(expr for _, expr in expressions())
    assert [spec.name for spec in CATALOGUE if spec.name not in shown] == []


def test_the_dashboard_is_one_grafana_can_load() -> None:
    model = dashboard()
    numbers = [panel["id"] for panel in model["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert {variable["name"] for variable in model["templating"]["list"]} == {"datasource", "model"}
    taken: set[tuple[int, int]] = set()
    for panel in model["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert len({target["refId"] for target in panel.get("targets", [])}) == len(panel.get("targets", []))


def test_promtool_accepts_the_rules() -> None:
    promtool = require_program("promtool", PROMETHEUS)
    done = subprocess.run(
        [promtool, "check", "rules", str(GENERATED / "outrider-alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


CASES: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "OutriderProcessDown": (
        {'outrider_process_up{process="worker"}': "1x5 0x20"},
        "10m",
        {"process": "worker"},
    ),
    "OutriderBacklogOld": (
        {'outrider_lag_seconds{model="m",role="champion"}': "0+30x30"},
        "10m",
        {"model": "m", "role": "champion"},
    ),
    "OutriderAssertionSuspended": (
        {'outrider_assertion_suspended{model="m",assertion="a"}': "0x3 1x10"},
        "8m",
        {"model": "m", "assertion": "a"},
    ),
    "OutriderShadowLeftOut": (
        {'outrider_shadows_left_out{model="m",role="challenger"}': "0x3 1x10"},
        "8m",
        {"model": "m", "role": "challenger"},
    ),
    "OutriderIncidentOpen": (
        {'outrider_incidents_open{model="m",level="critical"}': "0x3 1x10"},
        "9m",
        {"model": "m", "level": "critical"},
    ),
    "OutriderJournalFullSoon": (
        {"outrider_journal_bytes": "0+1000x120", "outrider_journal_limit_bytes": "200000x120"},
        "80m",
        {},
    ),
    "OutriderFlagRateJump": (
        {
            'outrider_flags_total{model="m",role="champion",assertion="a"}': "0+1x400 400+300x30",
            'outrider_records_judged_total{model="m",role="champion"}': "0+1000x430",
        },
        "425m",
        {"model": "m", "assertion": "a"},
    ),
    "OutriderRetrainFailed": (
        {'outrider_retrains_total{model="m",status="failed"}': "0x10 1x20"},
        "15m",
        {"model": "m", "status": "failed"},
    ),
    "OutriderWebhookFailing": (
        {
            'outrider_webhook_deliveries_total{instance="i",outcome="retry"}': "0+1x30",
            'outrider_webhook_deliveries_total{instance="i",outcome="delivered"}': "5x30",
        },
        "25m",
        {"instance": "i"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_before(name: str, tmp_path: Path) -> None:
    promtool = require_program("promtool", PROMETHEUS)
    series, fires_at, labels = CASES[name]
    alert = next(alert for alert in ALERTS if alert.name == name)
    found = {"exp_labels": {"severity": alert.severity, **labels}}
    plan = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": "2m", "alertname": name, "exp_alerts": []},
                    {"eval_time": fires_at, "alertname": name, "exp_alerts": [found]},
                ],
            }
        ],
    }
    texts = ("annotations:", "summary:", "description:")  # they hold values; labels are what is tested
    lines = (GENERATED / "outrider-alerts.yml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.strip().startswith(texts)]
    (tmp_path / "rules.yml").write_text("\n".join(kept), encoding="utf-8")
    (tmp_path / "test.yml").write_text(json.dumps(plan), encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Exposition(BaseHTTPRequestHandler):
    """Serves a collector whose counters advance with every scrape."""

    collector: ProcessesCollector
    metrics: Metrics
    rounds = 0

    def do_GET(self) -> None:
        type(self).rounds += 1
        move(self.metrics)
        for datagram in pack("worker", "1", self.rounds, read_samples(self.metrics.registry)):
            self.collector.receive(datagram)
        body, kind = render(self.collector, self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Be quiet."""


def move(metrics: Metrics) -> None:
    """Advance every metric once, with every enum value, as a busy service would."""
    known = {
        "model": "digits",
        "assertion": "a",
        "test": "t",
        "version": "1",
        "python": "3",
        "metric": "x",
        "judge": "j",
    }
    metrics.declare(known)
    for spec in CATALOGUE:
        if spec.name in ("outrider_process_up", "outrider_cpu_seconds_total"):
            continue  # set by the channel
        opened = {label: known[label] for label in spec.open_labels}
        values = [
            opened | dict(zip(spec.enums, chosen, strict=True))
            for chosen in itertools.product(*spec.enums.values())
        ]
        for labels in values:
            if spec.kind == "counter":
                metrics.counter(spec.name).labels(**labels).inc(3)
            elif spec.kind == "gauge":
                metrics.gauge(spec.name).labels(**labels).set(1)
            else:
                metrics.histogram(spec.name).labels(**labels).observe(0.01)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus that scrapes a small real exposition each second."""
    Exposition.metrics = new_metrics(models=["digits"])
    Exposition.collector = ProcessesCollector(new_metrics(models=["digits"]), expected=["worker", "trainer"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exposition)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tmp_path_factory.mktemp("prometheus")
    try:
        with run_prometheus(folder, f"127.0.0.1:{server.server_address[1]}", scrapes=5) as url:
            yield url
    finally:
        server.shutdown()
        server.server_close()


def test_every_panel_query_returns_data(prometheus: str) -> None:
    assert silent_panels(prometheus) == []


def test_prometheus_sees_each_process(prometheus: str) -> None:
    up = {row["metric"]["process"]: row["value"][1] for row in query(prometheus, "outrider_process_up")}
    assert up == {"intake": "1", "worker": "1", "trainer": "0"}


def test_a_gauge_of_one_process_is_not_hidden_by_the_zeros_of_the_others() -> None:
    asked = [query for _, query in expressions() if "outrider_engine_up" in query]
    assert asked
    assert all(query.startswith("max by") for query in asked)
