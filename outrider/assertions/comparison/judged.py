"""Verdicts of an LLM judge, corrected by randomly drawn human labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from .verdict import ERROR, PARTS

Floats = NDArray[np.float64]
Preference = Literal["worse", "better", "no difference shown", "no verdict"]
TRUST = np.array([0.0, 0.5, 1.0])
"""Weights t of the judge in the bets; 0 uses labels alone."""
STAKES: Floats = 0.9 * np.exp2(-np.arange(8, dtype=np.float64))
SMALLEST_CHANCE = 0.001
_NEAR = 1e-9
_GRID = np.linspace(-1.0, 1.0, 2001)


@dataclass(frozen=True, slots=True)
class JudgedVerdict:
    """Preference between two systems' answers, judged and corrected by labels.

    Attributes
    ----------
    value, low, high
        Mean preference, 1 if the candidate's answer is always better, -1 if production's is; the bounds hold
        at all times together.
    records, labels
        Judged records, and those with a label.
    """

    direction: Preference
    value: float
    low: float
    high: float
    records: int
    labels: int


@dataclass(frozen=True, slots=True)
class JudgedPairs:
    r"""Preferences of a judge on pairs of answers, some with a label.

    Judgement and label are 1 where the candidate's answer is better, -1 where production's is, 0 for a tie;
    judged in both orders, the mean counts. Each record was drawn for labelling with a probability fixed
    before its label was known; add it once the label is known. Of record i,

    .. math:: x_i = t j_i + (l_i - t j_i) \, a_i / p_i

    has the mean of the labels, however wrong the judge: a is 1 if record i was drawn for labelling, p its
    probability. Bets on it bound that mean at all times together; they are mixed over stakes and over the
    weight t of the judge.

    Parameters
    ----------
    counts
        Number of records by judgement, label (None without) and probability. Parts add up, in any order.

    References
    ----------
    Zrnic and Candès, "Active statistical inference", ICML 2024, section 5; bets as in Waudby-Smith and
    Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023; t as the power tuning of
    Angelopoulos, Duchi and Zrnic, "PPI++", 2023, but mixed over instead of estimated.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.choice([-1.0, 1.0], p=[0.2, 0.8], size=2000)
    >>> drawn = rng.random(2000) < 0.1
    >>> seen = JudgedPairs.of(truth, np.where(drawn, truth, np.nan), np.full(2000, 0.1))
    >>> unlabelled = JudgedPairs.of(truth, np.full(2000, np.nan), np.zeros(2000))
    >>> seen.verdict().direction, unlabelled.verdict().direction
    ('better', 'no verdict')
    """

    counts: Mapping[tuple[float, float | None, float], int] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @classmethod
    def of(cls, judged: Floats, labels: Floats, chance: Floats) -> Self:
        """Preferences on some records.

        Parameters
        ----------
        judged
            In [-1, 1], shape (rows,).
        labels
            In [-1, 1]; NaN where the record was not drawn, shape (rows,).
        chance
            Probability of being drawn for labelling, shape (rows,); 0 if no label may be drawn: such records
            are only counted.

        Raises
        ------
        ValueError
            If a value is out of its range, or a label has no chance.
        """
        drawn = ~np.isnan(labels)
        values = np.concatenate([judged, labels[drawn]])
        if not ((np.abs(values) <= 1).all() and ((chance >= 0) & (chance <= 1)).all()):
            raise ValueError("judgements and labels in [-1, 1] with chances in [0, 1] expected")
        if (chance[drawn] < SMALLEST_CHANCE).any():
            raise ValueError(f"a label has a chance below {SMALLEST_CHANCE} of having been asked for")
        counts: dict[tuple[float, float | None, float], int] = {}
        for j, label, p in zip(judged.tolist(), labels.tolist(), chance.tolist(), strict=True):
            key = (j, None if label != label else label, p)
            counts[key] = counts.get(key, 0) + 1
        return cls(counts)

    def __add__(self, other: "JudgedPairs") -> "JudgedPairs":
        merged = dict(self.counts)
        for key, count in other.counts.items():
            merged[key] = merged.get(key, 0) + count
        return JudgedPairs(merged)

    @property
    def records(self) -> int:
        """Number of judged records."""
        return sum(self.counts.values())

    @property
    def labels(self) -> int:
        """Number of labels."""
        return sum(count for (_, label, _), count in self.counts.items() if label is not None)

    def verdict(
        self, *, error: float = ERROR, candidates: int = 1, least_chance: float | None = None
    ) -> JudgedVerdict:
        """Verdict with the judge's share of ``error``; ``no verdict`` without labels.

        ``least_chance`` is the smallest labelling probability that the plan allows (default: the smallest
        seen); records below it are left out.
        """
        if not self.labels:
            return JudgedVerdict("no verdict", 0.0, -1.0, 1.0, self.records, 0)
        rows = [(key, count) for key, count in self.counts.items() if key[2] >= SMALLEST_CHANCE]
        least = min(key[2] for key, _ in rows) if least_chance is None else least_chance
        rows = [(key, count) for key, count in rows if key[2] >= least]
        count = np.array([float(count) for _, count in rows])
        values = _values([key for key, _ in rows])
        limit = float(np.log(2.0 * candidates / (error * PARTS["judge"])))
        low, high = _lower(values, count, least, limit), -_lower(-values, count, least, limit)
        value = float(np.clip(values[-1] @ count / max(count.sum(), 1.0), low, high))
        direction: Preference = "better" if low > 0 else "worse" if high < 0 else "no difference shown"
        return JudgedVerdict(direction, value, low, high, self.records, self.labels)

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {"counts": [[*key, count] for key, count in self.counts.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        return cls({(j, label, p): count for j, label, p, count in state.get("counts", ())})


def _values(keys: Sequence[tuple[float, float | None, float]]) -> Floats:
    """Corrected preference by judge weight and kind of record, shape (trusts, kinds)."""
    judged, chance = (np.array([key[at] for key in keys], dtype=np.float64) for at in (0, 2))
    drawn = np.array([key[1] is not None for key in keys], dtype=np.bool_)
    label = np.array([key[1] or 0.0 for key in keys])
    trusted = TRUST[:, None] * judged
    found: Floats = trusted + np.where(drawn, (label - trusted) / chance, 0.0)
    return found


def _lower(values: Floats, count: Floats, least_chance: float, limit: float) -> float:
    """Lower confidence bound of the mean, on a grid of 0.001."""
    # The worst that any record can say: judged 1, drawn with the least chance and labelled -1.
    lowest = TRUST - (1.0 + TRUST) / least_chance

    def wealth(mean: float) -> float:
        bets = STAKES[:, None] / (mean - lowest)  # (stakes, trusts): the same for every record
        log = np.log1p(bets[..., None] * (values - mean)) @ count
        top = log.max()
        return float(np.log(np.exp(log - top).mean()) + top)

    low, high = 0, len(_GRID) - 1
    if wealth(_GRID[0] + _NEAR) < limit:
        return -1.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wealth(_GRID[middle]) >= limit else (low, middle)
    return float(_GRID[low])
