"""Comparison of two models as values, JSON and text."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from .outcome import Kind, Outcome
from .report import KINDS, aligned

Verdict = Literal["regression", "improvement", "same", "not comparable"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One test compared between two models.

    ``difference`` is the challenger's failure rate less the champion's on the cases of both, ``low`` and
    ``high`` its interval. A verdict other than ``same`` is significant over the whole matrix; ``same`` means
    that no difference was shown, not that there is none.
    """

    suite: str
    test: str
    capability: str
    kind: Kind
    champion: Outcome | None
    challenger: Outcome | None
    pairs: int = 0
    """Number of cases that both models were judged on."""
    only_champion_fails: int = 0
    only_challenger_fails: int = 0
    difference: float = 0.0
    low: float = -1.0
    high: float = 1.0
    p: float = 1.0
    p_adjusted: float = 1.0
    verdict: Verdict = "not comparable"
    reason: str = ""
    """Reason why the test is not comparable, or the figure of a whole test that moved."""

    @property
    def only_challenger_cases(self) -> tuple[int, ...]:
        """Numbers of the cases that only the challenger failed."""
        return self._only(self.challenger, self.champion)

    @staticmethod
    def _only(one: Outcome | None, other: Outcome | None) -> tuple[int, ...]:
        if one is None or other is None or one.ran is None or other.ran is None:
            return ()
        if len(one.ran.severity) != len(other.ran.severity):
            return ()
        return tuple(np.flatnonzero((one.ran.severity > 0) & (other.ran.severity == 0)).tolist())

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for side in ("champion", "challenger"):
            outcome: Outcome | None = plain[side]
            plain[side] = None if outcome is None else outcome.to_dict()
        return plain


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of all tests, in the champion's order."""

    rows: tuple[Compared, ...]
    alpha: float = 0.05
    names: tuple[str, str] = field(default=("champion", "challenger"))

    @property
    def regressions(self) -> tuple[Compared, ...]:
        """Tests that the challenger fails significantly more often."""
        return tuple(row for row in self.rows if row.verdict == "regression")

    @property
    def improvements(self) -> tuple[Compared, ...]:
        """Tests that the challenger fails significantly less often."""
        return tuple(row for row in self.rows if row.verdict == "improvement")

    @property
    def exit_code(self) -> int:
        """Exit code: 0 nothing worse, 1 regression, 4 unanswered, 5 nothing comparable.

        Also 1 if a test can no longer be run on the challenger.
        """
        both = [(r.champion, r.challenger) for r in self.rows if r.champion and r.challenger]
        broken = any(new.error and not new.is_unanswered and not old.error for old, new in both)
        if self.regressions or broken:
            return 1
        if any(old.is_unanswered or new.is_unanswered for old, new in both):
            return 4
        return 0 if any(row.verdict != "not comparable" for row in self.rows) else 5

    def to_json(self) -> dict[str, Any]:
        """Comparison as JSON, for ``outrider test --compare … --json``."""
        return {
            "champion": self.names[0],
            "challenger": self.names[1],
            "alpha": self.alpha,
            "regressions": [row.test for row in self.regressions],
            "improvements": [row.test for row in self.improvements],
            "tests": [row.to_dict() for row in self.rows],
        }

    def lines(self) -> list[str]:
        """Matrix of failure rates, and a line per changed test. Rates are shown as champion → challenger."""
        table = [["capability", *self._kinds]]
        for capability in dict.fromkeys(row.capability for row in self.rows):
            members = [row for row in self.rows if row.capability == capability]
            cells = [_cell([row for row in members if row.kind == kind]) for kind in self._kinds]
            table.append([capability, *cells])
        changes = [_line(row) for row in self.rows if row.verdict != "same"]
        summary = (
            f"{self.names[0]} → {self.names[1]}: {len(self.regressions)} worse, "
            f"{len(self.improvements)} better of {len(self.rows)} tests (all verdicts at {self.alpha:.3g})"
        )
        return [
            *aligned(table),
            "",
            *changes,
            summary,
        ]

    @property
    def _kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if any(row.kind == kind for row in self.rows)]


def _cell(rows: Sequence[Compared]) -> str:
    """Matrix cell: failure rates over all cases, met figures, and number of worse or better tests."""
    if not rows:
        return "-"
    compared = [row for row in rows if row.verdict != "not comparable"]
    if not compared:
        return "?"
    was, now = (_cell_part([getattr(row, side) for row in compared]) for side in ("champion", "challenger"))
    worse = sum(row.verdict == "regression" for row in compared)
    better = sum(row.verdict == "improvement" for row in compared)
    marks = [f"▲ {worse} worse"] * (worse > 0) + [f"▼ {better} better"] * (better > 0)
    return f"{was} → {now} {', '.join(marks) or '='}"


def _cell_part(outcomes: Sequence[Outcome]) -> str:
    """Cell part of one model; whole-test figures are counted separately from cases."""
    by_case = [outcome for outcome in outcomes if not outcome.judges_whole]
    figures = [outcome.passed for outcome in outcomes if outcome.judges_whole]
    cases = sum(outcome.cases for outcome in by_case)
    rate = [f"{sum(outcome.failures for outcome in by_case) / cases:.1%}"] if cases else []
    return ", ".join([*rate, f"{sum(figures)} of {len(figures)} met"] if figures else rate)


def _line(row: Compared) -> str:
    where = f"{row.test} ({row.kind}, {row.capability})"
    if row.verdict == "not comparable":
        return f"?  {where}: not comparable, {row.reason}"
    mark, word = ("▲", "worse") if row.verdict == "regression" else ("▼", "better")
    interval = f"[{row.low:+.3f}, {row.high:+.3f}], p {row.p_adjusted:.2g}"
    if row.reason:
        return f"{mark}  {where}: {word}, {row.reason} by {row.difference:+.3f} {interval}"
    assert row.champion is not None
    assert row.challenger is not None
    return (
        f"{mark}  {where}: {word}, {row.champion.rate:.1%} → {row.challenger.rate:.1%} failed, "
        f"{row.only_challenger_fails} newly and {row.only_champion_fails} no more of {row.pairs}, "
        f"difference {interval}"
    )
