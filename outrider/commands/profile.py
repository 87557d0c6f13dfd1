"""``outrider profile``: column statistics of records, a file or a dataset version."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .api import connect, one_model
from .output import Config, Decimal, Delimiter, Json, ModelArgument, TextColumns, as_json, table

if TYPE_CHECKING:
    from outrider.assertions import Batch
    from outrider.data_files import TableOptions

COLUMNS = {
    "name": "column",
    "nulls": "null",
    "distinct": "distinct",
    "mean": "mean",
    "low": "5 %",
    "median": "median",
    "high": "95 %",
    "categories": "categories",
}
_SHOWN = 4


def profile(
    model: ModelArgument = None,
    since: Annotated[str | None, typer.Option(help="A time (ISO 8601) or a span such as 2h or 7d.")] = None,
    until: Annotated[str | None, typer.Option(help="A time or a span ago, likewise.")] = None,
    version: Annotated[str | None, typer.Option(help="Only records that this version answered.")] = None,
    challenger: Annotated[str | None, typer.Option(help="A challenger's answers instead.")] = None,
    slice_: Annotated[str | None, typer.Option("--slice", help="Only this slice (slice_by).")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="A table instead: Parquet, Arrow, CSV, JSON lines or NPZ.", dir_okay=False),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A dataset version instead, NAME@VERSION.")] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    text: TextColumns = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the columns of a model's records: nulls, distinct values, quantiles, categories."""
    if file is not None or dataset is not None:
        from .tables import table_options

        found = _of_rows(file, dataset, table_options(delimiter, decimal, text))
    else:
        api = connect(config)
        name = one_model(api, model)
        found = api.get(
            f"/v1/models/{name}/profile",
            since=_time(since), until=_time(until), version=version, slot=challenger, slice=slice_,
        )  # fmt: skip
    if json:
        as_json(found)
        return
    typer.echo(_head(found))
    table([_row(each) for each in found["columns"]], COLUMNS, empty=EMPTY)


EMPTY = "no profile yet: the first minute with 1,000 records fixes the bins of the columns"


def _of_rows(file: Path | None, dataset: str | None, options: "TableOptions") -> dict[str, Any]:
    """Profile of the rows of a table or a dataset version, with its own bins."""
    from outrider.assertions.batch.schema import is_part
    from outrider.assertions.profiling import Profile, ProfileLayout
    from outrider.dataset_reference import load_dataset
    from outrider.monitor.views.profiles.reader import column_reports

    rows = load_dataset(dataset) if dataset is not None else _table(Path(str(file)), options)
    found = Profile.of(rows, layout := ProfileLayout.fit(rows))
    shown = {column.name.partition("#")[0] for column in layout.columns}
    for name in rows.names:
        if is_part(name) and name not in shown:
            what = f"values of type {rows.arrow(name).type} have no profile"
            typer.echo(f"outrider: column {name!r} is not shown: {what}", err=True)
    return {
        "records": found.rows,
        "weight": found.weight,
        "since_us": None,
        "until_us": None,
        "versions": [],
        "slices": [],
        "bins_from": dataset or str(file),
        "layout": layout.digest,
        "columns": column_reports(found),
    }


def _table(path: Path, options: "TableOptions") -> "Batch":
    """Rows of a file; columns without a prefix (``inputs.``, ``outputs.``) are inputs."""
    from outrider.assertions import Batch
    from outrider.assertions.batch.schema import MARKS, SYSTEM, is_part

    from .tables import read_table

    rows = read_table(path, options)
    known = {*SYSTEM, *MARKS}
    names = [name if is_part(name) or name in known else f"inputs.{name}" for name in rows.column_names]
    return Batch.from_arrow(rows.rename_columns(names), model=path.stem)


def _time(text: str | None) -> str | None:
    """Time for the API; a span such as ``2h`` means that long ago."""
    if text is None or text[:4].isdecimal():
        return text
    from .durations import seconds

    return (datetime.now(UTC) - timedelta(seconds=seconds(text.removeprefix("-")))).isoformat()


def _head(found: dict[str, Any]) -> str:
    text = f"{found['records']:,} records"
    if found["since_us"] is not None:
        begin, end = (
            datetime.fromtimestamp(found[key] / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
            for key in ("since_us", "until_us")
        )
        text += f" from {begin} to {end} UTC"
    if versions := [one for one in found["versions"] if one]:
        text += f", version {', '.join(versions)}"
    return text + (f"; bins of {found['bins_from']}" if found["bins_from"] else "")


def _row(column: dict[str, Any]) -> dict[str, Any]:
    quantiles = column["quantiles"] or {}
    shares = [
        f"{one['name']}{' (new)' if one['is_new'] else ''}: {one['share']:.1%}"
        for one in column["categories"]
    ]
    left = len(shares) - _SHOWN
    if column["kind"] == "category" and column["other"]:
        shares = [*shares[:_SHOWN], f"other: {column['other'] / column['weight']:.1%}"]
    text = ", ".join(shares[: _SHOWN + 1]) + (f", {left} more" if left > 0 else "")
    problems = [
        f"{column[key]:.1%} {title}"
        for key, title in (("non_finite", "infinite"), ("mistyped", "of another type"), ("absent", "absent"))
        if column[key]
    ]
    return {
        "name": column["name"],
        "nulls": ", ".join([f"{column['nulls']:.1%}", *problems]),
        "distinct": None if column["distinct"] is None else f"{column['distinct']:,.0f}",
        "mean": column["mean"],
        "low": quantiles.get("0.05"),
        "median": quantiles.get("0.5"),
        "high": quantiles.get("0.95"),
        "categories": text or None,
    }
