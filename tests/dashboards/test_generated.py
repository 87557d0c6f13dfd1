"""The generated files follow the catalogue, and Prometheus itself accepts and answers them."""

import itertools
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.dashboards.alerts import ALERTS
from outrider.dashboards.generate import GENERATED, dashboard, expressions, files, unknown_metrics
from outrider.monitor.metrics.catalogue import CATALOGUE
from outrider.monitor.metrics.channel import ProcessesCollector, new_metrics, pack, read_samples
from outrider.monitor.metrics.exposition import render
from outrider.monitor.metrics.registry import Metrics
from tests.prometheus import PROMETHEUS, RULES, impatient, query, run_prometheus, silent_panels
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


class Case(NamedTuple):
    """A fault and a day without it, as series of one sample a minute."""

    fault: dict[str, str]
    fires_at: str
    labels: dict[str, str]
    quiet: dict[str, str]
    """The same metrics where nothing is wrong, over the whole time."""


CASES = {
    "OutriderAbsent": Case({"up": "1x60"}, "5m", {}, {'outrider_build_info{version="1"}': "1x60"}),
    "OutriderProcessDown": Case(
        {'outrider_process_up{process="worker"}': "1x5 0x20"},
        "10m",
        {"process": "worker"},
        {'outrider_process_up{process="worker"}': "1x60"},
    ),
    "OutriderBacklogOld": Case(
        {'outrider_lag_seconds{model="m",role="champion"}': "0+30x30"},
        "10m",
        {"model": "m", "role": "champion"},
        {
            'outrider_lag_seconds{model="m",role="champion"}': "0+30x60",  # a person has paused it
            'outrider_paused{model="m",what="shadow"}': "1x60",
            'outrider_lag_seconds{model="n",role="champion"}': "50x60",
            'outrider_lag_seconds{model="n",role="challenger"}': "0+30x60",
        },
    ),
    "OutriderConfigRefused": Case(
        {"outrider_config_refused": "0x3 1x20"}, "10m", {}, {"outrider_config_refused": "0x60"}
    ),
    "OutriderPaused": Case(
        {'outrider_paused{model="m",what="shadow"}': "0x3 1x300"},
        "250m",
        {"model": "m", "what": "shadow"},
        {'outrider_paused{model="m",what="shadow"}': "1x200 0x100"},
    ),
    "OutriderFreshnessBurn": Case(
        {
            'outrider_slo_records_total{model="m",outcome="in_time"}': "0+100x90",
            'outrider_slo_records_total{model="m",outcome="over"}': "0x30 0+100x60",
        },
        "80m",
        {"model": "m"},
        {
            'outrider_slo_records_total{model="m",outcome="in_time"}': "0+100x90",
            'outrider_slo_records_total{model="m",outcome="over"}': "0x30 0+100x5 500x55",  # five bad minutes
            'outrider_slo_records_total{model="n",outcome="in_time"}': "0x90",  # nothing to judge
            'outrider_slo_records_total{model="n",outcome="over"}': "0x90",
        },
    ),
    "OutriderJournalFullSoon": Case(
        {"outrider_journal_bytes": "0+1000x120", "outrider_journal_limit_bytes": "200000x120"},
        "80m",
        {},
        {
            "outrider_journal_bytes": "0+1000x120",
            "outrider_journal_limit_bytes": "2000000x120",
            "outrider_disk_free_bytes": "2000000-1000x120",
        },
    ),
    "OutriderAlarm": Case(
        {'outrider_alarm{model="m",kind="flags",level="warning",assertion="a"}': "_x5 1x20"},
        "9m",
        {"model": "m", "kind": "flags", "assertion": "a"},
        {
            'outrider_alarm{model="m",kind="drift",level="warning",assertion="a"}': "1x60",
            'outrider_alarm{model="m",kind="live_test",level="warning",assertion="a"}': "1x60",
            'outrider_alarm{model="m",kind="performance",level="info",assertion="loss"}': "1x60",
            'outrider_alarm{model="m",kind="flags",level="critical",assertion="a"}': "1x60",
        },
    ),
    "OutriderIncidentOpen": Case(
        {'outrider_incidents_open{model="m",level="critical"}': "0x3 1x10"},
        "9m",
        {"model": "m", "level": "critical"},
        {
            'outrider_incidents_open{model="m",level="critical"}': "0x60",
            'outrider_incidents_open{model="m",level="warning"}': "1x60",
        },
    ),
    "OutriderVersionMismatch": Case(
        {'outrider_version_mismatch_ratio{model="m"}': "0x3 0.3x20"},
        "16m",
        {"model": "m"},
        {'outrider_version_mismatch_ratio{model="m"}': "0x10 1x8 0x10 0.005x60"},
    ),
    "OutriderLiveTestFails": Case(
        {'outrider_live_test_alarm{model="m",test="t"}': "0x3 1x10"},
        "8m",
        {"model": "m", "test": "t"},
        {'outrider_live_test_alarm{model="m",test="t"}': "0x60"},
    ),
    "OutriderLiveEndpointDown": Case(
        {'outrider_live_endpoint_up{model="m"}': "1x3 0x20"},
        "20m",
        {"model": "m"},
        {'outrider_live_endpoint_up{model="m"}': "1x30 0 1x30"},
    ),
    "OutriderShadowLeftOut": Case(
        {'outrider_shadows_left_out{model="m",role="challenger"}': "0x3 1x10"},
        "8m",
        {"model": "m", "role": "challenger"},
        {'outrider_shadows_left_out{model="m",role="challenger"}': "0x60"},
    ),
    "OutriderAnswersOwed": Case(
        {'outrider_owed_records{model="m",role="champion"}': "0x3 20x30"},
        "30m",
        {"model": "m", "role": "champion"},
        {'outrider_owed_records{model="m",role="champion"}': "20x10 0 20x10"},
    ),
    "OutriderAssertionSuspended": Case(
        {'outrider_assertion_suspended{model="m",assertion="a"}': "0x3 1x10"},
        "8m",
        {"model": "m", "assertion": "a"},
        {'outrider_assertion_suspended{model="m",assertion="a"}': "0x60"},
    ),
    "OutriderRetrainFailed": Case(
        {'outrider_retrains_total{model="m",status="failed"}': "0x10 1x20"},
        "15m",
        {"model": "m", "status": "failed"},
        {
            'outrider_retrains_total{model="m",status="failed"}': "1x60",  # long ago
            'outrider_retrains_total{model="m",status="done"}': "0x10 1x50",
        },
    ),
    "OutriderWebhookFailing": Case(
        {
            'outrider_webhook_deliveries_total{instance="i",outcome="retry"}': "0+1x30",
            'outrider_webhook_deliveries_total{instance="i",outcome="delivered"}': "5x30",
        },
        "25m",
        {"instance": "i"},
        {
            'outrider_webhook_deliveries_total{instance="i",outcome="retry"}': "0+1x60",
            'outrider_webhook_deliveries_total{instance="i",outcome="delivered"}': "0+1x60",
        },
    ),
    "OutriderRecordsRefused": Case(
        {
            'outrider_records_rejected_total{instance="i",reason="schema"}': "0+10x60",
            'outrider_records_accepted_total{instance="i",model="m"}': "0+100x60",
        },
        "25m",
        {"instance": "i"},
        {
            'outrider_records_rejected_total{instance="i",reason="schema"}': "0+4x60",
            'outrider_records_accepted_total{instance="i",model="m"}': "0+100x60",
            'outrider_records_rejected_total{instance="few",reason="schema"}': "0+0.5x60",
            'outrider_records_accepted_total{instance="few",model="m"}': "0x60",
        },
    ),
}


