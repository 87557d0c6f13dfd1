"""Explanation of a risen loss: confused classes, wrong records, other incidents."""

from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from outrider.assertions.detection.rises import largest_ratio
from outrider.dataops.ledger.losses import WRONG
from outrider.dataops.ledger.measures import buckets_of
from outrider.dataops.ledger.minutes import minute_of
from outrider.dataops.ledger.outcomes import judged_versions, outcomes_of, standing
from outrider.dataops.ledger.targets import declared_number

from .version_losses import LABEL, BlockLosses

MOST_CONFUSED, MOST_RECORDS, MOST_OTHERS = 5, 5, 10
_RISEN = 2.0
"""Log likelihood ratio, two standard errors, of a rise by the current labels."""
_LATEST = 400
_CELLS = (
    "SELECT predicted, label, hit, sum(CASE WHEN minute_us < ? THEN weight ELSE 0 END),"
    " sum(CASE WHEN minute_us >= ? THEN weight ELSE 0 END) FROM outcome_count"
    " WHERE model = ? AND version = ? AND (? = '' OR slice = ?)"
    " AND (? = '' OR label = ?) GROUP BY predicted, label, hit"
)


class _Cell(NamedTuple):
    predicted: str
    label: str
    is_right: bool
    before: float
    now: float


def _cells(connection: Connection, model: str, version: str, part: str, onset_us: int) -> list[_Cell]:
    minute = minute_of(onset_us)
    label = part.removeprefix(LABEL) if part.startswith(LABEL) else ""
    part = "" if label else part
    given = (minute, minute, model, version, part, part, label, label)
    rows = connection.exec_driver_sql(_CELLS, given)
    return [_Cell(*row) for row in rows]


def is_risen(connection: Connection, model: str, version: str, part: str, onset_us: int) -> bool:
    """True where the current labels show a rise too, by time of the records.

    Corrections may have removed it, and wrong answers that are labelled later than right ones are none.
    """
    cells = _cells(connection, model, version, part, onset_us)
    before, now = sum(cell.before for cell in cells), sum(cell.now for cell in cells)
    if min(before, now) <= 0.0:
        return True
    wrong = [cell for cell in cells if not cell.is_right]
    counts = (sum(cell.before for cell in wrong), before, sum(cell.now for cell in wrong), now)
    return float(largest_ratio(*(np.array(each) for each in counts))) >= _RISEN


def confusions(
    connection: Connection, model: str, version: str, part: str, onset_us: int
) -> list[dict[str, Any]]:
    cells = _cells(connection, model, version, part, onset_us)
    before, now = (
        max(sum(weights), 1e-12)
        for weights in ([cell.before for cell in cells], [cell.now for cell in cells])
    )
    found = []
    for cell in cells:
        counts = (np.array(each) for each in (cell.before, before, cell.now, now))
        weight = 0.0 if cell.is_right else float(largest_ratio(*counts))
        if weight > 0.0:
            shares = {"before": round(cell.before / before, 4), "now": round(cell.now / now, 4)}
            found.append((weight, {"predicted": cell.predicted, "label": cell.label} | shares))
    return [told for _, told in sorted(found, key=lambda one: -one[0])][:MOST_CONFUSED]


def arrived(connection: Connection, model: str, version: str, onset_us: int) -> dict[str, Any]:
    minute = minute_of(onset_us)
    labelled, records = (
        connection.exec_driver_sql(
            f"SELECT coalesce(sum(records), 0) FROM {table}"
            " WHERE model = ? AND version = ? AND minute_us >= ?",
            (model, version, minute),
        ).scalar()
        for table in ("outcome_count", "record_count")
    )
    return {"labelled": labelled, "arrived": round(labelled / records, 4) if records else None}


def other_incidents(connection: Connection, model: str, since_us: int, until_us: int) -> list[dict[str, str]]:
    query = (
        "SELECT kind, assertion, slice FROM incident WHERE model = ? AND kind NOT IN ('performance', 'clock')"
        " AND opened_us BETWEEN ? AND ? ORDER BY opened_us LIMIT ?"
    )
    rows = connection.exec_driver_sql(query, (model, since_us, until_us, MOST_OTHERS))
    return [{"kind": row.kind, "assertion": row.assertion, "slice": row.slice} for row in rows]


def wrong_records(connection: Connection, model: str, losses: BlockLosses, part: str) -> list[str]:
    query = (
        "SELECT record_id FROM label WHERE model = ? AND record_id != '' ORDER BY seq DESC, row DESC LIMIT ?"
    )
    newest = dict.fromkeys(connection.exec_driver_sql(query, (model, _LATEST)).scalars())
    known = standing(connection, model, newest)
    rows = [known[one] for one in newest if one in known]
    versions = judged_versions(connection, model, rows)
    outcomes = outcomes_of(rows, declared_number(connection, model))
    found = []
    for row, version, outcome in zip(rows, versions, outcomes, strict=True):
        bucket = 0 if outcome.hit else WRONG
        if not np.isnan(outcome.error):
            bucket = int(buckets_of(np.abs([outcome.error]))[0])
        is_lost = bucket == WRONG or (losses.bound is not None and bucket > losses.bound)
        if is_lost and version == losses.version and part in ("", row.slice or "", LABEL + outcome.label):
            found.append(row.id)
    return found[:MOST_RECORDS]
