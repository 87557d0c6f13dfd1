"""``outrider dataset quarantine``: list, retry and drop records that a dataset refused."""

from typing import Annotated, Any

import typer

from .api import connect
from .default_group import listing
from .output import Config, Json, as_json, table

app = listing("List, retry and drop records that a dataset refused.")
COLUMNS = {"dataset": "dataset", "record_id": "record", "reasons": "reasons", "state": "state", "at": "since"}
Dataset = Annotated[str | None, typer.Option(help="Only of this dataset.")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this record; may be repeated.")]


@app.command("list")
def list_rows(
    dataset: Dataset = None,
    state: Annotated[str, typer.Option(help="held, retried, taken, dropped or all.")] = "held",
    config: Config = None,
    json: Json = False,
) -> None:
    """List records that a dataset refused, with the reasons."""
    _show(connect(config).get("/v1/quarantine", dataset=dataset, state=state), json=json)


@app.command()
def retry(dataset: Dataset = None, record: Ids = None, config: Config = None, json: Json = False) -> None:
    """Let the next commit look at records again.

    All held records if none is named; a dropped record by its id.
    """
    _settle("retry", dataset, record, config, json=json)


@app.command()
def drop(dataset: Dataset = None, record: Ids = None, config: Config = None, json: Json = False) -> None:
    """Leave records out for good, by --id, or all of a --dataset."""
    if dataset is None and not record:
        raise typer.BadParameter(
            "expected, or --dataset for all that are held of one; got neither", param_hint="--id"
        )
    _settle("drop", dataset, record, config, json=json)


def _settle(action: str, dataset: str | None, records: list[str] | None, config: Any, *, json: bool) -> None:
    body = {"dataset": dataset, "records": records or []}
    _show(connect(config).post(f"/v1/quarantine/{action}", body), json=json)


def _show(found: dict[str, Any], *, json: bool) -> None:
    if json:
        as_json(found)
    else:
        table(found["quarantined"], COLUMNS, empty="no record in quarantine")
