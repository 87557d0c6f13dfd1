"""``outrider test``: run suites without pytest; group of commands that edit suites."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from outrider.behavioral_tests import Outcome, Suite, report
from outrider.behavioral_tests.compare import compare_models
from outrider.behavioral_tests.comparison import Comparison
from outrider.behavioral_tests.html_report import html_report
from outrider.behavioral_tests.running import Stop, run_tests
from outrider.behavioral_tests.suite import exit_code, find_suites
from outrider.dataset_reference import load_dataset
from outrider.model_reference import load_predictor

from .default_group import DEFAULT, DefaultGroup
from .output import as_json
from .publish import publish, version_of
from .suite_candidates import generate, review
from .suite_cases import add
from .suite_files import examples, export_suite, import_suite
from .suite_problems import brief_tracebacks
from .suite_runs import commit_failed, predictor_of, save_failed
from .suite_selection import check_together, selected, watched, why_nothing, without_cases
from .suite_tables import show_comparison, show_outcomes

app = typer.Typer(cls=DefaultGroup, add_completion=False)


@app.callback()
def _group() -> None:
    """Run behavioral tests against a model; write and review suites."""


app.command("add")(add)
app.command("import")(import_suite)
app.command("export")(export_suite)
app.command("examples")(examples)
app.command("generate")(generate)
app.command("review")(review)


def _check(
    model: str, publishes: bool, version: str | None, failed_to: str | None, predictions: Path | None
) -> None:
    """Refuse options that would fail only after the run and lose its outcomes."""
    if failed_to and predictions:
        raise typer.BadParameter("--failed-to-dataset needs a model of the service, --predictions names none")
    if publishes:
        version_of(model, version)


@app.command(DEFAULT)
def run(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Suite files, or folders with test_*.py and *.suite.json.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="file.py:function, module:function, a project folder (folder#model, folder#model@version) "
            "or an http address."
        ),
    ] = ".",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="MODEL_A MODEL_B", help="Compare two models; exit code 1 when B fails more often."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", "-k", help="Capability, test, or capability/test; parts and * fit; repeatable."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME@VERSION", help="Records for tests without cases of their own.")
    ] = None,
    stop: Annotated[
        Stop | None, typer.Option(help="decided: end each test when its verdict is certain.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the perturbations.")] = 0,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Answers in place of a model, one per example of `outrider test examples`."),
    ] = None,
    keep_failed: Annotated[
        Path | None, typer.Option("--save-failed", help="Write the failed cases into NAME.suite.json.")
    ] = None,
    failed_to: Annotated[
        str | None,
        typer.Option(
            "--failed-to-dataset", metavar="NAME", help="Commit the failed cases as a version to learn from."
        ),
    ] = None,
    weak_labels: Annotated[
        bool, typer.Option("--weak-labels", help="In that version, own answers for INV without labels, too.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
    publishes: Annotated[
        bool, typer.Option("--publish", help="Send the outcomes to the service's behavioral matrix.")
    ] = False,
    version: Annotated[
        str | None,
        typer.Option(metavar="[MODEL@]VERSION", help="Version to publish as, where --model names none."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Run behavioral tests.

    Exit code 0 all passed, 1 one failed, 3 bad config, 4 the model gave no answer, 5 nothing to judge.
    """
    check_together(
        compare,
        {
            "--model": model != ".",
            "--predictions": predictions,
            "--save-failed": keep_failed,
            "--failed-to-dataset": failed_to,
            "--publish": publishes,
        },
    )
    _check(model, publishes, version, failed_to, predictions)
    with redirect_stdout(sys.stderr), brief_tracebacks():  # what a model prints must stay out of the JSON
        suites = find_suites(paths or [Path("behavior")])
        chosen = selected(suites, only or (), stop)
        tests = [test for suite in chosen for test in suite.tests]
        cases = None if dataset is None else load_dataset(dataset)
        if cases is None:
            without_cases(tests)
        seen = watched(tests, silent=json)
        comparison = None
        if compare:
            models = load_predictor(compare[0]), load_predictor(compare[1])
            comparison = compare_models(seen, *models, cases=cases, seed=seed, names=compare)
            outcomes = [row.challenger for row in comparison.rows if row.challenger is not None]
        else:
            predictor = predictor_of(model, predictions, suites, seed=seed)
            outcomes = run_tests(seen, predictor, cases=cases, seed=seed)
        if keep_failed is not None:
            save_failed(chosen, outcomes, keep_failed)
        if failed_to is not None:
            commit_failed(chosen, outcomes, failed_to, reference=model, weak_labels=weak_labels)
        if html is not None:
            title = " → ".join(compare) if compare else f"Behavioral tests of {predictions or model}"
            html.parent.mkdir(parents=True, exist_ok=True)
            html.write_text(html_report(outcomes, title=title, comparison=comparison), encoding="utf-8")
        if publishes:
            where = publish(outcomes, model, target=version, source="cli")
            typer.echo(f"published as {where}", err=True)
    _show(outcomes, comparison, suites, only or (), json=json)
    raise typer.Exit(exit_code(outcomes) if comparison is None else comparison.exit_code)


def _show(
    outcomes: Sequence[Outcome],
    comparison: Comparison | None,
    suites: Sequence[Suite],
    only: Sequence[str],
    *,
    json: bool,
) -> None:
    if json:
        as_json(report.to_json(outcomes) if comparison is None else comparison.to_json())
    elif comparison is not None:
        show_comparison(comparison)
    else:
        candidates = sum(suite.candidates for suite in suites)
        show_outcomes(outcomes, candidates, empty=why_nothing(suites, only))
