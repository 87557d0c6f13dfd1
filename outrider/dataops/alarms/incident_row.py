"""Incident as stored, and in words: share, onset, slices, next step, guarantee."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from outrider.assertions.detection.loss_rises import DAYS
from outrider.assertions.detection.weekly import WEEKS
from outrider.assertions.times import utc_text
from outrider.dataops.ledger.stated_values import slice_words

MOST_NAMED = 3
NEXT_STEPS: Mapping[str, str] = {
    "label": "label some of its records",
    "roll_back": "roll the champion back",
    "mute": "look at the revised assertion; mute it if that was wanted",
    "retrain": "retrain",
    "check_sender": "check what sends the records",
    "mend_assertion": "mend the assertion",
}
_OF_OPENING = ("performance", "drift", "live_test", "version_mismatch")
_PARTS: Mapping[str, str] = {"inputs.*": "the inputs", "attrs.*": "the attributes"}
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
}


@dataclass(frozen=True, slots=True)
class IncidentShare:
    """Share of flagged entities with its 95 % interval.

    An entity counts once a minute.

    Attributes
    ----------
    of
        Which entities: of a slice, of a version, or all.
    since, until
        Begin and end of the minutes that count, never before the onset: of an open incident the last five, or
        as many more of the last hour as have 30 entities; of a resolved one all.
    is_now
        False of a resolved incident, and where nothing has been judged for 15 minutes: the share is of those
        before ``until``.
    highest
        Of a resolved incident, the highest share of a quarter of an hour with 30 entities; else None.
    """

    share: float
    low: float
    high: float
    flagged: int
    seen: int
    of: str
    since: str
    until: str
    is_now: bool
    highest: float | None

    @property
    def minutes(self) -> int:
        """Minutes that count."""
        ends = (datetime.fromisoformat(end) for end in (self.until, self.since))
        return round((next(ends) - next(ends)).total_seconds() / 60)


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """Incident as stored."""

    id: str
    model: str
    assertion: str
    slice: str
    kind: str
    """``flags``, ``silence``, ``performance``, ``drift``, ``live_test``, ``event_time``, ``clock``,
    ``version_mismatch`` or ``version_retired``."""
    status: str
    opened_us: int
    last_flag_us: int
    muted_until_us: int
    resolved_us: int | None
    flags: int
    level: str
    first_record: str
    note: str
    details: dict[str, Any]
    """As in the event ``incident.opened``, when it opened; ``history`` is what became of it since, as of
    :class:`IncidentStep`."""
    share: IncidentShare | None = None
    """Of flags, the share now, or over the time of a resolved one."""

    @property
    def sentence(self) -> str:
        """Share, onset and slices in one sentence."""
        return incident_sentence(self)

    @property
    def next_step(self) -> str:
        """Proposed step in words; empty for none and when resolved."""
        return next_step(self)

    @property
    def present(self) -> dict[str, Any]:
        """Share, sentence and next step, as events and the API have them."""
        share = None if self.share is None else asdict(self.share)
        return {"sentence": self.sentence, "next_step": self.next_step, "share": share}


def incident_sentence(row: IncidentRow) -> str:
    """Share, onset and slices of an incident in one sentence.

    Figures of the opening say so.

    Examples
    --------
    >>> onset = dict.fromkeys(("first", "likeliest", "last"), "2026-01-05T09:52:00Z")
    >>> share = IncidentShare(
    ...     share=0.9821, low=0.9504, high=0.9939, flagged=165, seen=168, of="entities of eu",
    ...     since="2026-01-05T10:25:00Z", until="2026-01-05T10:30:00Z", is_now=True, highest=None,
    ... )
    >>> incident_sentence(
    ...     IncidentRow(
    ...         id="i", model="m", assertion="odd", slice="eu", kind="flags", status="open",
    ...         opened_us=0, last_flag_us=0, muted_until_us=0, resolved_us=None, flags=12, level="warning",
    ...         first_record="r", note="", details={"before": {"share": 0.012}, "onset": onset}, share=share,
    ...     )
    ... )
    'odd flags 98.2 % of the entities of eu in the last 5 minutes, since 2026-01-05 09:52 UTC; 1.2 % before'
    """
    told = row.details.get("sentence")
    if told:
        return _readable(str(told))
    if row.kind != "flags":
        return _readable(row.note) + _of_opening(row) if row.note else f"{row.assertion}, since {since(row)}"
    if row.level == "critical" or not _is_share(row.details.get("before")):
        whom, share = for_whom(row), row.share
        records = f"{row.flags:,} records of {whom}" if whom else f"{row.flags:,} records"
        shared = "" if share is None else f"; {_shared(row, share)}"
        return f"{row.assertion} has flagged {records} since {since(row)}{shared}{_silent(row)}"
    before = _percent(row.details["before"]["share"])
    return f"{row.assertion} {_flagging(row)}; {before} before{_silent(row)}"


def next_step(row: IncidentRow) -> str:
    """Proposed step in words; empty for none and when resolved."""
    action, columns = row.details.get("action"), row.details.get("reads")
    if action is None or row.status == "resolved":
        return ""
    if row.kind == "drift" or row.details.get("silent") == "column":
        columns = [row.assertion]
    whom = for_whom(row) or (row.share.of.removeprefix("entities of ") if row.share is not None else "")
    if action == "check_sender" and columns:
        parts = f" for {whom}" if whom not in ("", "all entities") else ""
        return f"check what sends {_columns(columns)}{parts}"
    if action == "label" and columns in ([], ["*"]):
        return f"{NEXT_STEPS['label']}; which columns {row.assertion} reads is not known"
    return NEXT_STEPS.get(str(action), "")


def guarantee_words(row: IncidentRow) -> str:
    guarantee = row.details.get("guarantee")
    if isinstance(guarantee, Mapping) and guarantee.get("words"):
        return str(guarantee["words"])
    if isinstance(guarantee, Mapping) and {"alpha", "horizon_s"} <= guarantee.keys():
        days = guarantee["horizon_s"] / 86_400
        words = (
            f"While nothing changes, a model opens any such incident within {days:g} days with a chance of "
            f"at most {100 * guarantee['alpha']:g} %, however often it is looked at."
        )
        if guarantee.get("weeks", WEEKS) < WEEKS:
            words += (
                f" Counts reach back less than {WEEKS} weeks: no weekend is known yet, and this may be one."
            )
        if guarantee.get("days", DAYS) < DAYS:
            words += f" Labels are of less than {DAYS} days: how much days differ is presumed, not known yet."
        return words
    if row.details.get("silent") == "assertion":
        return "Failures are counted; nothing is estimated."
    if row.level == "critical" and row.kind == "flags":
        return "A critical assertion is a rule: its first flag opens an incident, and nothing is estimated."
    return _SURE.get(row.kind, "No guarantee is stored with it.")


def since(row: IncidentRow) -> str:
    onset = row.details.get("onset")
    at = onset["likeliest"] if isinstance(onset, Mapping) and onset else utc_text(row.opened_us)
    return _minute(at)


def for_whom(row: IncidentRow) -> str:
    causes = row.details.get("explained_by") or ()
    named = list(
        dict.fromkeys(slice_words(cause.get("slice") or "") for cause in causes if not cause.get("version"))
    )
    if row.slice or not all(named):  # a cause without a slice is all records
        return slice_words(row.slice)
    return ", ".join(named[:MOST_NAMED]) + (" …" if len(named) > MOST_NAMED else "")


def _flagging(row: IncidentRow) -> str:
    share = row.share
    if share is None:  # nothing has been counted since
        whom, told = for_whom(row), row.details["now"]
        entities = f"the entities of {whom}" if whom else "all entities"
        return f"flagged {_percent(told['share'])} of {entities} when it opened, since {since(row)}"
    if row.resolved_us is not None:
        return f"flagged {_shared(row, share)}"
    return f"{'flags' if share.is_now else 'flagged'} {_shared(row, share)}, since {since(row)}"


def _shared(row: IncidentRow, share: IncidentShare) -> str:
    told = f"{_percent(share.share)} of {share.of if share.of.startswith('all ') else f'the {share.of}'}"
    if row.resolved_us is not None:
        highest = "" if share.highest is None else f", {_percent(share.highest)} at its highest"
        return f"{told} from {_minute(share.since)} to {_minute(share.until)}{highest}"
    minutes = "minute" if share.minutes == 1 else f"{share.minutes} minutes"
    if share.is_now:
        return f"{told} in the last {minutes}"
    return f"{told} in the {minutes} before {_minute(share.until)}"


def _silent(row: IncidentRow) -> str:
    if row.share is None or row.share.is_now or row.resolved_us is not None:
        return ""
    return f"; no record was judged since {_minute(row.share.until)}"


def _of_opening(row: IncidentRow) -> str:
    return f" (when it opened, {_minute(utc_text(row.opened_us))})" if row.kind in _OF_OPENING else ""


def _columns(columns: Sequence[str]) -> str:
    named = [_PARTS.get(name, name.partition(".")[2] or name) for name in columns]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def _is_share(side: Any) -> bool:
    return isinstance(side, Mapping) and "share" in side


def _minute(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"


def _readable(text: str) -> str:
    return _TIME.sub(r"\1 \2 UTC", text)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
