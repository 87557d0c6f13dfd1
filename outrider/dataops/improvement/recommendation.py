"""Recommendation of a shadow test, a pure function of its findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.assertions.comparison.agreement import fails_more
from outrider.assertions.comparison.verdict import CandidateVerdict
from outrider.assertions.comparison.verdict_sentence import details_sentence

Recommendation = Literal["promote", "keep", "undecided"]
SMALLER = 0.9
"""A challenger is smaller where its weights take at most this part of the champion's bytes."""


@dataclass(frozen=True, slots=True)
class DiscordantPairs:
    """Common records that only one model fails, or flags."""

    rows: int
    only_champion: int
    only_challenger: int

    @property
    def challenger_is_worse(self) -> bool:
        return fails_more(self.only_champion, self.only_challenger)

    @property
    def challenger_is_better(self) -> bool:
        return fails_more(self.only_challenger, self.only_champion)


@dataclass(frozen=True, slots=True)
class ShadowTestFindings:
    agreement: CandidateVerdict | None = None
    has_common: bool = True
    """False only where both answered and nothing can be compared."""
    labels: DiscordantPairs = DiscordantPairs(0, 0, 0)
    """Records that one of the two alone gets wrong."""
    flags: DiscordantPairs = DiscordantPairs(0, 0, 0)
    """Records that one of the two alone is flagged on."""
    regressions: Sequence[str] = ()
    """Behavioral tests that the champion passes and the challenger fails."""
    smaller: float | None = None
    """Bytes of the challenger's weights over those of the champion's."""
    out: str = ""
    """Why the challenger does not answer any more."""


def recommend(found: ShadowTestFindings, *, margin: float) -> tuple[Recommendation, list[str]]:
    """Recommendation on the challenger, with the deciding reason first.

    ``keep`` (the champion) where anything is proven to be worse, where answers differ without labels that
    show them to be better, or where nothing would be gained; ``promote`` where labels prove it better, or
    where it agrees within the margin and is smaller; else ``undecided``. Time is no reason: in the shadow
    versions wait for what runs beside them.

    Parameters
    ----------
    margin
        Share of records on which answers may differ beyond noise.

    Examples
    --------
    >>> recommend(ShadowTestFindings(out="CUDA out of memory"), margin=0.01)
    ('keep', ['the challenger does not answer: CUDA out of memory'])
    """
    against = _against(found)
    if against:
        return "keep", against + ([] if found.agreement is None else [_alike(found.agreement, margin)])
    if found.agreement is None and not found.has_common:
        return "undecided", [
            "both models answer, but share no output of one name and kind: nothing to compare"
        ]
    if found.agreement is None:
        return "undecided", ["no record was answered by both"]
    gains, alike = _gains(found), _alike(found.agreement, margin)
    if found.labels.challenger_is_better:
        return "promote", [_labels(found.labels, "the challenger is right more often"), alike, *gains]
    if _differs(found.agreement):
        return "keep", [f"{alike}, and no labels prove the challenger better"]
    if found.agreement.word == "undecided":
        return "undecided", [alike]
    if gains:
        return "promote", [alike, *gains]
    return "keep", [f"{alike}, and the challenger is not smaller: nothing would be gained"]


def _against(found: ShadowTestFindings) -> list[str]:
    reasons = []
    if found.out:
        reasons.append(f"the challenger does not answer: {found.out}")
    if found.labels.challenger_is_worse:
        reasons.append(_labels(found.labels, "the challenger is wrong more often"))
    if found.regressions:
        shown = ", ".join(found.regressions[:3]) + (" …" if len(found.regressions) > 3 else "")
        reasons.append(f"the challenger fails behavioral tests that the champion passes: {shown}")
    if found.flags.challenger_is_worse:
        sides = found.flags
        reasons.append(
            f"assertions fire on {sides.only_challenger:,} records for the challenger alone, on "
            f"{sides.only_champion:,} for the champion alone, of {sides.rows:,}"
        )
    return reasons


def _alike(agreement: CandidateVerdict, margin: float) -> str:
    found = agreement.deciding
    numbers = (
        f"{1 - found.value:.2%} (95 %: {1 - found.high:.2%} to {1 - found.low:.2%}) of {found.rows:,} "
        f"records, by {agreement.decided_by}"
    )
    said = {
        "same": f"the challenger agrees, no difference beyond noise is proven: {numbers}",
        "close": f"the challenger agrees within {margin:.2%}: {numbers} beyond noise",
        "different": f"the challenger differs beyond noise: {numbers} agree",
        "undecided": f"agreement is not estimated well enough yet: {numbers}; {agreement.why}",
    }
    return said["different" if _differs(agreement) else agreement.word] + details_sentence(agreement)


def _differs(agreement: CandidateVerdict) -> bool:
    """A difference is proven, and one above the margin is not ruled out."""
    is_proven = any(each.is_proven for each in agreement.measures.values())
    return agreement.word == "different" or (agreement.word == "undecided" and is_proven)


def _labels(sides: DiscordantPairs, what: str) -> str:
    return (
        f"{what}: of {sides.rows:,} labelled records the champion alone is wrong on {sides.only_champion:,}, "
        f"the challenger alone on {sides.only_challenger:,}"
    )


def _gains(found: ShadowTestFindings) -> list[str]:
    if found.smaller is None or found.smaller > SMALLER:
        return []
    return [f"the challenger's weights take {found.smaller:.0%} of the champion's bytes"]
