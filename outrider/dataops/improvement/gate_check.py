"""Check of the gate: a result and a sentence with numbers."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "undecided"]


@dataclass(frozen=True, slots=True)
class Check:
    """Check of the gate: its result, and a sentence with numbers."""

    name: str
    passed: bool
    reason: str
    is_open: bool = False
    """Not passed, for lack of evidence."""
    rows_missing: int = 0
    """Labelled rows that may close it, about."""

    @property
    def outcome(self) -> Outcome:
        """Result in a word."""
        return "passed" if self.passed else "undecided" if self.is_open else "failed"
