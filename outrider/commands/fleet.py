"""``outrider fleet``: one line per model, worst first."""

from typing import Any

from .api import connect
from .output import Config, Json, as_json, table

VERDICTS = {
    "critical": "critical", "warning": "warning", "ticket": "ticket", "known": "known",
    "unjudged": "nothing judges it", "learning": "learning: too little to find a fault", "well": "well",
    "waiting": "no records yet",
}  # fmt: skip


def fleet(config: Config = None, json: Json = False) -> None:
    """Show the verdict on each model, worst first, with the next step."""
    found = connect(config).get("/v1/fleet")
    if json:
        as_json(found)
        return
    table(
        [_row(each) for each in found["models"]],
        {"model": "model", "verdict": "verdict", "since": "since", "what": "what", "next_step": "next step",
         "last_record": "last record"},
        empty="no model is configured: add a [models.<name>] section to outrider.toml",
    )  # fmt: skip


def _row(line: dict[str, Any]) -> dict[str, Any]:
    where = f" on {line['slice']}" if line["slice"] else ""
    return line | {
        "verdict": VERDICTS[line["verdict"]],
        "since": line["since"] and line["since"][:19] + "Z",
        "what": line["sentence"] or line["sees"] or f"{line['about']}{where}",
        "last_record": line["last_record"] and line["last_record"][:16] + "Z",
    }
