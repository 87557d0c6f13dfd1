"""``outrider export``: flags, weak labels, records, datasets and dashboards as files."""

import json as json_format
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import OutriderError

from .api import Api, connect, one_model, record_tables
from .default_group import Commands
from .output import Config, Json, ModelArgument, tell

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
To = Annotated[Path, typer.Option("--to", help="File to write; its ending names the format.")]
FORMATS = (".parquet", ".csv", ".jsonl")
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


@app.command()
def flags(
    model: ModelArgument = None, to: To = Path("flags.parquet"), config: Config = None, json: Json = False
) -> None:
    """Export every flag with its record's slice, prediction and label.

    Formats: .parquet, .csv or .jsonl.
    """
    check_format(to, "--to")
    import pandas as pd

    api = connect(config)
    rows = list(_flags(api, one_model(api, model)))
    frame = pd.DataFrame(rows)
    if "evidence" in frame:  # its shape differs from flag to flag: JSON text is what every reader takes
        frame["evidence"] = [json_format.dumps(row["evidence"]) if row["evidence"] else None for row in rows]
    write_frame(frame, to)
    _done(to, len(frame), "flags", json=json)


@app.command("weak-labels")
def weak_labels(
    model: ModelArgument = None,
    to: To = Path("weak-labels.parquet"),
    assertion: Annotated[str | None, typer.Option(help="Only corrections of this assertion.")] = None,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Minimum confidence of a correction.")
    ] = 0.0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Export every proposed correction with its provenance.

    Formats: .parquet, .csv or .jsonl.
    """
    check_format(to, "--to")
    import pandas as pd

    api = connect(config)
    query = {"model": one_model(api, model), "assertion": assertion, "min_confidence": min_confidence}
    rows: list[dict[str, Any]] = []
    page: dict[str, Any] = {"after": None}
    while not rows or page["after"]:
        page = api.get("/v1/weak-labels", limit=10_000, after=page["after"], **query)
        rows += page["weak_labels"]
        if not page["weak_labels"]:
            break
    for row in rows:  # of any type: JSON text is what every reader takes
        row["value"] = json_format.dumps(row["value"])
    write_frame(pd.DataFrame(rows), to)
    _done(to, len(rows), "weak_labels", json=json)


@app.command()
def records(
    model: ModelArgument = None, to: To = Path("records"), config: Config = None, json: Json = False
) -> None:
    """Export the journal's records into a folder of Parquet files.

    One per run of blocks with one schema.
    """
    import pyarrow.parquet as pq

    api = connect(config)
    name, written = one_model(api, model), 0
    to.mkdir(parents=True, exist_ok=True)
    writer: Any = None
    schema: Any = None
    parts = 0
    try:
        for table in record_tables(api, name):
            if writer is None or table.schema != schema:
                if writer is not None:
                    writer.close()
                schema, parts = table.schema, parts + 1
                writer = pq.ParquetWriter(to / f"part-{parts:05d}.parquet", schema, compression="zstd")
            writer.write_table(table)
            written += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    _done(to, written, "records", json=json)


@app.command()
def dashboards(
    to: Annotated[Path, typer.Option("--to", help="Folder to write into.")] = Path("dashboards"),
    json: Json = False,
) -> None:
    """Export the Grafana dashboard and the Prometheus alert rules.

    Needs no running service.
    """
    to.mkdir(parents=True, exist_ok=True)
    source = resources.files("outrider.dashboards") / "generated"
    written = []
    for file in source.iterdir():
        with resources.as_file(file) as path:
            shutil.copyfile(path, to / file.name)
        written.append(str(to / file.name))
    tell({"files": sorted(written)}, "\n".join(sorted(written)), json=json)


def _flags(api: Api, model: str) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = api.get("/v1/flags", model=model, limit=1000, after=after)
        yield from page["flags"]
        after = page["after"]
        if not after:
            return


def write_frame(frame: "pd.DataFrame", to: Path) -> None:
    """Write a frame in the format of the file's extension."""
    if to.suffix == ".parquet":
        frame.to_parquet(to, index=False)
    elif to.suffix == ".csv":
        without_formulas(frame).to_csv(to, index=False)
    else:
        frame.to_json(to, orient="records", lines=True)


def without_formulas(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Prefix texts that a spreadsheet would run as formulas with a quote.

    Examples
    --------
    >>> import pandas as pd
    >>> without_formulas(pd.DataFrame({"text": ["=1+1", "ok"], "x": [-1, 2]})).values.tolist()
    [["'=1+1", -1], ['ok', 2]]
    """

    def quoted(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_SIGNS) else value

    texts = frame.select_dtypes(exclude="number")
    safe: dict[str, Any] = {str(name): texts[name].astype(object).map(quoted) for name in texts}
    return frame.assign(**safe).rename(columns=quoted)


def check_format(to: Path, option: str) -> None:
    """Refuse a file whose extension is not in ``FORMATS``."""
    if to.suffix not in FORMATS:
        raise OutriderError(f"{option}: a file ending in {', '.join(FORMATS)} expected, got {to}")


def _done(to: Path, count: int, what: str, *, json: bool) -> None:
    tell({"to": str(to), what: count}, f"{count} {what} written to {to}", json=json)
