"""``outrider report``: one model's report, as text, JSON or HTML."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.assertions.statistics.performance import figure_text

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table, write_file

_AGREEMENT = {
    "measure": "by",
    "slice": "slice",
    "rows": "records",
    "raw": "as answered",
    "noise": "noise floor",
    "beyond": "beyond noise",
    "interval": "95 % interval",
    "verdict": "verdict",
}
_VERSIONS = {
    "version": "version",
    "status": "status",
    "judged": "judged",
    "flags_per_1000": "flags per 1,000",
    "suites": "behavioral tests",
    "note": "note",
}


def report(
    model: ModelArgument = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML file, too.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a model in one place.

    Challengers and champion compared, flags, suites, shadow tests.
    """
    api = connect(config)
    found = api.get("/v1/report", model=one_model(api, model))
    if html is not None:
        write_file(html, _page(found))
    if json:
        as_json(found)
        return
    typer.echo(
        f"{found['model']}: champion {found['champion'] or '-'}, {found['records']:,} records, "
        f"{found['flagged']:,} flagged"
    )
    accuracy = found["accuracy"]
    if accuracy["share"] is not None:
        shown = figure_text("accuracy", accuracy["share"], accuracy["low"], accuracy["high"])
        typer.echo(f"accuracy of version {found['accuracy_version'] or '?'}: {shown}, {accuracy['basis']}")
    table([_version(each) for each in found["versions"]], _VERSIONS, empty="no version yet")
    for line in _gaps(found["groups"]):
        typer.echo(line)
    for test in found["shadow_tests"]:
        _show(test)
    if html is not None:
        typer.echo(f"written: {html}")


def _gaps(groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines on gaps between groups that have enough data."""
    for each in groups:
        for gap in each["gaps"]:
            if gap["value"] is not None:
                metric, shown = gap["metric"], [gap[name] for name in ("value", "low", "high")]
                subject = f"by {each['by']} (answer {each['positive']}, version {each['version'] or '?'})"
                yield (
                    f"{subject}: {metric} gap {figure_text(f'{metric}_gap', *shown)}, "
                    f"{gap['highest']} over {gap['lowest']}"
                )


def _show(test: Mapping[str, Any]) -> None:
    state = f"ended {test['ended']}" if test["ended"] else "running"
    advice = test["recommendation"] or test["advice"]
    typer.echo(
        f"\nversion {test['version']} beside {test['champion']}: {advice} "
        f"({test['records']:,} records, {state})"
    )
    if test["verdict"]:
        typer.echo(f"  {test['verdict']['sentence']}")
    because = [test["ended_because"]] if test["ended_because"] else []
    for reason in [*because, *test["reasons"]] or ["no record was answered by both yet"]:
        typer.echo(f"  {reason}")
    if test["agreement"]:
        decides = test["agreement"][0]["measure"]
        shown = [row for row in test["agreement"] if row["measure"] == decides or not row["slice"]]
        table([_agreement(row) for row in shown], _AGREEMENT, empty="")


def _agreement(row: Mapping[str, Any]) -> dict[str, Any]:
    beyond = row["beyond"]
    return {
        "measure": row["measure"],
        "slice": row["slice"] or "all records",
        "rows": f"{row['rows']:,}",
        "raw": f"{row['raw']['value']:.2%}",
        "noise": f"{row['noise']['value']:.2%}" if row["noise"] else None,
        "beyond": f"{beyond['value']:.2%}",
        "interval": f"{beyond['low']:.2%} to {beyond['high']:.2%}",
        "verdict": row["verdict"],
    }


def _version(each: Mapping[str, Any]) -> dict[str, Any]:
    suites = ", ".join(f"{tests} {status}" for status, tests in each["suites"].items())
    return dict(each) | {"suites": suites or None}


def _page(found: Mapping[str, Any]) -> str:
    """Report as one self-contained HTML file."""
    from outrider.monitor.views.agreement.page import view_of
    from outrider.monitor.web.rendering import Pages

    trials = [view_of(test) for test in found["shadow_tests"]]
    return Pages().standalone("report.html", {"r": found, "trials": trials})
