"""``outrider assertions learn`` and ``accept``: assertions from reference data."""

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError, OutriderError

from .api import Api, connect
from .output import Config, Decimal, Delimiter, Json, ModelOption, TextColumns, as_json, table, tell

if TYPE_CHECKING:
    import pyarrow as pa

    from outrider.assertions import Batch
    from outrider.assertions.learn import Proposal

COLUMNS = {
    "name": "proposal",
    "kind": "kind",
    "support": "support",
    "expected": "expected rate",
    "drifts": "drifts",
    "why": "shows",
}
Names = Annotated[list[str] | None, typer.Option(help="Column that is an output (may be repeated).")]


def learn(
    source: Annotated[
        Path | None, typer.Option("--from", help="Reference records: Parquet, Arrow or CSV.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model; without --from, learn from its stored traffic.")
    ] = None,
    outputs: Names = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(help="Column that is a label, which no rule reads (may be repeated)."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="Column of record ids.")] = None,
    entity: Annotated[str | None, typer.Option(help="Column of the entity: user, camera, patient.")] = None,
    ts: Annotated[str | None, typer.Option(help="Column of event times.")] = None,
    unit: Annotated[
        list[str] | None, typer.Option(help="Unit of a column, such as reading=celsius (may be repeated).")
    ] = None,
    max_fire_rate: Annotated[
        float, typer.Option(help="Share of the later records on which all together may fire.")
    ] = 0.005,
    records: Annotated[int, typer.Option(help="Maximum number of stored records to learn from.")] = 100_000,
    save: Annotated[Path | None, typer.Option(help="JSON file of the proposals, for accept.")] = None,
    write: Annotated[Path | None, typer.Option(help="Accept all into this Python file at once.")] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    text: TextColumns = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Propose assertions from reference records, each with its expected fire rate.

    Rules are found on the earlier records and judged on the later ones, by --ts or in the order of the file.
    Columns of a file that are not named otherwise are inputs; full names (inputs.age, outputs.label, entity)
    keep their meaning.
    """
    from outrider.assertions.learn import learn as propose

    if source is not None:
        from .tables import read_table, table_options

        special = {column: name for name, column in (("id", id), ("entity", entity), ("ts", ts)) if column}
        options = table_options(delimiter, decimal, text, named=special)
        found = read_table(source, options)
        reference = _reference(found, source, model or "model", outputs or [], labels or [], special)
    else:
        reference = _traffic(connect(config), model, records)
    try:
        proposals = propose(reference, max_fire_rate=max_fire_rate, units=_units(unit or ()))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if save is not None:
        kept = json_format.dumps([proposal.as_dict() for proposal in proposals], indent=1)
        save.write_text(kept + "\n", encoding="utf-8")
    changed = _keep(proposals, write) if write is not None else False
    if json:
        as_json(
            {
                "records": reference.rows,
                "proposals": [proposal.as_dict() for proposal in proposals],
                "written": str(write) if changed else None,
            }
        )
        return
    rows = [
        proposal.as_dict() | {"expected": _rate(proposal), "drifts": proposal.moved} for proposal in proposals
    ]
    table(rows, COLUMNS, empty=f"{reference.rows} records support no rule")
    if drifting := sum(bool(proposal.drift) for proposal in proposals):
        typer.echo(
            f"{drifting} of {len(proposals)} rest on columns that drift within the reference: "
            "their rates may not hold in what comes next"
        )
    if write is not None:
        typer.echo(f"{write}: {len(proposals)} proposals {'written' if changed else 'already there'}")
    elif proposals:
        typer.echo(
            "--write FILE.py keeps all; --save FILE.json, then `outrider assertions accept`, keeps some"
        )


def accept(
    file: Annotated[Path, typer.Argument(help="File that `outrider assertions learn --save` wrote.")],
    names: Annotated[list[str] | None, typer.Argument(help="Proposals to keep; all when left out.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="Python file; by default the last assertion file of the model.")
    ] = None,
    model: ModelOption = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Put proposals into an assertion file.

    Doing so again changes nothing.
    """
    from outrider.assertions.learn import Proposal

    try:
        listed = json_format.loads(file.read_text(encoding="utf-8"))
        found = [Proposal.from_dict(fields) for fields in listed]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{file}: proposals of `outrider assertions learn --save` expected: {error}"
        ) from error
    known = {proposal.name for proposal in found}
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise OutriderError(
            f"{file} has no proposal {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    chosen = [proposal for proposal in found if not names or proposal.name in names]
    path = to or _file_of(config, model)
    changed = _keep(chosen, path)
    tell(
        {"file": str(path), "accepted": [proposal.name for proposal in chosen], "changed": changed},
        f"{path}: {len(chosen)} proposals {'written' if changed else 'already there'}",
        json=json,
    )


def _keep(proposals: "list[Proposal]", path: Path) -> bool:
    from outrider.dataops.learned.proposals import accept as accept_into

    return accept_into(proposals, path)


def _units(given: Sequence[str]) -> dict[str, str]:
    """Units by full column name."""
    found = {}
    for text in given:
        column, equals, unit = text.partition("=")
        if not column or not equals or not unit:
            raise ConfigError(f"--unit: COLUMN=UNIT expected, such as reading=celsius, got {text!r}")
        found[column if "." in column else f"inputs.{column}"] = unit
    return found


def _rate(proposal: "Proposal") -> str:
    low, high = (f"{100 * bound:.2g}" for bound in proposal.interval)
    return f"{100 * proposal.expected_fire_rate:.2g} % ({low} to {high})"


def _reference(
    found: "pa.Table",
    source: Path,
    model: str,
    outputs: list[str],
    labels: list[str],
    special: dict[str, str],
) -> "Batch":
    """Table as a batch of records; columns without a role are inputs."""
    from outrider.assertions import Batch
    from outrider.assertions.batch import PARTS, SYSTEM

    absent = [name for name in (*outputs, *labels, *special) if name not in found.column_names]
    if absent:
        raise ConfigError(
            f"{source} has no column {', '.join(absent)}; there are {', '.join(found.column_names)}"
        )
    columns: dict[str, Any] = {}
    for name in found.column_names:
        if name.partition(".")[0] in PARTS and "." in name:
            target = name
        elif name in outputs or name in labels:
            target = f"{'outputs' if name in outputs else 'label'}.{name}"
        else:
            target = special.get(name, name if name in SYSTEM else f"inputs.{name}")
        columns[target] = found.column(name)
    return Batch.from_columns(columns, model=model, rows=found.num_rows)


def _traffic(api: Api, model: str | None, most: int) -> "Batch":
    """Newest stored records of a model that share the newest schema."""
    import pyarrow as pa

    from outrider.assertions import Batch

    from .api import one_model, record_tables

    name = one_model(api, model)
    kept = pa.table({})
    for page in record_tables(api, name):
        same = kept.num_rows and page.schema.equals(kept.schema)
        kept = pa.concat_tables([kept, page]) if same else page
        kept = kept.slice(max(0, kept.num_rows - most))
    if not kept.num_rows:
        raise OutriderError(f"the service has stored no record of {name}; --from learns from a file")
    return Batch.from_arrow(kept, model=name)


def _file_of(config: Path | None, model: str | None) -> Path:
    from outrider.monitor.settings.config import find_config, load_settings

    settings = load_settings(find_config(config))
    if model is None and len(settings.models) != 1:
        raise ConfigError(f"--model or --to is needed: the models are {', '.join(settings.models) or 'none'}")
    name = model or next(iter(settings.models))
    if name not in settings.models:
        raise ConfigError(f"no model {name!r}; there are {', '.join(settings.models)}")
    files = settings.models[name].assertions
    if not files:
        raise ConfigError(f"models.{name}.assertions names no file; name one there, or with --to")
    return settings.path(files[-1])
