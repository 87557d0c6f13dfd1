"""A real Prometheus for tests: scrapes one target each second and answers queries."""

import json
import os
import shutil
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

PROMETHEUS = "apt-get install -y prometheus"


@contextmanager
def run_prometheus(folder: Path, target: str, *, key: str | None = None, scrapes: int = 5) -> Iterator[str]:
    """URL of a Prometheus that has scraped ``target`` (host:port) ``scrapes`` times, with our alert rules."""
    program = require_program("prometheus", PROMETHEUS)
    shutil.copy(GENERATED / "outrider-alerts.yml", folder)
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
        deadline = time.monotonic() + 60
        while not query(url, f"count_over_time(outrider_build_info[5m]) >= {scrapes}"):
            assert time.monotonic() < deadline, f"Prometheus did not scrape {target} {scrapes} times in 60 s"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def query(url: str, expr: str) -> list[dict[str, Any]]:
    """Result of an instant query; empty while Prometheus starts."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
    except (OSError, ValueError):
        return []


def silent_panels(url: str, *, window: str = "10s") -> list[str]:
    """Panel queries of the dashboard that return nothing, or only NaN."""
    silent = []
    for row in ROWS:
        for panel in row.panels:
            for expr, _ in panel.queries:
                plain = expr.replace("$__rate_interval", window).replace("$model", ".*")
                result = query(url, plain)
                if not result or all(sample["value"][1] == "NaN" for sample in result):
                    silent.append(f"{row.title} / {panel.title}: {plain}")
    return silent
