"""The client's one daemon thread: entries of the ring become JSON lines, and those become HTTP requests."""

import json
import logging
import marshal
import math
import os
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger("outrider.monitor.client")

_PAUSE_S = 0.05
_BLOCK_ENTRIES = 512
_BLOCK_BYTES = 1_000_000
_TIMEOUT_S = 10.0
_LONGEST_PAUSE_S = 5.0
_QUIET_S = 60.0
"""Refused records are logged this often at most: the service's log is not ours to fill."""
_LATER = frozenset({401, 403, 404, 408, 425, 429, 500, 502, 503, 504, 507})
"""Statuses after which the same block may succeed: the key is rotated, the disk freed, the server started."""


class Source(Protocol):
    """Where entries come from, and who is told what became of them."""

    def take(self, most: int, max_bytes: int) -> list[bytes]:
        """Entries, oldest first."""

    def settle(self, *, acknowledged: int = 0, error: int = 0) -> None:
        """Entries that are done."""


class Sender:
    """Sends until stopped; keeps a block until it is answered, and backs off while the server is away."""

    def __init__(self, source: Source, *, url: str, key: Callable[[], str], model: str) -> None:
        self._source = source
        self._url = url
        self._key = key
        self._model = model
        self._wake = threading.Event()
        self._stopping = False
        self._connection: Any = None
        self._failures = 0
        self._quiet_until = 0.0
        self._thread = threading.Thread(target=self._run, name="outrider-client", daemon=True)

    @property
    def is_backing_off(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look for entries now rather than in a moment."""
        self._wake.set()

    def stop(self, timeout: float = 0.2) -> None:
        """End the thread soon, waiting a moment for it; what it has in hand stays counted as queued."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping:
            taken = self._source.take(_BLOCK_ENTRIES, _BLOCK_BYTES)
            if not taken:
                self._wake.wait(_PAUSE_S)
                self._wake.clear()
                continue
            for route in ("records", "labels"):
                lines = self._lines(taken, route)
                if lines:
                    self._deliver(route, lines)
            del taken
        self._disconnect()

    def _lines(self, taken: list[bytes], route: str) -> list[bytes]:
        """JSON lines of one route; entries that cannot be encoded are settled as errors."""
        lines = []
        for entry in taken:
            fields = marshal.loads(entry)
            if (fields[0] == "labels") != (route == "labels"):
                continue
            try:
                lines.append(json.dumps(_record(self._model, fields), separators=(",", ":")).encode())
            except (ValueError, TypeError, RecursionError):
                self._source.settle(error=1)
            time.sleep(0)  # lets a waiting request thread have the interpreter between two records
        return lines

    def _deliver(self, route: str, lines: list[bytes]) -> None:
        """Repeat until these lines are answered for good, or the client stops."""
        while not self._stopping:
            status, answer = self._post(f"/v1/{route}", b"\n".join(lines))
            if status == 202 or status == 422:
                rejected = int(answer.get("rejected_count", len(answer.get("rejected", ()))))
                self._report(answer)
                self._settle(acknowledged=len(lines) - rejected, error=rejected)
                return
            if status == 413 and len(lines) > 1:
                middle = len(lines) // 2
                self._deliver(route, lines[:middle])
                self._deliver(route, lines[middle:])
                return
            if status and status not in _LATER:
                self._report({"rejected": [{"field": "the body", "reason": answer.get("detail")}]})
                self._settle(error=len(lines))
                return
            self._back_off(answer)

    def _settle(self, *, acknowledged: int = 0, error: int = 0) -> None:
        self._failures = 0
        self._source.settle(acknowledged=acknowledged, error=error)

    def _report(self, answer: dict[str, Any]) -> None:
        rejected = answer.get("rejected", [])
        if rejected and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            field, reason = rejected[0].get("field"), rejected[0].get("reason")
            log.warning("outrider refused %d records; the first: %s: %s", len(rejected), field, reason)

    def _back_off(self, answer: dict[str, Any]) -> None:
        if self._failures == 0:
            log.warning("outrider does not take records: %s; they are kept and sent later", answer["detail"])
        self._failures += 1
        pause = min(0.1 * 2 ** min(self._failures, 10), _LONGEST_PAUSE_S)
        end = time.monotonic() + pause * random.uniform(0.5, 1.0)
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _post(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer; status 0 when there was none."""
        import http.client  # here, because it costs importers of the client 30 ms
        from urllib.parse import urlsplit

        parts = urlsplit(self._url)
        try:
            if self._connection is None:
                secure = parts.scheme == "https"
                kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
                self._connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=_TIMEOUT_S)
            headers = {
                "Authorization": f"Bearer {self._key()}",
                "Content-Type": "application/x-ndjson",
            }
            self._connection.request("POST", parts.path.rstrip("/") + path, body, headers)
            response = self._connection.getresponse()
            answer = response.read()
            if response.will_close:
                self._disconnect()
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            return 0, {"detail": f"{self._url}: {type(error).__name__}: {error}"}
        try:
            members = json.loads(answer)
        except ValueError:
            members = None
        if not isinstance(members, dict):
            members = {"detail": f"status {response.status}"}
        members.setdefault("detail", f"status {response.status}")
        return response.status, members

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def find_key(given: str | None) -> str:
    """First of: given, ``OUTRIDER_KEY``, the file ``OUTRIDER_KEY_FILE``, ``outrider-data/key``, ``""``."""
    key = given or os.environ.get("OUTRIDER_KEY")
    if key:
        return key
    path = Path(os.environ.get("OUTRIDER_KEY_FILE") or "outrider-data/key")
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _record(model: str, fields: tuple[Any, ...]) -> dict[str, Any]:
    """JSON-able record of a ring entry."""
    if fields[0] == "labels":
        _, id_, ts, source, label = fields
        return {"model": model, "id": id_, "ts": _time(ts), "source": source, "label": _thawed(label)}
    if fields[0] == "bodies":
        _, id_, ts, version, weight, request, response = fields
        inputs, outputs, entity, attrs = json.loads(request), json.loads(response), None, None
    else:
        _, id_, ts, entity, version, weight, inputs, outputs, attrs = fields
    record = {"model": model, "id": id_, "ts": _time(ts), "inputs": _thawed(inputs)}
    optional = {"outputs": _thawed(outputs), "entity": entity, "version": version, "attrs": _thawed(attrs)}
    record |= {name: value for name, value in optional.items() if value is not None}
    if weight != 1.0:
        record["weight"] = weight
    return record


def _thawed(value: Any) -> Any:
    """Plain JSON values; numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _thawed(inner) for name, inner in value.items()}
    if isinstance(value, tuple) and len(value) == 4 and value[0] == "\0nd":
        _, code, shape, raw = value
        if 0 in shape:
            return []
        return _thawed(memoryview(raw).cast(code, shape).tolist())
    if isinstance(value, list | tuple):
        return [_thawed(inner) for inner in value]
    return value


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
