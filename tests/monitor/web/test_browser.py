"""A real browser runs the page under its own policy: charts are drawn, fragments come, nothing is refused."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from tests.monitor.services import every_app
from tests.requirements import require_program
from tests.soak import PATIENCE_S

from .sample import MODEL, Sample


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The page behind a real server."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="module")
def url(app: FastAPI) -> Iterator[str]:
    with served(app) as address:
        yield address


def look(url: str, profile: Path) -> tuple[str, str]:
    """The document after its scripts ran for some seconds, and what the console said."""
    chromium = require_program("chromium", "apt-get install -y chromium")
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync --dump-dom "
        "--disable-background-networking --disable-component-update --enable-logging=stderr "
        "--virtual-time-budget=5000"
    )
    done = subprocess.run(
        [chromium, *options.split(), f"--user-data-dir={profile}", url],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_charts_are_drawn_and_stay_while_the_page_refreshes(url: str, tmp_path: Path) -> None:
    document, console = look(f"{url}/m/{MODEL}", tmp_path)
    assert document.count('<figure class="trend">') > 3
    assert document.count("<polyline") > 3
    assert document.count('id="live"') == 1
    assert console == ""


def test_flagged_records_show_their_pictures(url: str, tmp_path: Path) -> None:
    document, console = look(f"{url}/m/{MODEL}/flags", tmp_path)
    assert document.count('<li class="flag') > 20
    assert console == ""


def test_the_api_is_shown_from_vendored_files_under_the_policy(sample: Sample, tmp_path: Path) -> None:
    with served(every_app(sample.engine, sample.journal, models=(MODEL,))) as address:
        document, console = look(f"{address}/docs", tmp_path)
    assert console == ""
    assert "/v1/overview" in document
    assert "operations-read-flags_v1_flags_get" in document
    assert not re.search(r"""(src|href)=["'](https?:)?//""", document)
