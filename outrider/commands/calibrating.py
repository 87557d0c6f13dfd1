"""``outrider assertions calibrate``: fit a scored assertion's threshold on your labels."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Decimal, Delimiter, Json, TextColumns, as_json

if TYPE_CHECKING:
    from outrider.assertions.flags.threshold import IntervalEstimate, Threshold

SCORED = ("ungrounded",)


def calibrate(
    assertion: Annotated[str, typer.Argument(help="Assertion of the library: ungrounded.")],
    source: Annotated[
        Path, typer.Option("--from", help="Labelled examples: Parquet, Arrow or CSV; 50 are a good start.")
    ],
    wrong: Annotated[str, typer.Option(help="Column that says whether the answer is wrong: true or false.")],
    answer: Annotated[str, typer.Option(help="Column of the answers.")] = "answer",
    passages: Annotated[str, typer.Option(help="Column of passages: texts or lists of texts.")] = "passages",
    precision: Annotated[
        float | None, typer.Option(min=0.01, max=0.99, help="Minimum precision; without it, F1 is maximized.")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    text: TextColumns = None,
    json: Json = False,
) -> None:
    """Fit an assertion's threshold on labelled examples.

    Prints its figures on the same examples, out of fold.

    Exit code 1 if its score is not proven to separate wrong answers from right ones.
    """
    from outrider.assertions import Batch
    from outrider.assertions.flags.threshold import fit_threshold
    from outrider.assertions.library import ungrounded

    from .tables import read_table, table_options

    if assertion not in SCORED:
        raise ConfigError(f"no threshold to calibrate in {assertion!r}; there is one in {', '.join(SCORED)}")
    found = read_table(source, table_options(delimiter, decimal, text))
    absent = [name for name in (answer, passages, wrong) if name not in found.column_names]
    if absent:
        raise ConfigError(
            f"{source} has no column {', '.join(absent)}; there are {', '.join(found.column_names)}"
        )
    truth = _verdicts(found.column(wrong).to_pylist(), source, wrong)
    texts = {"outputs.answer": found.column(answer), "inputs.passages": found.column(passages)}
    score = ungrounded(below=1.0).severities(Batch.from_columns(texts, model="examples"))
    # A grounded answer still scores above 0; what scores 0 had no passage or no answer to judge.
    known = {row: given for row, given in enumerate(truth) if given is not None and score[row] > 0}
    try:
        fitted = fit_threshold(score[list(known)], list(known.values()), precision=precision)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error
    below = round(1.0 - fitted.score, 4)
    if json:
        as_json(_as_dict(assertion, below, fitted, left_out=len(truth) - len(known)))
    else:
        _say(assertion, below, fitted, left_out=len(truth) - len(known))
    if not fitted.is_informative:
        raise typer.Exit(1)


def _verdicts(values: list[Any], source: Path, column: str) -> list[bool | None]:
    """Column as booleans; 0 and 1 count as booleans, null as unlabelled."""
    found: list[bool | None] = []
    for row, value in enumerate(values):
        if value is not None and value not in (0, 1):
            raise ConfigError(
                f"{source}: {column} must be true or false (or 1, 0), got {value!r} in row {row}"
            )
        found.append(None if value is None else bool(value))
    return found


def _as_dict(assertion: str, below: float, fitted: "Threshold", *, left_out: int) -> dict[str, Any]:
    return {
        "assertion": assertion,
        "below": below,
        "examples": fitted.examples,
        "wrong": fitted.wrong,
        "left_out": left_out,
        "auroc": _share(fitted.auroc),
        "precision": _share(fitted.precision),
        "recall": _share(fitted.recall),
        "informative": fitted.is_informative,
    }


def _share(share: "IntervalEstimate") -> dict[str, float | None]:
    return {"value": None if isnan(share.value) else share.value, "low": share.low, "high": share.high}


def _say(assertion: str, below: float, fitted: "Threshold", *, left_out: int) -> None:
    rest = f"; {left_out} without label, passage or answer left out" if left_out else ""
    typer.echo(f"{fitted.examples} examples, {fitted.wrong} of them wrong{rest}")
    typer.echo(f"AUROC {fitted.auroc.value:.2f} ({fitted.auroc.low:.2f} to {fitted.auroc.high:.2f})")
    if not fitted.is_informative:
        typer.echo("its score is not proven to tell wrong answers from right ones here: do not use it")
        return
    right, recall = fitted.precision, fitted.recall
    typer.echo(f"    {assertion}(below={below:g})")
    typer.echo(
        f"cross-validated: {right.value:.0%} of what it flags is wrong ({right.low:.0%} to {right.high:.0%}),"
    )
    typer.echo(f"and it finds {recall.value:.0%} of what is wrong ({recall.low:.0%} to {recall.high:.0%})")
