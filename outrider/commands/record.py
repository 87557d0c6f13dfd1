"""``outrider record``: write incoming traffic to a file for some minutes."""

import time
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.errors import OutriderError

from .api import connect, following_tables, one_model
from .export import check_format, write_frame
from .output import Config, HashOption, Json, ModelOption, tell

if TYPE_CHECKING:
    import pyarrow as pa

    from outrider.monitor.compare.redaction import Redaction

    from .api import Api

POLL_S = 0.5
_NOTHING = 5


def record(
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .jsonl.")],
    minutes: Annotated[float, typer.Option(min=0.001, help="How long to record.")] = 10.0,
    records: Annotated[int, typer.Option(min=1, help="Maximum number of records.")] = 100_000,
    model: ModelOption = None,
    hash_: HashOption = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Record traffic that reaches the running service, for ``outrider compare --from``.

    Ctrl-C ends it earlier and keeps the records. Exit code 5 where none came.
    """
    import pyarrow as pa

    from outrider.monitor.compare.redaction import Redaction

    check_format(out, "--out")
    redaction = Redaction(hash=hash_ or ())
    if not out.parent.is_dir():
        raise OutriderError(f"--out: there is no folder {out.parent}")
    api = connect(config)
    name = one_model(api, model)
    until = time.monotonic() + 60 * minutes
    parts: list[pa.Table] = []
    count = 0
    try:
        for table in _until(api, name, until):
            parts.append(redaction.table(table.slice(0, records - count)))
            if not count:
                _check_columns(redaction, table)
            count += parts[-1].num_rows
            if count >= records:
                break
    except KeyboardInterrupt:
        typer.echo(f"ended after {count:,} records", err=True)
    if count:
        write_frame(pa.concat_tables(parts, promote_options="permissive").to_pandas(), out)
    for name in sorted(redaction.names - redaction.matched) if count else ():
        typer.echo(f"--hash: {name} did not occur: check its spelling", err=True)
    tell({"to": str(out), "records": count}, f"{count} records written to {out}", json=json)
    raise typer.Exit(0 if count else _NOTHING)


def _check_columns(redaction: "Redaction", table: "pa.Table") -> None:
    """Raise if a column to redact is missing, at the first records, before time is lost."""
    missing = [name for name in sorted(redaction.names - redaction.matched) if not redaction.is_inside(name)]
    if missing:
        columns = [name for name in table.column_names if "." in name or name == "entity"]
        near = get_close_matches(missing[0], columns, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(columns)}"
        raise OutriderError(f"--hash: no column {missing[0]} in the records; {hint}")


def _until(api: "Api", model: str, until: float) -> "Iterator[pa.Table]":
    for table in following_tables(api, model):
        if table is not None:
            yield table
        elif time.monotonic() >= until:
            return
        else:
            time.sleep(min(POLL_S, max(0.0, until - time.monotonic())))
