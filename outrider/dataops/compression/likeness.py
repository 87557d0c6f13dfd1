"""Likeness of a variant's and champion's answers, beyond their own noise."""

from dataclasses import dataclass

import numpy as np

from outrider.assertions import Batch
from outrider.assertions.comparison.agreement import excess
from outrider.assertions.comparison.differences import Ruler, differ, measures_of
from outrider.assertions.statistics.wilson import wilson_interval


@dataclass(frozen=True, slots=True)
class Likeness:
    """Agreement of a variant with the champion on the same records."""

    measure: str
    """What is compared: ``label``, else ``text``, else ``score``; see `comparison.differences`."""
    rows: int
    agreement: float
    """1 less the share of records answered differently beyond ``noise``, at most 1.0."""
    low: float
    """Lower end of its 95 % interval (Wilson, of records chosen before), the noise taken as it was found."""
    same: float
    """Share of records answered alike, nothing subtracted."""
    noise: float
    """Mean share of records that champion and variant answer differently in batches of another size."""
    score_delta: float
    """Mean absolute difference of ``score``; nan without one."""


def likeness(champion: Batch, again: Batch, variant: Batch, variant_again: Batch, ruler: Ruler) -> Likeness:
    """Compare a variant's answers with the champion's, both computed twice.

    Parameters
    ----------
    champion, variant
        Answered records, at least one, in the same order.
    again, variant_again
        The same computed in batches of another size.

    Raises
    ------
    ValueError
        If nothing can be compared, or the variant lacks what the champion answers.
    """
    missing = [name for name in champion.names if name.startswith("outputs.") and not variant.has(name)]
    measures = measures_of(champion, ruler)
    if missing or not measures:
        what = missing[0] if missing else f"outputs.{ruler.target}, a text or a score"
        raise ValueError(f"{what} expected; there is {', '.join(variant.names)}")
    ruler = ruler.at(champion)
    own, other = (differ(measures[0], *two, ruler) for two in ((champion, again), (variant, variant_again)))
    pairs = [differ(measures[0], a, b, ruler) for a in (champion, again) for b in (variant, variant_again)]
    noise, different = float((own.mean() + other.mean()) / 2), float(pairs[0].mean())
    _, upper = wilson_interval(float(pairs[0].sum()), champion.rows)
    return Likeness(
        measure=measures[0],
        rows=champion.rows,
        agreement=1.0 - max(0.0, float(excess(pairs, own, other).mean())),
        low=1.0 - max(0.0, upper - noise),
        same=1.0 - different,
        noise=noise,
        score_delta=_score_delta(champion, variant),
    )


def _score_delta(one: Batch, other: Batch) -> float:
    if not one.has("outputs.score"):
        return float("nan")
    return float(np.abs(one.column("outputs.score") - other.column("outputs.score")).mean())
