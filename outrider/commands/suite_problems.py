"""Traceback of a test that raised, reduced to user code."""

import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import outrider
from outrider.behavioral_tests import running

_PATHS = sysconfig.get_paths()
_NOT_THEIRS = (
    str(Path(outrider.__file__).parent),
    *(str(Path(_PATHS[name]).resolve()) for name in ("stdlib", "purelib", "platlib")),
)


@contextmanager
def brief_tracebacks() -> Iterator[None]:
    """Print user-code tracebacks of errors in model or suite on stderr."""
    log, handler = logging.getLogger(running.__name__), _Handler()
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)


class _Handler(logging.Handler):
    """Prints each place once, because a broken model breaks every test in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the traceback, starting at the first frame of user code."""
        error = record.exc_info[1] if record.exc_info else None
        place = "" if error is None else own_frames(error)
        if place and place not in self._printed:
            self._printed.add(place)
            sys.stderr.write(f"{record.getMessage()}\n{place}")


def own_frames(error: BaseException) -> str:
    """Traceback from the first frame of user code on; empty without one."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = (at for at, frame in enumerate(frames) if not frame.filename.startswith(_NOT_THEIRS))
    first = next(theirs, None)
    if first is None:
        return ""
    last = "".join(traceback.format_exception_only(error))
    return "".join(traceback.format_list(list(frames)[first:])) + last
