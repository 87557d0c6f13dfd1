"""A real Prometheus for tests: scrapes one target each second and answers queries."""

import json
import os
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.dashboards.generate import GENERATED
from outrider.dashboards.panels import ROWS

from .requirements import require_program
from .soak import PATIENCE_S

PROMETHEUS = "apt-get install -y prometheus"


RULES = (GENERATED / "outrider-alerts.yml").read_text(encoding="utf-8")
SECONDS = {"s": 1, "m": 60, "h": 3600}
HORIZON_S = 14400
"""How far ahead the rules look with ``predict_linear``."""


def impatient(rules: str = RULES) -> str:
    """The rules for a run of a minute: a minute is a second, and nothing has to hold.

    Windows, offsets and the horizon of ``predict_linear`` shrink together, so that what they compare stays
    what it is, and are full before the run ends. Thresholds stay: they are about values. Without ``for``
    every sample on which an expression holds is an alert, also one that would only have been pending.
    """
    rules = re.sub(r"(?<=\[)(\d+)([smh])(?=\])|(?<=offset )(\d+)([smh])", _shrunk, rules)
    rules = re.sub(rf"\b{HORIZON_S}\b", str(HORIZON_S // 60), rules)
    return re.sub(r"(?m)^( *for:) .*$", r"\1 0s", rules)


def _shrunk(found: re.Match[str]) -> str:
    number, unit = found[1] or found[3], found[2] or found[4]
    return f"{max(1, int(number) * SECONDS[unit] // 60)}s"


@contextmanager
def run_prometheus(
    folder: Path, target: str, *, key: str | None = None, scrapes: int = 5, rules: str = RULES
) -> Iterator[str]:
    """URL of a Prometheus that has scraped ``target`` (host:port) ``scrapes`` times, with our alert rules."""
    program = require_program("prometheus", PROMETHEUS)
    (folder / "outrider-alerts.yml").write_text(rules, encoding="utf-8")
    job: dict[str, Any] = {"job_name": "outrider", "static_configs": [{"targets": [target]}]}
    if key is not None:
        job["authorization"] = {"type": "Bearer", "credentials": key}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["outrider-alerts.yml"],
        "scrape_configs": [job],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not query(url, f"count_over_time(outrider_build_info[5m]) >= {scrapes}"):
            assert time.monotonic() < deadline, f"Prometheus did not scrape {target} {scrapes} times"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def query(url: str, expr: str) -> list[dict[str, Any]]:
    """Result of an instant query; empty while Prometheus starts."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
    except (OSError, ValueError):
        return []


def alerts_so_far(url: str) -> set[tuple[str, str]]:
    """Name and state of every alert that there has been, from a few seconds after the first scrape on.

    Before it Prometheus is right that there is nothing, and says so.
    """
    known = "ALERTS and on () count(outrider_build_info offset 5s)"
    found = query(url, f"count by (alertname, alertstate) (count_over_time(({known})[1h:1s]))")
    return {(row["metric"]["alertname"], row["metric"]["alertstate"]) for row in found}


def are_all_up(target: str) -> bool:
    """Whether every process of the service at ``target`` (host:port) reports."""
    try:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return False
    up = [line.endswith(" 1.0") for line in lines if line.startswith("outrider_process_up{")]
    return len(up) > 1 and all(up)


def silent_panels(url: str, *, window: str = "10s") -> list[str]:
    """Panel queries of the dashboard that return nothing, or only NaN."""
    silent = []
    for title, row in ROWS.items():
        for panel in row:
            for expr, _ in panel.queries:
                plain = expr.replace("$__rate_interval", window).replace("$model", ".*")
                result = query(url, plain)
                if not result or all(sample["value"][1] == "NaN" for sample in result):
                    silent.append(f"{title} / {panel.title}: {plain}")
    return silent
