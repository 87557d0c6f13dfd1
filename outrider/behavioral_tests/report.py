"""The capability x test type matrix of outcomes, as data and as plain text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .example_text import example_lines
from .outcome import Kind, Outcome, Status
from .statistics import wilson_interval

KINDS: tuple[Kind, ...] = ("MFT", "INV", "DIR")
_WORST = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """All tests of one capability and type together."""

    tests: int
    cases: int
    failures: int
    low: float
    high: float
    status: Status

    def __str__(self) -> str:
        if self.cases == 0:
            return "error" if self.status == "error" else "no case"
        mark = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip", "error": "ERR "}[self.status]
        rate = self.failures / self.cases
        return f"{mark} {self.failures}/{self.cases} {rate:.1%} [{self.low:.1%}, {self.high:.1%}]"


def matrix(outcomes: Iterable[Outcome]) -> dict[str, dict[Kind, Cell]]:
    """Cells by capability, then by test type; capabilities in order of appearance."""
    groups: dict[str, dict[Kind, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.capability, {}).setdefault(outcome.kind, []).append(outcome)
    return {
        capability: {kind: _cell(members) for kind, members in kinds.items()}
        for capability, kinds in groups.items()
    }


def _cell(outcomes: Sequence[Outcome]) -> Cell:
    cases = sum(outcome.cases for outcome in outcomes)
    failures = sum(outcome.failures for outcome in outcomes)
    low, high = wilson_interval(failures, cases)
    statuses = {outcome.status for outcome in outcomes}
    status: Status = next((each for each in ("error", "failed", "passed") if each in statuses), "skipped")
    return Cell(len(outcomes), cases, failures, low, high, status)


def to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``--outrider-json`` and ``outrider test --json`` write."""
    return {
        "passed": bool(outcomes) and all(outcome.status in ("passed", "skipped") for outcome in outcomes),
        "tests": [outcome.to_dict() for outcome in outcomes],
        "matrix": {
            capability: {
                kind: {
                    "tests": cell.tests,
                    "cases": cell.cases,
                    "failures": cell.failures,
                    "low": cell.low,
                    "high": cell.high,
                    "status": cell.status,
                }
                for kind, cell in kinds.items()
            }
            for capability, kinds in matrix(outcomes).items()
        },
    }


def matrix_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The matrix as aligned text: failures / cases, rate and its 95 % interval."""
    used = [kind for kind in KINDS if any(outcome.kind == kind for outcome in outcomes)]
    table = [["capability", *used]]
    for capability, cells in matrix(outcomes).items():
        table.append([capability, *(str(cells[kind]) if kind in cells else "-" for kind in used)])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def summary_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """What ends a run: the matrix, tests that could not be run, and the worst example of each failed one."""
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
    """Figures and worst examples of one test."""
    lines = [outcome.message]
    if outcome.description:
        lines.append(f"  {outcome.description}")
    for example in outcome.examples[:examples]:
        lines += [f"  {line}" for line in example_lines(example)]
    left = outcome.failures - min(examples, len(outcome.examples))
    # A verdict on a whole test has figures in place of examples.
    return [*lines, f"  … and {left} more"] if left > 0 and not outcome.measures else lines
