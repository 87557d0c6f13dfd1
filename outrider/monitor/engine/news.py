"""What engines tell the worker."""

from dataclasses import dataclass

from .asks import AskAnswer, Name


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
