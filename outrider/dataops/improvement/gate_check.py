"""Check of the gate: a result and a sentence with numbers."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "undecided", "not judged"]


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
    is_judged: bool = True
    """False where no answers of the candidate could have failed it."""

    @property
    def outcome(self) -> Outcome:
        """Result in a word."""
        if not self.is_judged:
            return "not judged"
        return "passed" if self.passed else "undecided" if self.is_open else "failed"
