"""``outrider drift``: columns whose distribution differs from a reference."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Config, Decimal, Delimiter, Json, TextColumns, as_json, table, write_file

if TYPE_CHECKING:
    from outrider.assertions.drift import DriftReport

COLUMNS = {"column": "column", "role": "role", "status": "status", "distance": "distance", "change": "change"}
DRIFT, UNDECIDED = 1, 6
_MOST_THREADS = 4
Names = Annotated[list[str] | None, typer.Option(help="Column that is an output (may be repeated).")]


def drift(
    reference: Annotated[
        str,
        typer.Option(
            help="Records to hold against: a file (Parquet, Arrow, CSV, JSON lines, NPZ), a dataset version "
            "NAME@VERSION, or a span SINCE..UNTIL of the running service's records: "
            "2026-11-01..2026-11-08, -8d..-1d."
        ),
    ],
    current: Annotated[str, typer.Option(help="Records to judge, named alike: -1h.. is the last hour.")],
    model: Annotated[
        str | None, typer.Option(help="Model of the service's records; may be left out when there is one.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column (may be repeated).")
    ] = None,
    outputs: Names = None,
    labels: Annotated[
        list[str] | None, typer.Option(help="Column that is a label (may be repeated).")
    ] = None,
    entity: Annotated[
        str | None, typer.Option(help="Column of the user, camera or patient: each of them counts once.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with 1 / probability of having been captured.")
    ] = None,
    ts: Annotated[
        str | None, typer.Option(help="Column of event times of a file, which puts it in order.")
    ] = None,
    unit: Annotated[
        list[str] | None, typer.Option(help="Unit of a column: age=years (may be repeated).")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Chance of any false alarm in the whole report.")] = 0.01,
    least: Annotated[float, typer.Option(help="Smallest distance of a distribution that is drift.")] = 0.05,
    multivariate: Annotated[
        bool, typer.Option("--multivariate", help="Also distinguish the windows by all columns together.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="HTML file with the distributions of every column.")
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    text: TextColumns = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show columns that drifted from a reference, worst first.

    Exit code 0 without drift, 1 with drift, 6 where a column could not be judged and none drifts.
    """
    from outrider.assertions.drift import drift_report

    from .drift_windows import read_window
    from .tables import table_options

    options = table_options(delimiter, decimal, text)
    one, two = (
        read_window(each, model=model, ts=ts, config=config, options=options) for each in (reference, current)
    )
    skipped = [ts] if ts is not None else []
    try:
        found = drift_report(
            one.data,
            two.data,
            columns=columns or [name for name in one.names if name not in {*skipped, entity, weight}] or None,
            outputs=outputs or (),
            labels=labels or (),
            entity=entity,
            weight=weight,
            ts=ts if all(ts in each.names for each in (one, two)) else None,
            units=_units(unit or ()),
            alpha=alpha,
            least=least,
            is_multivariate=multivariate,
            threads=min(_MOST_THREADS, os.cpu_count() or 1),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    content = found.to_dict() | {"windows": {"reference": one.name, "current": two.name}}
    if report is not None:
        write_file(report, _page(content))
    if json:
        as_json(content)
    else:
        _show(found)
    raise typer.Exit(DRIFT if found.is_drift else 0 if found.is_decided else UNDECIDED)


def _page(content: dict[str, Any]) -> str:
    from outrider.monitor.views.drift.chart import drift_page

    return drift_page(content)


def _show(found: "DriftReport") -> None:
    rows = [
        {
            "column": each.column,
            "role": each.role,
            "status": each.status,
            "distance": round(each.distance, 4) if each.evidence else None,
            "change": each.words or None,
        }
        for each in found.columns
    ]
    table(rows, COLUMNS, empty="no column to compare")
    sentences = [*found.problems]
    sentences += [f"{each.column}, {problem}" for each in found.columns for problem in each.problems]
    sentences += [f"{name}, not compared: {why}" for name, why in found.ignored.items()]
    for sentence in sentences:
        typer.echo(sentence)
    if found.together_words:
        typer.echo(found.together_words)
    typer.echo(found.sentence)


def _units(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, is_pair, unit = text.partition("=")
        if not (name and is_pair and unit):
            raise typer.BadParameter(f"--unit: age=years expected, got {text!r}")
        found[name] = unit
    return found
