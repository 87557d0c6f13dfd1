"""Slices ranked by how much more a candidate differs there than elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .agreement import EVERYTHING, Measure, Tally, terms_of
from .comparison import StreamComparison
from .verdict import ERROR, MOST_SLICES, PARTS, Bounding, deciding_measures


@dataclass(frozen=True, slots=True)
class SliceDifference:
    """Difference on one slice, and on all other records.

    Attributes
    ----------
    value, low, high
        Share of the slice's records on which the candidate differs, net of noise if that is
        known.
    rest
        The same share on all other records.
    more_than_rest
        Lower bound of the difference of the two shares; 0 or less if nothing is proven.
    """

    name: str
    measure: Measure
    rows: int
    value: float
    low: float
    high: float
    rest: float
    more_than_rest: float

    @property
    def is_proven(self) -> bool:
        """True if the slice is proven to differ more than the rest."""
        return self.more_than_rest > 0.0


def rank_slices(
    comparison: StreamComparison,
    *,
    error: float = ERROR,
    candidates: int = 1,
    most_slices: int = MOST_SLICES,
    agree: Sequence[str] = (),
) -> tuple[SliceDifference, ...]:
    """Slices by the lower bound of their excess difference, largest first.

    The bounds of all slices, rests and deciding measures hold together at all times, with half of the error
    of a difference; the verdict on all records has the other half.

    Parameters
    ----------
    most_slices
        As for :meth:`StreamComparison.of`.
    agree
        As for :func:`~.verdict.verdict_of`.

    References
    ----------
    Bonferroni over the maximum number of slices, fixed in advance. Slice and rest are disjoint.
    """
    deciding = deciding_measures(comparison.measures, agree)
    parts = 2 * candidates * max(1, len(deciding)) * most_slices * 2
    confidence = 1.0 - error * PARTS["difference"] / parts
    found = [
        _against_rest(comparison.tallies, measure, name, Bounding(confidence, terms_of(measure)))
        for measure in deciding
        for name in comparison.slices
        if (measure, name) in comparison.tallies
    ]
    return tuple(sorted(found, key=lambda one: (-one.more_than_rest, one.rest - one.value)))


def _against_rest(
    tallies: Mapping[tuple[Measure, str], Tally], measure: Measure, name: str, bounding: Bounding
) -> SliceDifference:
    here, rest = tallies[measure, name], tallies[measure, EVERYTHING].without(tallies[measure, name])
    is_known = here.beyond.rows > 0 and rest.beyond.rows > 0
    value, low, high = _bounds(here, bounding, is_known=is_known)
    other, _, most = _bounds(rest, bounding, is_known=is_known)
    return SliceDifference(name, measure, here.differs.asked, value, low, high, other, low - most)


def _bounds(tally: Tally, bounding: Bounding, *, is_known: bool) -> tuple[float, float, float]:
    """Share of records that differ, with bounds; net of noise if that is known."""
    if not is_known:
        low, high = tally.differs.interval(bounding.confidence)
        return tally.differs.rate, low, high
    found = bounding.agreement(tally, 0.0).beyond
    return 1.0 - found.value, 1.0 - found.high, 1.0 - found.low