def test_every_rule_has_a_fault_and_a_quiet_day() -> None:
    assert set(CASES) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_its_fault_is_real_and_at_no_other_time(name: str, tmp_path: Path) -> None:
    promtool = require_program("promtool", PROMETHEUS)
    case = CASES[name]
    alert = next(alert for alert in ALERTS if alert.name == name)
    found = {"exp_labels": {"severity": alert.severity, **case.labels}}
    early = {"eval_time": "1m", "alertname": name, "exp_alerts": []}
    fault = [early, {"eval_time": case.fires_at, "alertname": name, "exp_alerts": [found]}]
    quiet = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for minute in range(0, length(case.quiet), 5)
    ]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "alert_rule_test": wanted,
        }
        for series, wanted in ((case.fault, fault), (case.quiet, quiet))
    ]
    plan = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    texts = ("annotations:", "summary:", "description:")  # they hold values; labels are what is tested
    lines = (GENERATED / "outrider-alerts.yml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.strip().startswith(texts)]
    (tmp_path / "rules.yml").write_text("\n".join(kept), encoding="utf-8")
    (tmp_path / "test.yml").write_text(json.dumps(plan), encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def length(series: dict[str, str]) -> int:
    """Minutes of the longest of these series."""
    return max(sum(1 + int(part.partition("x")[2] or 0) for part in one.split()) for one in series.values())


def test_rules_for_a_short_run_differ_in_times_alone() -> None:
    short = impatient()
    assert re.findall(r"for: (\w+)", short) == ["0s"] * len(ALERTS)
    assert set(re.findall(r"\[(\w+)\]", short)) == {"5s", "10s", "15s", "60s"}
    times = r"for: \w+|\[\w+\]|offset \w+|, \d+\)"
    assert re.sub(times, "", short) == re.sub(times, "", RULES)


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
        "slice": "a",
        "dimension": "slice",
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
