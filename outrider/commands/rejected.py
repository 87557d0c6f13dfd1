"""``outrider rejected``: records that intake refused, with reasons and counts."""

from .api import connect
from .output import Config, Json, ModelArgument, as_json, table

COLUMNS = {
    "model": "model",
    "reason": "reason",
    "field": "field",
    "count": "records",
    "example": "first id",
    "last": "last",
}


def rejected(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
    """List refused records by reason and field, newest first."""
    found = connect(config).get("/v1/rejected", model=model)
    if json:
        as_json(found)
    else:
        rows = [
            row | {"field": row["field"] or "-", "model": row["model"] or "-"} for row in found["rejected"]
        ]
        table(rows, COLUMNS, empty="no record was refused")
