"""``outrider dataset check``: assertions on a dataset version, with labels as outputs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .api import connect
from .dataset_leaks import tell_report
from .dataset_rows import rows_of, version_of
from .output import Config, Json, as_json, table

if TYPE_CHECKING:
    from outrider.assertions import Assertion, Batch, Flags

COUNTS = {
    "assertion": "assertion",
    "level": "level",
    "flags": "flags",
    "rate": "rate",
    "error": "could not judge",
}
ROWS = {"id": "row", "count": "assertions", "assertions": "fired"}


def check(
    name: Annotated[str, typer.Argument(help="Dataset, or dataset@version; the newest by default.")],
    top: Annotated[int, typer.Option(help="Suspicious rows to show.")] = 20,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit code 1 when a critical assertion fired.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Run the model's assertions on a dataset version.

    Its labels take the place of the model's outputs.
    """
    from outrider.assertions.flags.validate import label_view

    api = connect(config)
    version = version_of(api, name)
    dataset, whole = version["dataset"], rows_of(api, version)
    view = label_view(whole)
    flags, errors = judged(_assertions(config, version["model"]), view)
    found = _report(flags, errors, top)
    report = version["manifest"].get("leaks")
    if json:
        head = {"dataset": dataset, "version": version["number"], "rows": whole.rows, "labelled": view.rows}
        head["leaks"] = report
        as_json(head | found)
    else:
        typer.echo(f"{dataset}@{version['number']}: {view.rows} of {whole.rows} rows are labelled")
        table(found["assertions"], COUNTS, empty=f"no assertion is configured for {version['model']}")
        shown = [row | {"count": len(row["assertions"])} for row in found["suspicious"]]
        shown = [row | {"assertions": ", ".join(row["assertions"])} for row in shown]
        table(shown, ROWS, empty="no label is suspicious")
        if report:
            tell_report(report)
    if fail and any(row["level"] == "critical" and row["flags"] for row in found["assertions"]):
        raise typer.Exit(1)


def judged(assertions: "list[Assertion]", view: "Batch") -> "tuple[Flags, dict[str, str]]":
    """Flags of assertions on labels, and reasons for assertions not run."""
    from outrider.assertions import Checker
    from outrider.assertions.flags.validate import lacking

    able, errors = [], {}
    for judge in assertions:
        if absent := lacking(judge, view):
            errors[judge.name] = f"reads {', '.join(absent)}, which no label has"
            continue
        try:
            Checker([judge]).check(view)
            able.append(judge)
        except Exception as error:  # noqa: BLE001 - user code: whatever it raises is its own
            errors[judge.name] = f"{type(error).__name__}: {error}"
    return Checker(able).check(view), errors


def _report(flags: "Flags", errors: dict[str, str], top: int) -> dict[str, Any]:
    from outrider.assertions.flags.validate import suspicious

    rows = max(flags.batch.rows, 1)
    counts: list[dict[str, Any]] = [
        {
            "assertion": judge.name,
            "level": judge.level,
            "flags": flags.counts[judge.name],
            "rate": flags.counts[judge.name] / rows,
            "error": None,
        }
        for judge in flags.assertions
    ]
    counts += [
        {"assertion": judge, "level": None, "flags": None, "rate": None, "error": error.partition(";")[0]}
        for judge, error in errors.items()
    ]
    worst = suspicious(flags)
    keys = flags.batch.keys
    fired = [
        {
            "id": str(keys[row]),
            "assertions": [
                flags.assertions[code].name for code in sorted(set(flags.code[flags.row == row].tolist()))
            ],
        }
        for row in worst.row[:top].tolist()
    ]
    return {"assertions": counts, "suspicious": fired, "flagged": len(worst.row)}


def _assertions(config: Path | None, model: str) -> "list[Assertion]":
    from outrider.assertions import load_assertions
    from outrider.monitor.settings.config import find_config, load_settings

    settings = load_settings(find_config(config))
    if model not in settings.models:
        raise ConfigError(f"the configuration has no model {model!r}; there are {', '.join(settings.models)}")
    files = settings.models[model].assertions
    return [judge for file in files for judge in load_assertions(settings.path(file))]
