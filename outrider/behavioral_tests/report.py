"""Capability x test type matrix of outcomes, as data and text."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .example_text import example_lines
from .outcome import Kind, Outcome, Status
from .statistics import wilson_interval

KINDS: tuple[Kind, ...] = ("MFT", "INV", "DIR")
_WORST = 10


@dataclass(frozen=True, slots=True)
class SummaryCell:
    """Matrix cell: all tests of one capability and type.

    ``cases`` and ``failures`` count cases of tests with a verdict per case; ``figures`` and
    ``figures_failed`` count tests with one verdict on all cases, such as a gap between groups. ``low`` and
    ``high`` are a Wilson interval, or the widest bounds of the tests if one of them stopped early.
    """

    tests: int
    cases: int
    failures: int
    low: float
    high: float
    status: Status
    figures: int = 0
    figures_failed: int = 0

    def __str__(self) -> str:
        if self.cases == 0 and self.figures == 0:
            return "error" if self.status == "error" else "no case"
        mark = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip", "error": "ERR "}[self.status]
        parts = []
        if self.cases:
            rate = self.failures / self.cases
            parts.append(f"{self.failures}/{self.cases} {rate:.1%} [{self.low:.1%}, {self.high:.1%}]")
        if self.figures:
            parts.append(self.figures_text)
        return f"{mark} {', '.join(parts)}"

    @property
    def figures_text(self) -> str:
        """Share of whole-test figures that pass, as text; empty without any."""
        noun = "figure" if self.figures == 1 else "figures"
        met = self.figures - self.figures_failed
        return f"{met} of {self.figures} {noun} met" if self.figures else ""


def matrix(outcomes: Iterable[Outcome]) -> dict[str, dict[Kind, SummaryCell]]:
    """Matrix cells by capability, then by test type. Capabilities are in order of appearance."""
    groups: dict[str, dict[Kind, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.capability, {}).setdefault(outcome.kind, []).append(outcome)
    return {
        capability: {kind: _cell(members) for kind, members in kinds.items()}
        for capability, kinds in groups.items()
    }


def _cell(outcomes: Sequence[Outcome]) -> SummaryCell:
    by_case = [outcome for outcome in outcomes if not outcome.judges_whole]
    figures = [outcome for outcome in outcomes if outcome.judges_whole]
    cases = sum(outcome.cases for outcome in by_case)
    failures = sum(outcome.failures for outcome in by_case)
    low, high = wilson_interval(failures, cases)
    if any(outcome.interval == "sequence" for outcome in by_case):
        low, high = min(each.low for each in by_case), max(each.high for each in by_case)
    statuses = {outcome.status for outcome in outcomes}
    status: Status = next((each for each in ("error", "failed", "passed") if each in statuses), "skipped")
    failed = sum(outcome.status == "failed" for outcome in figures)
    return SummaryCell(len(outcomes), cases, failures, low, high, status, len(figures), failed)


def to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Outcomes as JSON, for ``--outrider-json`` and ``outrider test --json``.

    Without a judged case ``passed`` is false.
    """
    statuses = {outcome.status for outcome in outcomes}
    return {
        "passed": "passed" in statuses and statuses <= {"passed", "skipped"},
        "tests": [outcome.to_dict() for outcome in outcomes],
        "matrix": {
            capability: {kind: asdict(cell) for kind, cell in kinds.items()}
            for capability, kinds in matrix(outcomes).items()
        },
    }


def matrix_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Matrix as aligned text: failures / cases, rate with 95 % interval."""
    used = [kind for kind in KINDS if any(outcome.kind == kind for outcome in outcomes)]
    table = [["capability", *used]]
    for capability, cells in matrix(outcomes).items():
        table.append([capability, *(str(cells[kind]) if kind in cells else "-" for kind in used)])
    return aligned(table)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Table of texts as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def summary_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Lines with the matrix, errors, and each failed test's worst example."""
    lines = matrix_lines(outcomes)
    errors = [outcome for outcome in outcomes if outcome.status == "error"]
    if errors:
        lines += ["", "could not be run:", *(f"  {outcome.message}" for outcome in errors)]
    failed = [outcome for outcome in outcomes if outcome.status == "failed" and outcome.examples]
    if failed:
        lines += ["", "worst examples:"]
    for outcome in failed[:_WORST]:
        lines.append(f"  {outcome.name} ({outcome.kind}, {outcome.capability}), {outcome.failures} failed")
        lines += [f"    {line}" for line in example_lines(outcome.examples[0])]
    left = len(failed) - _WORST
    return [*lines, f"  … and {left} more failed tests"] if left > 0 else lines


def failure_lines(outcome: Outcome, *, examples: int = 3) -> list[str]:
    """Lines with the figures and worst examples of one test."""
    lines = [outcome.message]
    if outcome.description:
        lines += [f"  {line}" for line in outcome.description.splitlines()]
    for example in outcome.examples[:examples]:
        lines += [f"  {line}" for line in example_lines(example)]
    left = outcome.failures - min(examples, len(outcome.examples))
    # A verdict on a whole test has figures in place of examples.
    return [*lines, f"  … and {left} more"] if left > 0 and not outcome.measures else lines
