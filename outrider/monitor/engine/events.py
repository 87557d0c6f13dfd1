"""Events from the engines to the worker."""

from dataclasses import dataclass

from .asks import AskAnswer, Name


@dataclass(frozen=True, slots=True)
class VersionLoad:
    """A version is in memory; or is not, and why."""

    name: Name
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """Version that held up or ended a fresh process alone."""

    name: Name
    reason: str


EngineEvent = VersionLoad | Ended | AskAnswer
