"""Tables of ``outrider test``: capability matrix and failures."""

from collections.abc import Sequence

from rich.table import Table

from outrider.behavioral_tests import Outcome, report
from outrider.behavioral_tests.comparison import Comparison

from .output import console

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim", "error": "bold red"}


def show_outcomes(outcomes: Sequence[Outcome], candidates: int, *, empty: str) -> None:
    """Print the matrix or ``empty``, then failed, broken and unjudged tests."""
    screen = console()
    if candidates:
        screen.print(f"{candidates} candidates await review: `outrider test review` before they count")
    if not outcomes:
        screen.print(empty, markup=False, highlight=False, soft_wrap=True)
        return
    screen.print(_matrix(outcomes))
    for outcome in outcomes:
        if outcome.status != "passed":
            for line in report.failure_lines(outcome):
                screen.print(line, markup=False, highlight=False, soft_wrap=True)


def show_comparison(comparison: Comparison) -> None:
    """Print the regression matrix, then every test whose result changed."""
    screen = console()
    for line in comparison.lines():
        style = "bold red" if "▲" in line else "green" if "▼" in line else None
        screen.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def _matrix(outcomes: Sequence[Outcome]) -> Table:
    used = [kind for kind in report.KINDS if any(outcome.kind == kind for outcome in outcomes)]
    table = Table("capability", *used, title="behavioral tests: failures / cases, rate [95 % interval]")
    for capability, cells in report.matrix(outcomes).items():
        shown = [_escaped(str(cells[kind])) if kind in cells else "-" for kind in used]
        styles = [_STYLES[cells[kind].status] if kind in cells else "none" for kind in used]
        table.add_row(
            _escaped(capability),
            *(f"[{style}]{text}[/]" for style, text in zip(styles, shown, strict=True)),
        )
    return table


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
