"""Explanation of a loss that has risen: confused classes, wrong records, other incidents, arrived labels."""

from typing import Any

import numpy as np
from sqlalchemy import Connection

from outrider.assertions.detection.rises import largest_ratio
from outrider.dataops.ledger.losses import WRONG
from outrider.dataops.ledger.measures import buckets_of
from outrider.dataops.ledger.minutes import minute_of
from outrider.dataops.ledger.outcomes import ClassNames, judged_versions, outcomes_of, standing

from .version_losses import VersionLosses

MOST_CONFUSED, MOST_RECORDS, MOST_OTHERS = 5, 5, 10
_LATEST = 400
"""Newest labels in which wrong records are looked for."""
_CELLS = (
    "SELECT predicted, label, hit, sum(CASE WHEN minute_us < ? THEN weight ELSE 0 END),"
    " sum(CASE WHEN minute_us >= ? THEN weight ELSE 0 END) FROM outcome_count"
    " WHERE model = ? AND version = ? AND (? = '' OR slice = ?) GROUP BY predicted, label, hit"
)


def _cells(
    connection: Connection, model: str, version: str, part: str, onset_us: int
) -> list[tuple[str, str, bool, float, float]]:
    """Answer, label, whether right, weight of records before and since an onset."""
    minute = minute_of(onset_us)
    rows = connection.exec_driver_sql(_CELLS, (minute, minute, model, version, part, part))
    return [(row[0], row[1], bool(row[2]), float(row[3]), float(row[4])) for row in rows]


def is_corrected(connection: Connection, model: str, version: str, part: str, onset_us: int) -> bool:
    """True where the labels that count now say that no larger share has been wrong since an onset."""
    cells = _cells(connection, model, version, part, onset_us)
    sums = [sum(cell[side] for cell in cells) for side in (3, 4)]
    wrong = [sum(cell[side] for cell in cells if not cell[2]) for side in (3, 4)]
    return bool(min(sums) > 0.0 and wrong[1] / sums[1] <= wrong[0] / sums[0])


def confusions(
    connection: Connection, model: str, version: str, part: str, onset_us: int
) -> list[dict[str, Any]]:
    """Wrong answers by class whose share of the records has risen most, ranked."""
    cells = _cells(connection, model, version, part, onset_us)
    sums = [max(sum(cell[side] for cell in cells), 1e-12) for side in (3, 4)]
    found = []
    for predicted, label, is_right, before, now in cells:
        counts = (np.array(each) for each in (before, sums[0], now, sums[1]))
        weight = 0.0 if is_right else float(largest_ratio(*counts))
        if weight > 0.0:
            shares = {"before": round(before / sums[0], 4), "now": round(now / sums[1], 4)}
            found.append((weight, {"predicted": predicted, "label": label} | shares))
    return [told for _, told in sorted(found, key=lambda one: -one[0])][:MOST_CONFUSED]


def arrived(connection: Connection, model: str, version: str, onset_us: int) -> dict[str, Any]:
    """Records of a version since an onset that have a label, of all."""
    minute = minute_of(onset_us)
    labelled, records = (
        connection.exec_driver_sql(
            f"SELECT coalesce(sum(records), 0) FROM {table} WHERE model = ? AND version = ? AND minute_us >= ?",
            (model, version, minute),
        ).scalar()
        for table in ("outcome_count", "record_count")
    )
    return {"labelled": labelled, "arrived": round(labelled / records, 4) if records else None}


def other_incidents(connection: Connection, model: str, since_us: int, until_us: int) -> list[dict[str, str]]:
    """Incidents of other kinds that opened about the same time."""
    query = (
        "SELECT kind, assertion, slice FROM incident WHERE model = ? AND kind NOT IN ('performance', 'clock')"
        " AND opened_us BETWEEN ? AND ? ORDER BY opened_us LIMIT ?"
    )
    rows = connection.exec_driver_sql(query, (model, since_us, until_us, MOST_OTHERS))
    return [{"kind": row.kind, "assertion": row.assertion, "slice": row.slice} for row in rows]


def wrong_records(connection: Connection, model: str, losses: VersionLosses, part: str) -> list[str]:
    """Newest labelled records of a version that count as lost, five at most."""
    query = (
        "SELECT record_id FROM label WHERE model = ? AND record_id != '' ORDER BY seq DESC, row DESC LIMIT ?"
    )
    newest = dict.fromkeys(connection.exec_driver_sql(query, (model, _LATEST)).scalars())
    known = standing(connection, model, newest)
    rows = [known[one] for one in newest if one in known]
    versions = judged_versions(connection, model, rows)
    outcomes = outcomes_of([(row.predicted, row.value) for row in rows], ClassNames())
    found = []
    for row, version, outcome in zip(rows, versions, outcomes, strict=True):
        bucket = 0 if outcome.hit else WRONG
        if not np.isnan(outcome.error):
            bucket = int(buckets_of(np.abs([outcome.error]))[0])
        is_lost = bucket == WRONG or (losses.bound is not None and bucket > losses.bound)
        if is_lost and version == losses.version and part in ("", row.slice or ""):
            found.append(row.id)
    return found[:MOST_RECORDS]
