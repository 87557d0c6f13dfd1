from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "undecided", "not judged"]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool
    reason: str
    is_open: bool = False
    """Not passed, for lack of evidence."""
    rows_missing: int = 0
    """About so many more labelled rows may close it."""
    is_judged: bool = True
    """False where no answer of the candidate could have failed it."""

    @property
    def outcome(self) -> Outcome:
        if not self.is_judged:
            return "not judged"
        return "passed" if self.passed else "undecided" if self.is_open else "failed"
