"""``outrider assertions show, overlap, suspend, resume``: quality and suspension of an assertion."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .api import connect, one_model
from .durations import seconds
from .output import Config, Json, ModelArgument, ModelOption, as_json, table, tell

Name = Annotated[str, typer.Argument(help="Name of the assertion or live test.")]


def show(name: Name, model: ModelOption = None, config: Config = None, json: Json = False) -> None:
    """Show every figure of one assertion."""
    api = connect(config)
    found = api.get(f"/v1/assertions/{one_model(api, model)}/{name}")
    if json:
        as_json(found)
        return
    one = found["assertion"]
    typer.echo(f"{one['name']} ({one['level']}, revision {one['revision']}): {one['description']}")
    lead, detection = one["lead"], one["detection"]
    median = "-" if lead["median_s"] is None else f"{lead['median_s']:.0f} s"
    facts = {
        "reads": ", ".join(one["reads"]) or "-",
        "precision": rate_text(one["precision"]) + f", {one['reviewed']} reviewed",
        **{f"  {part or '-'}": rate_text(rate) for part, rate in one["by_slice"].items()},
        "coverage": rate_text(detection["coverage"]) + " of the known errors",
        "false failures": rate_text(detection["false_failures"]) + " of what was right",
        "fires on": rate_text(one["fire_rate"]) + f", {one['flags']} flags in all",
        "lead over labels": f"{median}, {lead['known']} of {lead['episodes']} episodes shown by a label",
        "cost": "-" if one["cost_us"] is None else f"{one['cost_us']:.2f} µs per record",
        "state": state_text(one),
    }
    for title, text in facts.items():
        typer.echo(f"  {title:18} {text}")
    for rate in found["rates"]:
        typer.echo(f"  {'live, version ' + (rate['version'] or '-'):18} {live_text(rate)}")
    if one["last_strike"]:
        typer.echo(f"  {'last strike':18} {one['last_strike']}")
    table(
        [_pair(pair) for pair in found["overlaps"]],
        {
            "b": "fires together with",
            "both": "both",
            "jaccard": "jaccard",
            "ba": "P(other|this)",
            "ab": "P(this|other)",
        },
        empty="no other assertion fires on its records",
    )


def overlap(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
    """Show which assertions fire on the same records, most alike first."""
    api = connect(config)
    found = api.get("/v1/overlaps", model=one_model(api, model))
    if json:
        as_json(found)
        return
    columns = {
        "a": "a",
        "b": "b",
        "both": "both",
        "jaccard": "jaccard",
        "ba": "P(b|a)",
        "ab": "P(a|b)",
        "note": "",
    }
    table([_pair(pair) for pair in found["overlaps"]], columns, empty="no two assertions fire together")


def suspend(
    name: Name,
    until: Annotated[str | None, typer.Option(help="End, ISO 8601; without one until resumed.")] = None,
    for_: Annotated[str | None, typer.Option("--for", help="90s, 30m, 2h or 1d.")] = None,
    reason: Annotated[str, typer.Option(help="Reason, shown on the page.")] = "",
    model: ModelOption = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Suspend an assertion for the champion and all challengers.

    A new revision of the assertion is not suspended.
    """
    api = connect(config)
    body = {"until": until, "for_s": None if for_ is None else seconds(for_), "reason": reason}
    found = api.post(f"/v1/assertions/{one_model(api, model)}/{name}/suspend", body)
    tell(found, f"{name} {state_text(found)}", json=json)


def resume(name: Name, model: ModelOption = None, config: Config = None, json: Json = False) -> None:
    """Let a suspended assertion judge again."""
    api = connect(config)
    found = api.post(f"/v1/assertions/{one_model(api, model)}/{name}/resume", {})
    tell(found, f"{name} is active", json=json)


def listed(row: Mapping[str, Any]) -> dict[str, Any]:
    until = row["suspended_until_us"]
    state = "suspended" if until else "proposed for suspension" if row["proposal"] else "active"
    return {
        **row,
        "flags": row["flags"].get("champion", 0),
        "per_1000": row["per_1000"].get("champion", 0.0),
        "precision": rate_text(row["precision"]),
        "state": state,
    }


def rate_text(rate: Mapping[str, Any]) -> str:
    """Percentage with its interval and number of cases."""
    if not rate["trials"]:
        return "-"
    low, high = 100 * rate["low"], 100 * rate["high"]
    basis = rate.get("basis", f"n {rate['trials']}")
    return f"{100 * rate['share']:.1f} % ({low:.1f} to {high:.1f}, {basis})"


def live_text(rate: Mapping[str, Any]) -> str:
    share, low, high = (f"{100 * rate[name]:.1f}" for name in ("rate", "low", "high"))
    alarm = f"; above it since {rate['alarm']}" if rate["alarm"] else ""
    return (
        f"fails {share} % ({low} to {high} at all times, {rate['failed']} of {rate['asked']} asked); "
        f"{100 * rate['tolerance']:.1f} % are tolerated{alarm}"
    )


def state_text(one: Mapping[str, Any]) -> str:
    """Active, suspended, or proposed for suspension."""
    if one["suspended_until"]:
        forever = str(one["suspended_until"]).startswith("9999")
        until = "resumed" if forever else one["suspended_until"]
        return f"is suspended until {until}: {one['suspension'] or 'after its strikes'}"
    if one.get("proposal"):
        return f"is active; proposed for suspension: {'; '.join(one['proposal'])}"
    return "is active"


def _pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    notes = [f"{a} adds little to {b}" for a, b in (("a", "b"), ("b", "a")) if pair[f"{a}_is_subsumed"]]
    shares = {"ba": rate_text(pair["b_given_a"]), "ab": rate_text(pair["a_given_b"])}
    return {**pair, **shares, "note": ", ".join(notes)}
