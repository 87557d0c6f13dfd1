"""Models of an ``outrider test`` run, and results to keep."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import typer

from outrider.assertions import Predictor
from outrider.behavioral_tests import Outcome, Suite
from outrider.model_reference import load_predictor

from .api import Api, one_model
from .suite_files import check_name, counted

BEHAVIORAL = "behavioral test"
"""Prefix of the source of rows made from failed cases, which never judge a candidate."""


def predictor_of(model: str, predictions: Path | None, suites: Sequence[Suite], *, seed: int) -> Predictor:
    """The model, or recorded predictions in its place."""
    if predictions is None:
        return load_predictor(model)
    from outrider.behavioral_tests.prediction_files import read_predictions
    from outrider.behavioral_tests.predictions import recorded

    return recorded(suites, read_predictions(predictions), seed=seed)


def save_failed(suites: Sequence[Suite], outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the failed cases as a suite file. Cases that cannot be written are named on stderr."""
    from outrider.behavioral_tests.suite_file import SUFFIX, failed_cases, write

    check_name(path)
    tests = [test for suite in suites for test in suite.tests]
    found, left_out = failed_cases(path.name.removesuffix(SUFFIX), tests, outcomes)
    for test, reason in left_out.items():
        typer.echo(f"not in {path}: {test}: {reason}", err=True)
    write(found, path)
    counts = counted(found, path)
    typer.echo(f"{path}: {counts['cases']} failed cases of {counts['tests']} tests", err=True)


def commit_failed(
    suites: Sequence[Suite],
    outcomes: Sequence[Outcome],
    dataset: str,
    *,
    reference: str,
    weak_labels: bool,
) -> None:
    """Commit failed cases as the service's dataset version, printed on stderr."""
    from outrider.behavioral_tests.failed_rows import failed_rows

    from .api import connect
    from .dataset import ARROW
    from .tables import to_ipc

    tests = [test for suite in suites for test in suite.tests]
    found = failed_rows(tests, outcomes, weak_labels=weak_labels)
    for reason, cases in found.left_out.items():
        typer.echo(f"not in {dataset}: {cases} failed cases: {reason}", err=True)
    if found.batch is None:
        typer.echo(f"{dataset}: no failed case to learn from, so no version", err=True)
        return
    api = connect()
    model, version = _version_of(api, reference)
    source = f"{BEHAVIORAL}, {model}@{version}"
    table = pa.Table.from_batches([found.batch.to_arrow()]).select(
        [name for name in found.batch.names if name == "id" or name.startswith(("inputs.", "label."))]
    )
    table = table.append_column("provenance.assertion", pa.array(found.test))
    sources = [f"weak:{source}" if is_weak else source for is_weak in found.weak.tolist()]
    table = table.append_column("provenance.label_source", pa.array(sources))
    query = {"model": model, "source": source, "part": "train"}
    made = api.post_bytes(f"/v1/datasets/{dataset}/versions", to_ipc(table), kind=ARROW, query=query)
    result = f"version {made['number']}, {made['rows']} rows" if "number" in made else f"job {made['job']}"
    typer.echo(f"{dataset}: {result}, from {source}", err=True)


def _version_of(api: Api, reference: str) -> tuple[str, str]:
    """Model and version that were tested; if the reference names no version, the service's champion."""
    _, _, named = reference.partition("#")
    name, _, version = named.partition("@")
    model = one_model(api, name or None)
    if version and version != "champion":
        return model, version
    if ":" in reference and not version:  # a function or an address: the service does not know its version
        return model, reference
    return model, str(api.get(f"/v1/models/{model}/versions/champion")["version"])
