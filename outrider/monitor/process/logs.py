"""Logging of all processes, as text or JSON lines, and rate-limited lines about records.

Standard library only: the supervisor logs too.
"""

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

Format = Literal["text", "json"]
LINES = 10
PER_S = 10.0
_MOST_KINDS = 256
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formatter of JSON objects by line, with ``extra`` fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=False)
        return text if text.isprintable() else json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Formatter of text lines with indented continuations and escaped control characters: a message
    may hold a sender's text, which must not forge a line or steer a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        lines = record.message.split("\n")
        record.message = "\n    ".join(map(_escaped, lines))
        return super().formatMessage(record)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def set_up(process: str, form: Format = "text") -> None:
    """Send this process's log to standard error; in JSON, uncaught exceptions and warnings too."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines(process))
    else:
        handler.setFormatter(TextLines(f"%(asctime)s {process} %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each request
    logging.captureWarnings(form == "json")
    sys.excepthook = _log_uncaught if form == "json" else sys.__excepthook__
    if form == "json":
        threading.excepthook = _log_thread
    else:
        threading.excepthook = threading.__excepthook__


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    text = "".join(traceback.format_exception_only(error)).strip()
    logging.getLogger("outrider").critical("the process ends: %s", text, exc_info=(kind, error, trace))


def _log_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None:
        _log_uncaught(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)


class RecordLog:
    """Log of single records, by model and record id, without content.

    At most ``lines`` per event, model and reason in ``per_s`` seconds; the next line says how many were
    left out.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        lines: int = LINES,
        per_s: float = PER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._lines = lines
        self._per_s = per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str, str], list[float]] = {}

    def note(
        self, event: str, *, model: str, record_id: str | None, reason: str, field: str = "", count: int = 1
    ) -> None:
        """Log one record, or the first of ``count`` similar ones."""
        # Any number of names may be unknown: they are of one kind.
        kind = (event, "" if reason == "unknown_model" else model, reason)
        left_out = self._left_out(kind, count)
        if left_out is None:
            return
        more = f", as are {count - 1} more of its request" if count > 1 else ""
        more += f" ({left_out} more like it were not logged)" if left_out else ""
        where = f" at {field}" if field else ""
        extra: dict[str, object] = {"event": event, "model": model, "record_id": record_id, "reason": reason}
        if field:
            extra["field"] = field
        if count > 1:
            extra["count"] = count
        if left_out:
            extra["left_out"] = left_out
        self._log.warning(
            "%s: record %r of model %r: %s%s%s", event, record_id, model, reason, where, more, extra=extra
        )

    def dead_letters(self, letters: Iterable[tuple[str, str, str]]) -> None:
        """Log dead letters that a commit wrote, as (model, record id, reason)."""
        for model, record_id, reason in letters:
            self.note("dead letter", model=model, record_id=record_id, reason=reason)

    def _left_out(self, key: tuple[str, str, str], count: int) -> int | None:
        """Number of records left out before; None to leave these out too."""
        now = self._clock()
        with self._lock:
            if key not in self._seen and len(self._seen) >= _MOST_KINDS:
                self._seen.clear()  # names of models may come from anybody
            state = self._seen.setdefault(key, [now, 0, 0])
            if now - state[0] >= self._per_s:
                state[0], state[1] = now, 0
            if state[1] >= self._lines:
                state[2] += count
                return None
            state[1] += 1
            left_out, state[2] = int(state[2]), 0
            return left_out
