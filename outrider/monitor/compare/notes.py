"""Notes of a report, for a person to act on."""

from collections.abc import Iterator, Mapping
from typing import Any

from .plan import ComparePlan
from .run import DEAD, ComparisonRun
from .sides import Side

_CUT = ("truncated", "bytes of something else")


def notes(run: ComparisonRun, plan: ComparePlan, funnel: Mapping[str, Any]) -> list[str]:
    """Sentences on the traffic, the slices and the systems."""
    return [*_of_traffic(run, funnel), *_of_slices(run, plan), *_of_systems(run)]


def _of_traffic(run: ComparisonRun, funnel: Mapping[str, Any]) -> Iterator[str]:
    lines = funnel.get("lines", [])
    for line in lines[:1]:
        where = f"the first is {line['file']}:{line['line']}: {line['reason']}"
        is_cut = any(word in line["reason"] for word in _CUT)
        what = (
            "bodies may be cut or compressed: let them be copied whole" if is_cut else "mend or remove them"
        )
        yield f"{funnel['unreadable']:,} records cannot be read; {where}; {what}"
    for each in funnel.get("reasons", []):
        yield f"{each['count']:,} requests are not asked: {each['reason']}"
    if further := funnel.get("further turns"):
        yield f"{further:,} records are not asked: of each conversation one counts, which is drawn"
    if run.unrecorded:
        yield f"{run.unrecorded:,} records hold no answer of production: name --production to ask it"
    if funnel.get("seen") == 0:
        yield "the traffic holds no record"
    if came := funnel.get("came redacted"):
        yield f"{came:,} records came redacted: what production answered to them then is not compared"
    if redacted := funnel.get("redacted"):
        yield f"dropped or redacted: {', '.join(redacted)}"
    for name in funnel.get("not_redacted", []):
        yield f"--drop, --hash: {name} did not occur: check its spelling"


def _of_slices(run: ComparisonRun, plan: ComparePlan) -> Iterator[str]:
    there = sorted(name for name in run.columns if name.startswith("attrs.")) or ["no attribute"]
    for name in plan.slices:
        if run.columns and name not in run.columns:
            yield f"--slice {name}: no record has it; there is {', '.join(there[:10])}"


def _of_systems(run: ComparisonRun) -> Iterator[str]:
    for (one, other), count in run.alike.items():
        if count >= DEAD:
            yield f"{one} and {other} gave equal answers to all {count:,} questions: are they one?"
    for side in (run.production, *(each.side for each in run.standings)):
        yield from _of_side(side)
    for standing in run.standings:
        if standing.is_silent and not standing.side.is_unasked:
            asked = sum(standing.side.fates.values())
            yield f"{standing.name} did not answer any more and was asked {asked:,} questions only"


def _of_side(side: Side) -> Iterator[str]:
    if count := side.fates.get("unasked"):
        many = (
            "question never left this machine and says"
            if count == 1
            else "questions never left this machine and say"
        )
        yield f"{side.name}: {count:,} {many} nothing of it; most often: {side.why_unasked}"
    if side.cached:
        both = f"a cache gave {side.cached:,} of {sum(side.fates.values()):,} answers"
        yield f"{side.name}: {both}, which tell no noise; have it pass by requests with x-outrider-shadow"
    if side.retries:
        yield f"{side.name} asked for patience {side.retries:,} times (429, 503): a lower --rate spares it"
