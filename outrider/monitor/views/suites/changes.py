"""Changes of test outcomes between versions, with evidence, worse or better."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from outrider.dataops.improvement.suite_outcomes import OutcomeRow

Direction = Literal["regression", "improvement", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class Change:
    """Change: the verdict, and a sentence on its basis."""

    verdict: Direction
    against: str
    basis: str
    p: float | None = None
    """McNemar's, adjusted over all tests, where both models were asked the same cases."""


@dataclass(frozen=True, slots=True)
class PairedOutcomes:
    """Gate's finding on the same cases for both models."""

    suite: str
    test: str
    champion: tuple[int, int]
    """Cases and failures."""
    candidate: tuple[int, int]
    only_champion_fails: int
    only_candidate_fails: int
    p: float
    compared: Direction
    note: str
    """Which figure of a whole test moved."""

    @classmethod
    def read(cls, evidence: Mapping[str, Any]) -> Self | None:
        """One test's finding in a verdict's evidence; None if unpaired."""
        if evidence["compared"] == "not comparable":
            return None
        return cls(
            evidence["suite"],
            evidence["test"],
            (evidence["champion"]["cases"], evidence["champion"]["failures"]),
            (evidence["candidate"]["cases"], evidence["candidate"]["failures"]),
            evidence["only_champion_fails"],
            evidence["only_candidate_fails"],
            evidence["p"],
            evidence["compared"],
            evidence["note"],
        )

    def is_of(self, before: OutcomeRow, now: OutcomeRow) -> bool:
        """Test that these outcomes are the paired ones."""
        return (before.cases, before.failures) == self.champion and (
            now.cases,
            now.failures,
        ) == self.candidate

    @property
    def basis(self) -> str:
        """Basis of the verdict, and its p value."""
        if self.note:
            return f"{self.note}, of the gate's figures; Holm-adjusted p = {self.p:.3g}"
        return (
            f"same cases: {self.only_candidate_fails} newly failed, {self.only_champion_fails} mended; "
            f"McNemar, Holm-adjusted p = {self.p:.3g}"
        )


def change_of(before: OutcomeRow, now: OutcomeRow, paired: PairedOutcomes | None) -> Change:
    """Compare two outcomes of one test.

    Paired answers to the same cases decide where the gate has them, else the intervals: a change is one when
    they do not overlap. A test that was passed and no longer is, is a regression in any case.

    Parameters
    ----------
    paired
        Of the gate; used only if it is of these outcomes.
    """
    direction: Direction
    if before.revision != now.revision:
        return Change("unknown", before.version, "the test was edited in between")
    if "error" in (before.status, now.status):
        return _of_errors(before, now)
    p = None
    if paired is not None and paired.is_of(before, now):
        direction, basis, p = paired.compared, paired.basis, paired.p
    elif before.measures and now.measures:  # one case each: its interval says nothing
        direction, basis = "same", "not paired"
    else:
        direction = _direction(now.low > before.high, now.high < before.low)
        overlap = "overlap" if direction == "same" else "do not overlap"
        basis = f"the intervals {overlap}; not paired"
    if direction == "same" and before.status != now.status:
        direction = _direction(before.status == "passed", now.status == "passed")
        basis = f"{before.status} before, {now.status} now; {basis}"
    return Change(direction, before.version, basis, p)


def _direction(is_worse: bool, is_better: bool) -> Direction:
    return "regression" if is_worse else "improvement" if is_better else "same"


def _of_errors(before: OutcomeRow, now: OutcomeRow) -> Change:
    if before.status == now.status:
        return Change("same", before.version, "it can be run on neither")
    if now.status == "error":
        return Change("regression", before.version, f"{before.status} before, cannot be run now")
    return Change("unknown", before.version, f"it could not be run on {before.version}")
