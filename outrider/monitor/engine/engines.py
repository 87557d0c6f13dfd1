"""Where versions answer: what the worker asks of it, and the simplest form, in this process."""

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
    """A version, asked alone in a fresh process, held up or ended it."""

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
        """Forget a version; asks of it fail."""

    def submit(self, ask: Ask, /) -> None:
        """Ask versions of one group; an answer of each comes as news."""

    def group(self, name: Name, /) -> str:
        """Which versions share a process: those of the same name of a group may stand in one ask."""

    def news(self) -> Sequence[News]:
        """What has come since."""

    def wait(self, timeout_s: float, /) -> None:
        """Until there is news, or the time is over."""

    def stop(self) -> None:
        """End all processes."""


class InThisProcess:
    """Loads and answers in the caller's thread, when news are read: for tests and commands.

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
        """What was loaded, and all answers."""
        while self._engine.waiting:
            self._news += self._engine.step()
        found, self._news = self._news, []
        return found

    def wait(self, timeout_s: float, /) -> None:
        """Nothing can come."""
        time.sleep(timeout_s)

    def stop(self) -> None:
        """There is no process."""
