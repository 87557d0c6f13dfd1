"""Truth of the traffic: the driver's JSON line per answer."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class FrameAnswer:
    """Frame with its digit and production's answer."""

    id: str
    card: str
    track: str
    device: str
    fault: str
    digit: int
    phase: str
    answer: int
    version: str
    first: int | None = None
    """What version 1 said to the same frame; asked in the final phase alone."""

    @property
    def is_right(self) -> bool:
        """True where production was right."""
        return self.answer == self.digit


def follow(path: Path, at: int) -> tuple[list[dict[str, Any]], int]:
    """Complete lines behind ``at`` of a growing file, and their end."""
    if not path.exists():
        return [], at
    with path.open("rb") as file:
        file.seek(at)
        content = file.read()
    complete = content[: content.rfind(b"\n") + 1]
    return [json.loads(line) for line in complete.splitlines()], at + len(complete)


@dataclass(slots=True)
class Truth:
    """Truth read so far."""

    path: Path
    answers: list[FrameAnswer] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Phases that have been answered completely."""
    _at: int = 0

    def read(self) -> None:
        """Read on."""
        lines, self._at = follow(self.path, self._at)
        for line in lines:
            if "done" in line:
                self.done.append(line["done"])
            else:
                self.answers.append(FrameAnswer(**line))

    def of(self, *phases: str) -> list[FrameAnswer]:
        """Answers of some phases."""
        return [answer for answer in self.answers if answer.phase in phases]


def share(values: Iterable[bool]) -> float:
    """Share of true values; nan without any."""
    known = list(values)
    return sum(known) / len(known) if known else float("nan")
