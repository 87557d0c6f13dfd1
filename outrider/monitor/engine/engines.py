"""Engines for the worker: interface, and the in-process form."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.assertions import Predictor

from .asks import Ask, AskAnswer, Name
from .predictors import PredictorEngine


@dataclass(frozen=True, slots=True)
class VersionLoad:
    """A version is in memory; or is not, and why."""

    name: Name
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """Version that, asked alone, held up or ended its process.

    A fresh process.
    """

    name: Name
    reason: str


News = VersionLoad | Ended | AskAnswer


class Engines(Protocol):
    """Everything that answers in the shadow; nothing here waits but :meth:`wait`.

    Attributes
    ----------
    is_concurrent
        Whether answers are made while the caller does something else: only then is it of use to ask ahead.
    """

    is_concurrent: bool

    def load(self, name: Name, /) -> None:
        """Begin to load a version; :class:`VersionLoad` comes as news."""

    def unload(self, name: Name, /) -> None:
        """Forget a version; later asks fail."""

    def submit(self, ask: Ask, /) -> None:
        """Ask versions of one group; an answer of each comes as news."""

    def group(self, name: Name, /) -> str:
        """Group of versions in one process with this one.

        Versions with an equal name of a group may stand in one ask.
        """

    def news(self) -> Sequence[News]:
        """News since the last call."""

    def wait(self, timeout_s: float, /) -> None:
        """Until there is news, or the time is over."""

    def stop(self) -> None:
        """End all processes."""


class InThisProcess:
    """Engine in the caller's thread, for tests and commands.

    Loads and answers when news are read.

    Parameters
    ----------
    load
        Builds the predictor of a version; it may raise.
    """

    is_concurrent = False

    def __init__(self, load: Callable[[str, str], Predictor]) -> None:
        self._load = load
        self._engine = PredictorEngine()
        self._news: list[News] = []

    def load(self, name: Name, /) -> None:
        """Load a version at once."""
        try:
            self._engine.add(name, self._load(*name))
        except Exception as error:  # noqa: BLE001 - a user's file may do anything; it is told
            self._news.append(VersionLoad(name, f"{type(error).__name__}: {error}"))
        else:
            self._news.append(VersionLoad(name))

    def unload(self, name: Name, /) -> None:
        """Forget a version."""
        self._engine.unload(name)

    def submit(self, ask: Ask, /) -> None:
        """Take an ask."""
        self._engine.submit(ask)

    def group(self, name: Name, /) -> str:
        """All versions of a model."""
        return name[0]

    def news(self) -> Sequence[News]:
        """Loaded versions, and all answers."""
        while self._engine.waiting:
            self._news += self._engine.step()
        found, self._news = self._news, []
        return found

    def wait(self, timeout_s: float, /) -> None:
        """Sleep: nothing can arrive."""
        time.sleep(timeout_s)

    def stop(self) -> None:
        """There is no process."""
