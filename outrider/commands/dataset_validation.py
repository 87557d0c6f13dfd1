"""``outrider dataset expect`` and ``validate``: Great Expectations suites for dataset versions."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError, ValidationRefused

from .api import Api, connect
from .dataset_rows import rows_of, version_of
from .output import Config, Json, as_json, table, tell, write_file

if TYPE_CHECKING:
    from outrider.assertions import Batch
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.trainer.checks_process import JudgedRows

Name = Annotated[str, typer.Argument(help="Dataset, or dataset@version; the newest by default.")]
QUARANTINED = {"row": "row", "id": "id", "reason": "reason"}
MOST_ROWS = 20


def expect(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="File to write, e.g. suite.json; default stdout.")] = None,
    rows: Annotated[
        int, typer.Option(min=2, help="Rows of the smallest version or append that it is for.")
    ] = 100,
    chance: Annotated[
        float, typer.Option(min=1e-6, max=0.5, help="That a sample of the same source fails any of it.")
    ] = 0.01,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write a suite of Great Expectations that new rows like these meet.

    Types, shares of nulls, ranges, value sets, lengths and averages of inputs and labels.
    """
    from outrider.dataops.datasets.reference_suite import reference_suite
    from outrider.dataops.datasets.suite_files import native

    api = connect(config)
    version = version_of(api, name)
    try:
        suite = reference_suite(rows_of(api, version), sample_rows=rows, chance=chance)
    except ValueError as error:
        raise ConfigError(f"{version['dataset']}@{version['number']}: {error}") from None
    of = {"dataset": version["dataset"], "version": version["number"], "digest": version["digest"]}
    content = native(version["dataset"], suite, {"outrider": of | {"sample_rows": rows, "chance": chance}})
    if out is None:
        as_json(content)
        return
    write_file(out, json_format.dumps(content, indent=2) + "\n")
    tell(
        {"file": str(out), "expectations": len(suite)},
        f"{len(suite)} expectations written to {out}; name it in outrider.toml: "
        f'models.{version["model"]}.expectations = "{out}"',
        json=json,
    )


def validate(
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="Read all rows and judge them by the configuration of now.")
    ] = False,
    docs: Annotated[Path | None, typer.Option(help="With --full: file for the Data Docs, as HTML.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a version's validation result, or judge all rows again.

    Exit code 1 when rows, or the version as a whole, do not pass.
    """
    if docs is not None and not full:
        raise ConfigError("--docs needs --full: the version's own Data Docs are on its page")
    api = connect(config)
    version = version_of(api, name)
    of = {"dataset": version["dataset"], "version": version["number"]}
    if not full:
        kept = version["manifest"]["validation"]
        found = of | {"rows": kept.get("rows"), "refused": None, "warnings": kept.get("warnings", [])}
        _say(found | {"quarantined": [], "kept_out": kept.get("quarantined", 0)}, json=json)
        return
    batch = rows_of(api, version)
    try:
        judgement = _judged(_settings(config, version["model"]), version, batch, _parent(api, version))
    except ValidationRefused as error:
        _say(of | {"rows": batch.rows, "refused": str(error), "warnings": [], "quarantined": []}, json=json)
        raise typer.Exit(1) from None
    if docs is not None:
        write_file(docs, judgement.docs)
    bad = [
        {"row": row, "id": str(batch.keys[row]), "reason": reason}
        for row, reason in judgement.verdict.quarantined.items()
    ]
    warnings = judgement.verdict.summary["warnings"]
    _say(of | {"rows": batch.rows, "refused": None, "warnings": warnings, "quarantined": bad}, json=json)
    if bad:
        raise typer.Exit(1)


def warning_line(warning: dict[str, Any]) -> str:
    """Text of a validation warning."""
    count = f"{warning['rows']} row{'' if warning['rows'] == 1 else 's'}"
    rows = f", {count} such as {', '.join(warning['ids'])}" if warning["rows"] else ""
    return f"{warning['severity']}: {warning['text']}{rows}"


def _settings(config: Path | None, model: str) -> "Settings":
    from outrider.monitor.settings.config import find_config, load_settings

    settings = load_settings(find_config(config))
    if model not in settings.models:
        raise ConfigError(f"the configuration has no model {model!r}; there are {', '.join(settings.models)}")
    return settings


def _parent(api: Api, version: dict[str, Any]) -> dict[str, Any] | None:
    """Aggregates of the previous version; None without one."""
    if version["parent"] is None:
        return None
    parent = api.get(f"/v1/datasets/{version['dataset']}/versions/{version['parent']}")
    found: dict[str, Any] | None = parent["manifest"]["validation"].get("aggregates")
    return found


def _judged(
    settings: "Settings", version: dict[str, Any], batch: "Batch", parent: dict[str, Any] | None
) -> "JudgedRows":
    from outrider.dataops.datasets.validation import Earlier
    from outrider.monitor.trainer.checks_process import judged
    from outrider.monitor.trainer.dataset_jobs import rules_of

    own = settings.models[version["model"]].validation
    return judged(
        batch,
        rules_of(settings, version["model"], version["manifest"]["validation"].get("nulls", ())),
        title=f"{version['dataset']}@{version['number']}",
        # All rows are in hand: the version before is only compared with.
        earlier=Earlier(parent, lambda: batch, stays=False),
        checks=[settings.path(file) for file in own.checks],
        deadline_s=own.deadline_s,
    )


def _say(found: dict[str, Any], *, json: bool) -> None:
    if json:
        as_json(found)
        return
    bad = found["quarantined"]
    typer.echo(f"{found['dataset']}@{found['version']}: {found['rows']} rows judged")
    if found.get("kept_out"):
        typer.echo(f"{found['kept_out']} of them were kept out (quarantine)")
    for warning in found["warnings"]:
        typer.echo(warning_line(warning))
    if found["refused"]:
        typer.echo(f"refused: {found['refused']}")
    elif bad:
        typer.echo(f"{len(bad)} rows do not pass")
        table(bad[:MOST_ROWS], QUARANTINED, empty="")
