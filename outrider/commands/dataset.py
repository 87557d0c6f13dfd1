"""``outrider dataset``: import, commit, list, compare and read dataset versions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.errors import ServerError

from .api import connect
from .dataset_check import check
from .dataset_validation import expect, validate, warning_line
from .default_group import Commands
from .output import Config, Json, as_json, table, tell

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
        table(found["datasets"], COLUMNS, empty="no dataset yet: `outrider dataset import` makes one")


@app.command()
def show(
    name: Name,
    version: Annotated[str, typer.Option(help="Number of the version.")] = "newest",
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a version: files, columns and the result of its validation."""
    found = connect(config).get(f"/v1/datasets/{name}/versions/{version}")
    if json:
        as_json(found)
        return
    table([found], COLUMNS, empty="")
    columns = found["manifest"]["columns"]
    rows = [{"column": column, "type": kind} for column, kind in columns.items()]
    table(rows, {"column": "column", "type": "type"}, empty="")
    for warning in found["manifest"]["validation"].get("warnings", ()):
        typer.echo(warning_line(warning))


@app.command("import")
def import_file(
    name: Name,
    file: Annotated[Path, typer.Argument(help="Parquet, Arrow, CSV or NPZ file with inputs and label.")],
    model: Annotated[str, typer.Option(help="Model of the rows.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Commit a table of your own as a dataset version.

    Such as the training data to replay; columns are named as in the model.
    """
    from outrider.commands.tables import read_table, to_ipc

    body = to_ipc(read_table(file))
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
    """Commit records flagged and labelled since the last version."""
    path = f"/v1/datasets/{model}-flagged/versions"
    _committed(connect(config).post(path, {"model": model, "from": "flags"}), json=json)


@app.command()
def diff(name: Name, old: int, new: int, config: Config = None, json: Json = False) -> None:
    """Show which rows two versions do not share."""
    found = connect(config).get(f"/v1/datasets/{name}/diff", old=old, new=new)
    if json:
        as_json(found)
        return
    for kind in ("added", "removed", "changed"):
        typer.echo(f"{len(found[kind])} {kind}" + "".join(f"\n  {key}" for key in found[kind][:20]))


@app.command()
def rows(
    name: Name,
    output: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .jsonl.")],
    version: Annotated[str, typer.Option(help="Number of the version.")] = "newest",
    part: Annotated[str | None, typer.Option(help="train or held_out; both by default.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write the rows of a version as Parquet, CSV or JSON lines.

    The ending of the file says which.
    """
    from outrider.commands.export import check_format
    from outrider.commands.tables import from_ipc, write_table

    check_format(output, "--output")
    found = from_ipc(connect(config).get_bytes(f"/v1/datasets/{name}/versions/{version}/rows", part=part))
    write_table(found, output)
    tell(
        {"file": str(output), "rows": found.num_rows}, f"{found.num_rows} rows written to {output}", json=json
    )


app.command()(check)
app.command()(expect)
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
