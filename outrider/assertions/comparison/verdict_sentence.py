"""Verdict on a candidate as one sentence."""

from .agreement import Measure
from .verdict import GENERAL, CandidateVerdict, MeasureVerdict, Word, percent

_UNSAID: tuple[Measure, ...] = ("label", "text")
"""Measures that the sentence does not name."""


def verdict_sentence(
    name: str, champion: str, found: MeasureVerdict, measure: Measure, word: Word, margin: float
) -> str:
    """Verdict on a candidate in one sentence.

    Parameters
    ----------
    name, champion
        Display names of candidate and production.
    found
        Verdict by the deciding measure.
    word
        Verdict over all deciding measures.

    Examples
    --------
    >>> found = MeasureVerdict("same", 0.0, 0.0, 0.013, 1200, 0, "", is_noise_known=True)
    >>> verdict_sentence("twin", "version 1", found, "label", found.word, 0.02)
    'twin answers the same as version 1: 1,200 records rule out a difference beyond noise of more than 1.3 %'
    """
    by = "" if measure in _UNSAID else f" ({measure})"
    beyond = "beyond noise in " if found.is_noise_known else "in "
    apart = f"{beyond}{share_text(found.value, found.low, found.high)} of {found.rows:,} records{by}"
    if word == "different":
        return f"{name} is different: {apart}"
    if word == "close":
        below = f"not more than the margin of {percent(margin)}"
        return f"{name} is close to {champion}: it differs {apart}, {below}"
    if word == "same":
        why = f"{found.rows:,} records rule out a difference beyond noise of more than {percent(found.high)}"
        return f"{name} answers the same as {champion}: {why}"
    more = "" if found.more is None else f"about {found.more:,} more records; "
    return f"{name}: undecided: {more}it differs {apart}: {found.why}"


def details_sentence(verdict: CandidateVerdict) -> str:
    """End of the sentence: further proven differences, and rare classes."""
    clauses = []
    if verdict.word == "different" and verdict.decided_by in GENERAL:
        clauses = [
            f"in {name} by {share_text(each.value, each.low, each.high)}"
            for name, each in verdict.measures.items()
            if each.is_proven and name not in GENERAL
        ]
    clauses += [
        f"of {each.rows:,} records of {name!r} it changes {share_text(each.value, each.low, each.high)}"
        for name, each in verdict.apart.items()
    ]
    if verdict.unseen and verdict.word in ("same", "close"):
        named = [f"{name!r} ({rows:,} records)" for name, rows in [*verdict.unseen.items()][:3]]
        more = f" and {len(verdict.unseen) - 3} more" if len(verdict.unseen) > 3 else ""
        clauses.append(f"too rare to see a change: {', '.join(named)}{more}")
    score = verdict.shown.get("score")
    if score is not None and score.is_proven:
        apart = share_text(score.value, score.low, score.high)
        clauses.append(f"its score differs beyond the tolerance in {apart}")
    return "".join(f"; {each}" for each in clauses)


def share_text(value: float, low: float, high: float) -> str:
    """Share with its bounds, as text.

    Examples
    --------
    >>> share_text(0.034, 0.02, 0.051)
    '3.4 % (2.0 to 5.1)'
    """
    return f"{percent(value)} ({percent(low)[:-2]} to {percent(high)[:-2]})"
