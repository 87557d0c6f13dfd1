"""Reports of a running comparison, sent to the service."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from outrider.errors import OutriderError

from .api import JSON, Api, connect

if TYPE_CHECKING:
    from outrider.monitor.compare.report import CompareReport

EVERY_S, PART = 3.0, 0.05
"""Minimum pause between two reports: seconds, and share of the time so far."""


class LiveReport:
    """Sends the reports of a running comparison to the service. ``report`` is called in another thread."""

    def __init__(self, api: Api, report: "Callable[[], CompareReport]") -> None:
        self._api, self._report = api, report
        self._path = f"/v1/comparisons/{secrets.token_hex(8)}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="live report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; waits at most ``EVERY_S`` seconds for a report in progress."""
        self._ended.set()
        self._thread.join(EVERY_S)

    def send(self, report: "CompareReport") -> str:
        """Send a report and return the URL of its page."""
        kept = self._api.put_bytes(self._path, report.json().encode(), kind=JSON)
        return f"{self._api.url}{kept['page']}"

    def _go_on(self) -> None:
        is_printed, waited_s, pause_s = False, 0.0, EVERY_S
        while not self._ended.wait(pause_s):
            waited_s += pause_s
            pause_s = max(EVERY_S, PART * waited_s)
            # Errors are reported for the last report only; a report may be made during a change.
            with suppress(OutriderError, RuntimeError):
                page = self.send(self._report())
                if not is_printed:
                    typer.echo(f"live: {page}", err=True)
                is_printed = True


@contextmanager
def live_report(
    model: str | None, config: Path | None, report: "Callable[[], CompareReport]"
) -> Iterator[LiveReport | None]:
    """Sender of live reports; None without a running service as source."""
    if model is None:
        yield None
        return
    live = LiveReport(connect(config), report)
    live.start()
    try:
        yield live
    finally:
        live.stop()
