"""What ``outrider test`` may run on, and what it may keep of a run."""

from collections.abc import Sequence
from pathlib import Path

import typer

from outrider.assertions import Predictor
from outrider.behavioral_tests import Outcome, Suite
from outrider.model_reference import load_predictor

from .suite_files import check_name, counted


def predictor_of(model: str, predictions: Path | None, suites: Sequence[Suite], *, seed: int) -> Predictor:
    """The model, or a file of its predictions in its place."""
    if predictions is None:
        return load_predictor(model)
    from outrider.behavioral_tests.prediction_files import read_predictions
    from outrider.behavioral_tests.predictions import recorded

    return recorded(suites, read_predictions(predictions), seed=seed)


def save_failed(suites: Sequence[Suite], outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the failed cases as a suite file of their own; says on stderr what could not be written."""
    from outrider.behavioral_tests.suite_file import SUFFIX, failed_cases, write

    check_name(path)
    tests = [test for suite in suites for test in suite.tests]
    found, left_out = failed_cases(path.name.removesuffix(SUFFIX), tests, outcomes)
    for test, reason in left_out.items():
        typer.echo(f"not in {path}: {test}: {reason}", err=True)
    write(found, path)
    told = counted(found, path)
    typer.echo(f"{path}: {told['cases']} failed cases of {told['tests']} tests", err=True)
