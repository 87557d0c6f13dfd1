"""``outrider judges``: LLM judges of a running service."""

from typing import Any

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table

COLUMNS = {
    "name": "judge",
    "asked": "asked",
    "cached": "cached",
    "failed": "failed",
    "tokens": "tokens",
    "agreement": "agrees with labels",
    "kappa": "kappa",
}


def judges(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
    """List judges with their cost and agreement with human labels."""
    api = connect(config)
    found = api.get("/v1/judges", model=one_model(api, model))
    if json:
        as_json(found)
        return
    table([_row(judge) for judge in found["judges"]], COLUMNS, empty="no judges: see docs/judges.md")


def _row(judge: dict[str, Any]) -> dict[str, Any]:
    outcomes, rated = judge["outcomes"], judge["agreement"]
    return judge | {
        "cached": outcomes["cached"],
        "failed": outcomes["invalid"] + outcomes["unavailable"],
        "agreement": _interval(rated, "accuracy") + (f", n={rated['n']}" if rated["n"] else ""),
        "kappa": _interval(rated, "kappa"),
    }


def _interval(rated: dict[str, Any], name: str) -> str:
    if rated[name] is None:
        return "no labels yet"
    low, high = rated[f"{name}_low"], rated[f"{name}_high"]
    return f"{rated[name]:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")
