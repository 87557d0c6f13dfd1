"""Host's shared state: sealed modules, the rest restored after each assertion, because a function that
replaces ``numpy.mean`` or changes the folder would affect the next."""

import contextlib
import fcntl
import os
import signal
import sys
import warnings
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from outrider.assertions import Batch

SEALED = ("math", "numpy", "numpy.linalg", "pandas", "pyarrow", "pyarrow.compute", "outrider.assertions")
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGHUP")
    if hasattr(signal, name)
)
_ABSENT = object()
_handler: Any = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""The bare function: making an enumeration of each answer takes ten times as long."""


class _SealedModule(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get(name, value) is not value:
            raise AttributeError(f"{self.__name__}.{name} is shared by all assertions and cannot be replaced")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self.__name__}.{name} is shared by all assertions and cannot be deleted")


def seal(names: Iterable[str] = SEALED) -> None:
    for name in names:
        module = sys.modules.get(name)
        if type(module) is ModuleType:
            module.__class__ = _SealedModule


def _environment() -> dict[bytes, bytes]:
    """Raw contents of ``os.environ``: decoding takes ten times as long as comparing."""
    held: dict[bytes, bytes] = getattr(os.environ, "_data", None) or {
        os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()
    }
    return held


class SharedState:
    """Snapshot of the process's folder, environment, path, warnings, signals, timer, streams and
    methods of ``Batch``."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._environment = dict(_environment())
        found = {number: _handler(number) for number in SIGNALS}
        self._handlers = {number: one for number, one in found.items() if one is not None}
        self._streams = tuple((stream, getattr(sys, stream)) for stream in ("stdin", "stdout", "stderr"))
        self._path = list(sys.path)
        self._warnings = list(warnings.filters)
        self._methods = dict(vars(Batch))
        self._null = os.open(os.devnull, os.O_RDWR)

    def restore(self) -> bool:
        changed = self._restore_folder()
        if _environment() != self._environment:
            changed = True
            os.environ.clear()
            os.environ.update(
                {os.fsdecode(name): os.fsdecode(value) for name, value in self._environment.items()}
            )
        if sys.path != self._path:
            changed = True
            sys.path[:] = self._path
        if warnings.filters != self._warnings:
            changed = True
            warnings.resetwarnings()  # forgets what was decided before
            warnings.filters[:] = self._warnings  # type: ignore[index]  # a list; resetwarnings changes it, too
        # Each is called, whatever the others found.
        return any([changed, self._restore_signals(), self._restore_batch(), self._restore_streams()])

    def _restore_folder(self) -> bool:
        try:
            if os.getcwd() == self._folder:
                return False
        except FileNotFoundError:  # removed
            pass
        with contextlib.suppress(FileNotFoundError):
            os.chdir(self._folder)
        return True

    def _restore_signals(self) -> bool:
        changed = False
        for number, handler in self._handlers.items():
            if _handler(number) is not handler:
                changed = True
                signal.signal(number, handler)
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            changed = True
            signal.setitimer(signal.ITIMER_REAL, 0)
        return changed

    def _restore_batch(self) -> bool:
        now = vars(Batch)
        if now == self._methods:
            return False
        for name in self._methods:
            if now.get(name, _ABSENT) is not self._methods[name]:
                setattr(Batch, name, self._methods[name])
        for name in set(now) - set(self._methods):
            delattr(Batch, name)
        return True

    def _restore_streams(self) -> bool:
        changed = False
        for name, stream in self._streams:
            if getattr(sys, name) is not stream:
                changed = True
                setattr(sys, name, stream)
        for number in (0, 1, 2):
            try:
                fcntl.fcntl(number, fcntl.F_GETFD)
            except OSError:  # closed
                changed = True
                os.dup2(self._null, number)
        return changed
