"""``outrider test``: runs behavioral suites against a model, without pytest; subcommands edit suites."""

import json as json_format
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from outrider.behavioral_tests import Outcome, report, runner

from .default_group import DEFAULT, DefaultGroup
from .suite_cases import add
from .suite_files import examples, export_suite, import_suite
from .suite_runs import predictor_of, save_failed

app = typer.Typer(cls=DefaultGroup, add_completion=False)


@app.callback()
def _group() -> None:
    """Run behavioral tests against a model; write and review suites."""


app.command("add")(add)
app.command("import")(import_suite)
app.command("export")(export_suite)
app.command("examples")(examples)


@app.command(DEFAULT)
def run(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Suite files, or folders with test_*.py and *.suite.json.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="file.py:function, module:function, a project folder (folder#model) or an http address."
        ),
    ] = ".",
    seed: Annotated[int, typer.Option(help="Seed of the perturbations.")] = 0,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Answers in place of a model, one per example of `outrider test examples`."),
    ] = None,
    keep_failed: Annotated[
        Path | None, typer.Option("--save-failed", help="Write the failed cases into NAME.suite.json.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Run behavioral tests: exit code 0 all passed, 1 one failed, 3 bad config, 5 nothing to judge."""
    with redirect_stdout(sys.stderr):  # what a user's model prints must not end up inside the JSON
        suites = runner.find_suites(paths or [Path("behavior")])
        predictor = predictor_of(model, predictions, suites, seed=seed)
        outcomes = tuple(outcome for suite in suites for outcome in suite.run(predictor, seed=seed))
        if keep_failed is not None:
            save_failed(suites, outcomes, keep_failed)
    if json:
        typer.echo(json_format.dumps(report.to_json(outcomes), indent=2))
    else:
        _show(outcomes, sum(suite.candidates for suite in suites))
    raise typer.Exit(runner.exit_code(outcomes))


def _show(outcomes: tuple[Outcome, ...], candidates: int) -> None:
    console = Console()
    if candidates:
        console.print(f"{candidates} candidates await review: `outrider test review` before they count")
    if not outcomes:
        console.print("no behavioral tests found: write test_… = MFT(…), INV(…) or DIR(…) into behavior/")
        return
    used = [kind for kind in report.KINDS if any(outcome.kind == kind for outcome in outcomes)]
    table = Table("capability", *used, title="behavioral tests: failures / cases, rate [95 % interval]")
    for capability, cells in report.matrix(outcomes).items():
        styles = {"passed": "green", "failed": "bold red", "skipped": "dim", "error": "bold red"}
        table.add_row(
            capability,
            *(
                f"[{styles[cells[kind].status]}]{str(cells[kind]).replace('[', chr(92) + '[')}[/]"
                if kind in cells
                else "-"
                for kind in used
            ),
        )
    console.print(table)
    for outcome in outcomes:
        if outcome.status in ("failed", "error"):
            for line in report.failure_lines(outcome):
                console.print(line, markup=False, highlight=False)
