"""Incidents in words: cause, onset, slices, guarantee."""

import re
from collections.abc import Mapping
from typing import Any

from outrider.assertions.times import utc_text
from outrider.dataops.ledger.stated_values import slice_words

from .stored_incidents import IncidentRow

MOST_NAMED = 3
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?Z?")
_COUNTED = "Records are counted; nothing is estimated."
_SURE: Mapping[str, str] = {
    "live_test": (
        "The failure rate is proven to be above what is tolerated: its interval holds at all times together, "
        "however often it is looked at."
    ),
    "event_time": _COUNTED,
    "version_mismatch": _COUNTED,
    "version_retired": "The work under way was read when its process ended; nothing is estimated.",
    "clock": "The journal knows each step of the clock; nothing is estimated.",
    "flood": "A rule of an earlier release opened it, which promised nothing.",
}


def incident_sentence(row: IncidentRow) -> str:
    """Cause, onset and slices of an incident in one sentence.

    Examples
    --------
    >>> share = {"before": {"share": 0.012, "seen": 900}, "now": {"share": 0.15, "seen": 80}}
    >>> onset = dict.fromkeys(("first", "likeliest", "last"), "2026-01-05T09:52:00Z")
    >>> incident_sentence(
    ...     IncidentRow(
    ...         id="i", model="m", assertion="odd_size", slice="clinic-2", kind="flags", status="open",
    ...         opened_us=0, last_flag_us=0, muted_until_us=0, resolved_us=None, flags=12, level="warning",
    ...         first_record="r", note="", details=share | {"onset": onset},
    ...     )
    ... )
    'odd_size flags 15.0 % of the entities of clinic-2 since 2026-01-05 09:52 UTC, 1.2 % before'
    """
    told = row.details.get("sentence")
    if told:
        return _readable(str(told))
    whom, at = for_whom(row), since(row)
    if row.kind == "flags" and _has_shares(row.details) and row.level != "critical":
        before, now = (_percent(row.details[when]["share"]) for when in ("before", "now"))
        entities = f"the entities of {whom}" if whom else "all entities"
        return f"{row.assertion} flags {now} of {entities} since {at}, {before} before"
    if row.kind in ("flags", "flood"):
        records = f"{row.flags:,} records of {whom}" if whom else f"{row.flags:,} records"
        return f"{row.assertion} has flagged {records} since {at}"
    return _readable(row.note) or f"{row.assertion}, since {at}"


def guarantee_words(row: IncidentRow) -> str:
    """Guarantee of an incident in words."""
    guarantee = row.details.get("guarantee")
    if isinstance(guarantee, Mapping) and guarantee.get("words"):
        return str(guarantee["words"])
    if isinstance(guarantee, Mapping) and {"alpha", "horizon_s"} <= guarantee.keys():
        days = guarantee["horizon_s"] / 86_400
        return (
            f"While nothing changes, a model opens any such incident within {days:g} days with a chance of "
            f"at most {100 * guarantee['alpha']:g} %, however often it is looked at."
        )
    if row.details.get("silent") == "assertion":
        return "Failures are counted; nothing is estimated."
    if row.level == "critical" and row.kind == "flags":
        return "A critical assertion is a rule: its first flag opens an incident, and nothing is estimated."
    return _SURE.get(row.kind, "No guarantee is stored with it.")


def since(row: IncidentRow) -> str:
    """Likeliest onset, or the time of opening, to the minute."""
    onset = row.details.get("onset")
    at = onset["likeliest"] if isinstance(onset, Mapping) and onset else utc_text(row.opened_us)
    return f"{at[:16].replace('T', ' ')} UTC"


def for_whom(row: IncidentRow) -> str:
    """Slices of an incident or of its causes; empty for all records."""
    causes = row.details.get("explained_by") or ()
    named = list(
        dict.fromkeys(slice_words(cause.get("slice") or "") for cause in causes if not cause.get("version"))
    )
    if row.slice or not all(named):  # a cause without a slice is all records
        return slice_words(row.slice)
    return ", ".join(named[:MOST_NAMED]) + (" …" if len(named) > MOST_NAMED else "")


def _has_shares(details: Mapping[str, Any]) -> bool:
    sides = [details.get(when) for when in ("before", "now")]
    return all(isinstance(side, Mapping) and "share" in side for side in sides)


def _readable(text: str) -> str:
    """Text with its times to the minute."""
    return _TIME.sub(r"\1 \2 UTC", text)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
