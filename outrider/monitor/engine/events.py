from dataclasses import dataclass

from .asks import Ask, AskAnswer, Name


@dataclass(frozen=True, slots=True)
class VersionLoad:
    name: Name
    failure: str = ""
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """Version whose work held up or ended its process."""

    name: Name
    reason: str
    is_alone: bool = True
    """True where it was asked alone, in a fresh process; else its work was under way."""


@dataclass(frozen=True, slots=True)
class Parted:
    """Version that has left a shared process, with unanswered asks."""

    name: Name
    reason: str
    asks: tuple[Ask, ...]


EngineEvent = VersionLoad | Ended | Parted | AskAnswer
