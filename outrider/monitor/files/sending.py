"""Delivery of file blocks to a service: paced, retried when it is busy, and never doubled."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from outrider.errors import ConfigError, ServerError

from .blocks import NO_TIME, NOT_DONE, FileBlock, Sent

LISTED = 100
_LATER = frozenset({0, 408, 425, 429, 500, 502, 503, 504, 507})
_REFUSED_KEY = frozenset({401, 403})


class Destination(Protocol):
    @property
    def url(self) -> str: ...

    def deliver(
        self, path: str, body: bytes, *, kind: str, query: Mapping[str, object]
    ) -> tuple[int, Mapping[str, Any], float]: ...


@dataclass(slots=True)
class FileReport:
    file: str
    rows: int = 0
    accepted: int = 0
    rejected: int = 0
    error: str | None = None


@dataclass(slots=True)
class Report:
    files: list[FileReport] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    """First refused rows: file, row (line of a text), field, reason."""
    notes: list[str] = field(default_factory=list)
    refused: dict[str, set[int]] = field(default_factory=dict)

    def blame(self, report: FileReport, row: int, field_: str, reason: str) -> None:
        report.rejected += 1
        self.again(report, [row])
        if len(self.problems) < LISTED:
            self.problems.append({"file": report.file, "row": row, "field": field_, "reason": reason})

    def again(self, report: FileReport, rows: Iterable[int]) -> None:
        self.refused.setdefault(report.file, set()).update(rows)


class ReplayPace:
    """Pace of rows: by their times at a multiple ``speed`` of real time, or at once."""

    def __init__(
        self,
        speed: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._origin: tuple[float, int] | None = None

    def next_rows(self, block: FileBlock, start: int) -> int:
        """Wait until row ``start`` is due; returns the end of due rows."""
        if self._speed is None:
            return len(block)
        times = block.times_us()[start:]
        known = times[times != NO_TIME]
        if self._origin is None:
            if not len(known):
                return len(block)
            self._origin = self._clock(), int(known[0])
        began, first_us = self._origin
        # A row without a time goes with the one before it.
        due = np.where(times == NO_TIME, first_us, times)
        due = began + (np.maximum.accumulate(due) - first_us) / 1e6 / self._speed
        wait = float(due[0]) - self._clock()
        if wait > 0:
            self._sleep(wait)
        return start + max(1, int(np.searchsorted(due, self._clock(), side="right")))


class DeliveryProgress:
    """Progress of each file, stored in ``path``, so that the same command continues."""

    def __init__(self, path: Path | None, target: str) -> None:
        self._path = path
        self._target = target
        self._files: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            try:
                known = json.loads(path.read_text(encoding="utf-8"))
                self._files = known["files"]
                before = known["target"]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise ConfigError(f"{path}: no progress of a replay can be read there: {error}") from None
            if before != target:
                raise ConfigError(f"{path} is the progress of another replay ({before}); name another file")

    def sent(self, file: Path) -> Sent:
        """Rows that need not be sent again; none when the file shrank. Refused rows are read again."""
        known = self._files.get(str(file.resolve()))
        if known is None or file.stat().st_size < known["bytes"]:
            return Sent()
        refused = (row for first, last in known["refused"] for row in range(first, last + 1))
        return Sent(known["rows"], frozenset(refused))

    def note(self, file: Path, rows: int, refused: Collection[int] = (), *, before: Sent = Sent()) -> None:  # noqa: B008
        """Record durably that rows up to ``rows`` were taken, except ``refused``."""
        if self._path is None:
            return
        left = {*refused, *(row for row in before.refused if row > rows)}
        known = {"rows": max(rows, before.done), "bytes": file.stat().st_size, "refused": _ranges(left)}
        self._files[str(file.resolve())] = known
        beside = self._path.with_name(f"{self._path.name}.part")
        with beside.open("w", encoding="utf-8") as out:
            json.dump({"target": self._target, "files": self._files}, out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(self._path)


class BlockSender:
    """Delivers blocks; ``patience_s`` limits the wait for a service that takes nothing."""

    def __init__(
        self,
        service: Destination,
        *,
        model: str | None,
        pace: ReplayPace,
        report: Report,
        restamp: bool = False,
        patience_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._service = service
        self._model = model
        self._pace = pace
        self._report = report
        self._restamp = restamp
        self._patience_s = patience_s
        self._sleep = sleep

    def send(self, block: FileBlock, of: FileReport) -> None:
        """Deliver a block as its rows become due; ServerError for a refused key or an unavailable service."""
        start = 0
        while start < len(block):
            stop = self._pace.next_rows(block, start)
            part = block.cut(start, stop)
            self._deliver(part.restamped() if self._restamp else part, of)
            start = stop

    def _deliver(self, block: FileBlock, of: FileReport) -> None:
        body, kind = block.body()
        status, answer = self._answer(f"/v1/{block.route}", body, kind)
        if status == 413 and len(block) > 1:
            middle = len(block) // 2
            self._deliver(block.cut(0, middle), of)
            self._deliver(block.cut(middle, len(block)), of)
            return
        of.rows += len(block)
        if status < 300 or "rejected" in answer:
            listed = answer.get("rejected", [])
            of.accepted += len(block) - max(len(listed), int(answer.get("rejected_count", 0)))
            for one in listed:
                place = block.places[one["index"]] if one["index"] < len(block) else 0
                self._report.blame(of, place, one.get("field") or "", str(one.get("reason")))
            if (unlisted := int(answer.get("rejected_count", 0)) - len(listed)) > 0:
                of.rejected += unlisted
                self._report.again(of, block.places)
            return
        for place in block.places:
            self._report.blame(of, place, "", f"{status}: {answer.get('detail')}")

    def _answer(self, path: str, body: bytes, kind: str) -> tuple[int, Mapping[str, Any]]:
        """Final answer: what may succeed later is retried."""
        waited, pause = 0.0, 0.2
        while True:
            status, answer, after = self._service.deliver(
                path, body, kind=kind, query={"model": self._model, "clock": "own"}
            )
            if status in _REFUSED_KEY:
                raise ServerError(f"{self._service.url} refused the key: {answer.get('detail')}")
            if status not in _LATER:
                return status, answer
            if waited >= self._patience_s:
                raise ServerError(f"nothing was taken for {waited:.0f} s: {status} {answer.get('detail')}")
            pause = min(max(after, pause * 1.5), 5.0)
            self._sleep(pause)
            waited += pause


def _ranges(rows: Collection[int]) -> list[list[int]]:
    """First and last of each run of rows.

    Examples
    --------
    >>> _ranges({7, 3, 4, 5})
    [[3, 5], [7, 7]]
    """
    found: list[list[int]] = []
    for row in sorted(rows):
        if found and found[-1][1] == row - 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return found


def is_done(block: FileBlock) -> bool:
    return block.done != NOT_DONE
