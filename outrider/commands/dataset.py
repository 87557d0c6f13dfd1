"""``outrider dataset``: import, commit, list, compare, read and export dataset versions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.dataset_reference import DatasetPart
from outrider.errors import ServerError

from .api import connect
from .dataset_check import check
from .dataset_erase import erase
from .dataset_export import export
from .dataset_leaks import leaks, tell_report
from .dataset_rows import named, streamed_rows, version_of
from .dataset_tag import app as tags
from .dataset_upkeep import compact, gc
from .dataset_validation import expect, validate, warning_line
from .default_group import Commands
from .output import Config, Decimal, Delimiter, Json, TextColumns, as_json, table, tell
from .quarantine import app as quarantine

app = typer.Typer(cls=Commands, no_args_is_help=True, help="Import, commit, list and read dataset versions.")
ARROW = "application/vnd.apache.arrow.stream"
COLUMNS = {
    "dataset": "dataset",
    "number": "version",
    "model": "model",
    "rows": "rows",
    "digest": "digest",
    "created": "created",
}
Name = Annotated[str, typer.Argument(help="Name of the dataset.")]
Reference = Annotated[str, typer.Argument(help="Dataset, or dataset@version, by number, tag or time.")]
VersionOption = Annotated[str | None, typer.Option(help="Number, tag or time of the version.")]
SHOWN_ROWS, MOST_ROWS = 50, 10_000


@app.command("list")
def list_versions(
    model: Annotated[str | None, typer.Option(help="Only datasets of this model.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List every version of every dataset."""
    found = connect(config).get("/v1/datasets", model=model)
    if json:
        as_json(found)
    else:
        how = "`outrider dataset commit` makes one of labelled flags, `outrider dataset import` of a table"
        table(found["datasets"], COLUMNS, empty=f"no dataset yet: {how}")


@app.command()
def show(name: Reference, version: VersionOption = None, config: Config = None, json: Json = False) -> None:
    """Show a version: files, columns, validation, and leaks found at its commit."""
    found = version_of(connect(config), named(name, version))
    if json:
        as_json(found)
        return
    table([found], COLUMNS, empty="")
    if found["tags"]:
        typer.echo(f"tags: {', '.join(found['tags'])}")
    columns = found["manifest"]["columns"]
    rows = [{"column": column, "type": kind} for column, kind in columns.items()]
    table(rows, {"column": "column", "type": "type"}, empty="")
    if erased := found["manifest"].get("erased"):
        gone = "1 row was" if erased == 1 else f"{erased} rows were"
        typer.echo(f"{gone} erased from this version: its digest is another one since")
    if "leaks" in found["manifest"]:
        tell_report(found["manifest"]["leaks"])
    for warning in found["manifest"]["validation"].get("warnings", ()):
        typer.echo(warning_line(warning))


@app.command("import")
def import_file(
    name: Name,
    file: Annotated[
        Path, typer.Argument(help="Parquet, Arrow, CSV, JSON lines or NPZ file with inputs and label.")
    ],
    model: Annotated[str, typer.Option(help="Model of the rows.")],
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    text: TextColumns = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Commit a table of your own as a dataset version.

    Such as the training data to replay; columns are named as in the model.
    """
    from .tables import read_table, table_options, to_ipc

    body = to_ipc(read_table(file, table_options(delimiter, decimal, text)))
    _committed(
        connect(config).post_bytes(
            f"/v1/datasets/{name}/versions", body, kind=ARROW, query={"model": model, "source": file.name}
        ),
        json=json,
    )


@app.command()
def commit(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Commit newly flagged and labelled records, corrected and withdrawn labels."""
    path = f"/v1/datasets/{model}-flagged/versions"
    _committed(connect(config).post(path, {"model": model, "from": "flags"}), json=json)


@app.command()
def diff(name: Name, old: str, new: str, config: Config = None, json: Json = False) -> None:
    """Show rows that two versions do not share, with provenance and labels."""
    limit = MOST_ROWS if json else SHOWN_ROWS
    found = connect(config).get(f"/v1/datasets/{name}/diff", old=old, new=new, limit=limit)
    if json:
        as_json(found)
        return
    kinds = ("added", "removed", "changed")
    typer.echo(", ".join(f"{len(found[kind])} {kind}" for kind in kinds))
    rows = [_difference(row) for row in found["rows"]]
    if rows:
        names = ("row", "change", "why", "labels", "label from", "flagged by", "model", "part")
        table(rows, {key: key for key in names}, empty="")
    if (more := sum(len(found[kind]) for kind in kinds) - len(rows)) > 0:
        typer.echo(f"and {more} more: --json has up to {MOST_ROWS}")


@app.command()
def rows(
    name: Reference,
    output: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .jsonl.")],
    version: VersionOption = None,
    part: Annotated[DatasetPart | None, typer.Option(help="Only this part; both by default.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Only these columns, with commas between; may be repeated.")
    ] = None,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Add columns provenance.*: flags, label, reviewer, weight.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write the rows of a version as Parquet, CSV or JSON lines.

    The file's extension says which. Rows are streamed, never all in memory.
    """
    from .export import check_format
    from .tables import write_batches

    check_format(output, "--output")
    chosen = [column for text in columns or () for column in text.split(",") if column]
    api = connect(config)
    asked = streamed_rows(api, named(name, version), part=part, columns=chosen, provenance=provenance)
    with asked as (schema, batches):
        written = write_batches(schema, batches, output)
    tell({"file": str(output), "rows": written}, f"{written} rows written to {output}", json=json)


app.command()(check)
app.add_typer(quarantine, name="quarantine")
app.add_typer(tags, name="tag")


def _difference(row: dict[str, Any]) -> dict[str, str]:
    """Row of ``outrider dataset diff``, with values as "before → after"."""
    sides = [row[side] or {} for side in ("before", "after")]
    labels = [
        ", ".join(f"{value}" for value in (row[f"labels_{side}"] or {}).values())
        for side in ("before", "after")
    ]
    columns = {"label from": "label_source", "model": "model_version", "part": "part"}
    cells = {name: _from_to(*(side.get(key) or "" for side in sides)) for name, key in columns.items()}
    cells |= {"flagged by": _flags(row["after"] or row["before"]), "why": row["reason"]}
    return {"row": row["id"], "change": row["change"], "labels": _from_to(*labels)} | cells


def _flags(origin: dict[str, Any]) -> str:
    """Assertions that flagged a row, with severities; for imported rows, names only."""
    named = [f"{flag['assertion']} {flag['severity']:.3g}" for flag in origin["flags"]]
    return ", ".join(named) or origin["assertion"] or ""


def _from_to(before: str, after: str) -> str:
    return before or after if before == after or not (before and after) else f"{before} → {after}"


app.command()(erase)
app.command()(leaks)
app.command()(export)
app.command()(expect)
app.command()(gc)
app.command()(compact)
app.command()(validate)


def _committed(found: dict[str, Any], *, json: bool) -> None:
    if json:
        as_json(found)
    elif "number" in found:
        table([found], COLUMNS, empty="")
        if found.get("labels"):
            from outrider.dataops.datasets.label_account import account_words

            typer.echo("\n".join(account_words(found["labels"])))
    else:
        raise ServerError(f"{found['job']} is still {found['status']}: is the trainer running?")
