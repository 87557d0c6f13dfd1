"""Logging set-up of all processes, as text or JSON lines.

And lines about records, at a bounded rate.

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
    """Formatter of JSON objects by line, ``extra`` beside the message.

    Parameters
    ----------
    process
        Role of the process, such as ``intake``.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "refused", "levelname": "WARNING", "record_id": "a1"})
    >>> line = json.loads(JsonLines("intake").format(record))
    >>> line["level"], line["process"], line["message"], line["record_id"]
    ('warning', 'intake', 'refused', 'a1')
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record of the log."""
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
    r"""Formatter of text lines; continuation lines are indented.

    What a sender made up is in some messages: it can neither look like a line nor steer a terminal.

    Examples
    --------
    >>> forged = "r1\n2026-01-01 00:00:00 intake INFO all is well\x1b[2J"
    >>> record = logging.makeLogRecord({"msg": "refused: %s", "args": (forged,), "levelname": "WARNING"})
    >>> print(TextLines("%(levelname)s %(message)s").format(record))
    WARNING refused: r1
        2026-01-01 00:00:00 intake INFO all is well\x1b[2J
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Line of a record, without its traceback."""
        lines = record.message.split("\n")
        record.message = "\n    ".join(map(_escaped, lines))
        return super().formatMessage(record)


def _escaped(text: str) -> str:
    """Text whose control characters are spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def set_up(process: str, form: Format = "text") -> None:
    """Send this process's log to standard error; repeatable in another form.

    In JSON, uncaught exceptions and warnings are lines too, so that every line of the stream is JSON.
    """
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

    Parameters
    ----------
    log
        Where to.
    lines, per_s
        At most so many lines per event, model and reason in so many seconds; the next one says how many
        were left out. Metrics count all of them.
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
        """Begin of the interval, lines in it, and how many were left out."""

    def note(
        self, event: str, *, model: str, record_id: str | None, reason: str, field: str = "", count: int = 1
    ) -> None:
        """Log one record, or the first of several alike.

        Unless too many were logged just now.
        """
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
        """Number of records left out before; None to leave these out, too."""
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
