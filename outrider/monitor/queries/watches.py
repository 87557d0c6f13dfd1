"""Watches over new champions, for API and page."""

from typing import Annotated, Any, TypeAlias

from typing_extensions import TypedDict

from outrider.dataops.improvement.watch_evidence import WatchLook
from outrider.dataops.improvement.watches import WatchRow
from outrider.monitor.http.common import iso
from outrider.monitor.http.declared import FieldsOf, Time

_CALM = "nothing proves it worse so far"
_PROVEN = "it is proven to be worse"


_LOOK = FieldsOf(
    WatchLook,
    "WatchLookFigures",
    about="New champion against the former one; a positive difference is worse.",
)
LookFigures: TypeAlias = Annotated[dict[str, Any], _LOOK]


class BoundsLook(TypedDict):
    """Difference and its bounds at so many records."""

    records: int
    value: float
    low: float
    high: float


class WatchFigures(TypedDict):
    """Watch over a champion: a sentence, both looks, their bounds over time."""

    version: str
    former: str
    began: Time | None
    proposed: Time | None
    ended: Time | None
    ended_because: str | None
    outcome: str | None
    by: str | None
    answers: bool
    """Whether the former champion still answers."""
    records: int
    labelled: int
    left_out: dict[str, int]
    sentence: str
    reasons: list[str]
    sentences: dict[str, str]
    flags: LookFigures | None
    labels: LookFigures | None
    flags_history: list[BoundsLook]
    labels_history: list[BoundsLook]


def watch_json(watch: WatchRow) -> WatchFigures:
    found: dict[str, Any] = dict(watch.findings)
    return {
        "version": watch.version,
        "former": watch.former,
        "began": iso(watch.began_us),
        "proposed": iso(watch.proposed_us),
        "ended": iso(watch.ended_us),
        "ended_because": found.get("ended_because"),
        "outcome": watch.outcome or None,
        "by": found.get("by"),
        "answers": watch.is_running and watch.until_seq is None,
        "records": watch.records,
        "labelled": found.get("labelled", 0),
        "left_out": found.get("left_out", {}),
        "sentence": watch_sentence(watch),
        "reasons": found.get("proven", []),
        "sentences": found.get("sentences", {}),
        "flags": found.get("flags"),
        "labels": found.get("labels"),
        "flags_history": found.get("flags_looks", []),
        "labels_history": found.get("labels_looks", []),
    }


def watch_sentence(watch: WatchRow) -> str:
    """Sentence on a watch.

    Examples
    --------
    >>> row = WatchRow("m", "2", 1, "1", 0, None, 1200, None, None, "", {"labelled": 80})
    >>> watch_sentence(row)
    'Version 2 is watched beside version 1: nothing proves it worse so far (1,200 records, 80 labelled).'
    """
    who, former = f"Version {watch.version}", f"version {watch.former}"
    seen = f"{watch.records:,} records, {watch.findings.get('labelled', 0):,} labelled"
    is_proven = bool(watch.findings.get("proven"))
    if watch.is_running:
        if watch.proposed_us is None:
            return f"{who} is watched beside {former}: {_CALM} ({seen})."
        told = _PROVEN if is_proven else "it was proven to be worse, before labels or records changed"
        held = watch.findings.get("held_back")
        todo = f"`outrider rollback {watch.model}`" + (f", not by itself: {held}" if held else "")
        return f"{who} is watched beside {former}: {told} ({seen}); {todo}."
    if watch.outcome == "rolled_back":
        by = "by the watch" if watch.findings.get("by") else "by a person"
        return f"{who} was rolled back to {former} {by} ({seen})."
    if watch.outcome == "superseded":
        why = watch.findings.get("ended_because", "")
        return f"The watch over version {watch.version} ended: {why} ({seen})."
    told = "was proven worse than" if watch.outcome == "proposed" else "was not proven worse than"
    return f"{who} {told} {former} and stayed ({seen})."
