"""Calibration: map a model's score to its probability of being right.

Fitted on labelled answers.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from outrider.assertions.batch import Batch

from .boxes import SIDES, overlaps
from .scene import objects_of

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FEWEST = 30
"""Minimum number of labelled scores of a calibration."""
UNKNOWN = 0.5
"""Probability used for a missing score: neutral."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Probability of being right by score, piecewise linear; made by :func:`calibrate_boxes`.

    Its ``repr`` is valid Python, for use in an assertion file.

    Attributes
    ----------
    scores
        Ascending, in the model's own unit.
    chances
        Probability at each of them, in [0, 1], non-decreasing; constant below the first and beyond the last
        point.

    Examples
    --------
    >>> chance = Calibration(scores=(0.5, 0.9, 1.0), chances=(0.2, 0.6, 0.95))
    >>> chance(np.array([0.1, 0.7, 0.95, np.nan])).round(3)
    array([0.2  , 0.4  , 0.775, 0.5  ])
    """

    scores: Sequence[float]
    chances: Sequence[float]

    def __post_init__(self) -> None:
        scores, chances = np.asarray(self.scores, dtype=float), np.asarray(self.chances, dtype=float)
        if scores.ndim != 1 or scores.shape != chances.shape or not len(scores):
            raise ValueError(f"as many scores as chances, one at least, got {len(scores)} and {len(chances)}")
        if not np.isfinite(scores).all() or (scores[1:] < scores[:-1]).any():
            raise ValueError("scores of a calibration must be finite and ascending")
        if not ((chances >= 0) & (chances <= 1)).all() or (chances[1:] < chances[:-1]).any():
            raise ValueError("chances of a calibration must be in [0, 1] and never fall")
        # Tuples, whatever came: the same calibration is the same revision of an assertion.
        object.__setattr__(self, "scores", tuple(scores.tolist()))
        object.__setattr__(self, "chances", tuple(chances.tolist()))

    def __call__(self, scores: ArrayLike) -> Floats:
        """Probability at each score, same shape as ``scores``. 0.5 where a score is NaN."""
        given = np.asarray(scores, dtype=np.float64)
        at, chance = np.asarray(self.scores), np.asarray(self.chances)
        inside = np.clip(np.nan_to_num(given, posinf=np.inf, neginf=-np.inf), at[0], at[-1])
        low = np.searchsorted(at, inside, side="right") - 1
        high = np.minimum(low + 1, len(at) - 1)
        # Not np.interp: its slope is infinite between points that all but coincide. Halves cannot overflow.
        width = at[high] / 2 - at[low] / 2
        share = np.divide(inside / 2 - at[low] / 2, width, out=np.zeros(inside.shape), where=width > 0)
        between = np.minimum(chance[low] + share * (chance[high] - chance[low]), chance[high])
        known: Floats = np.where(np.isnan(given), UNKNOWN, between)
        return known

    @classmethod
    def fit(cls, scores: ArrayLike, right: ArrayLike) -> "Calibration":
        """Fit an isotonic calibration of scores to correctness.

        Each step of the isotonic regression is smoothed with one additional right and one wrong answer, so
        that a step of few answers is never certain.

        Parameters
        ----------
        scores : shape (n,)
            NaN is left out.
        right : shape (n,)
            Whether the answer with that score was right.

        Raises
        ------
        ValueError
            If shapes differ or fewer than 30 scores are known.

        References
        ----------
        Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates",
        KDD 2002; steps use Laplace's estimate.

        Examples
        --------
        >>> scores = np.repeat([0.2, 0.6, 0.9], 40)
        >>> right = np.r_[np.arange(40) < 4, np.arange(40) < 20, np.arange(40) < 38]
        >>> Calibration.fit(scores, right).chances
        (0.119, 0.5, 0.9286)
        """
        from scipy.optimize import isotonic_regression  # 0.1 s to load

        given, hit = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=np.bool_)
        if given.ndim != 1 or given.shape != hit.shape:
            raise ValueError(f"one truth per score expected, got shapes {given.shape} and {hit.shape}")
        known = np.isfinite(given)
        given, hit = given[known], hit[known]
        if len(given) < FEWEST:
            raise ValueError(f"calibrating takes at least {FEWEST} labelled scores, got {len(given)}")
        value, at = np.unique(given, return_inverse=True)
        count = np.bincount(at)
        found = isotonic_regression(np.bincount(at, weights=hit) / count, weights=count)
        edges = np.asarray(found.blocks)
        held = np.add.reduceat(count, edges[:-1])
        hits = np.add.reduceat(np.bincount(at, weights=hit), edges[:-1])
        chance = isotonic_regression((hits + 1) / (held + 2), weights=held + 2).x
        points: list[tuple[float, float]] = []
        for low, high, one in zip(edges[:-1].tolist(), edges[1:].tolist(), chance.tolist(), strict=True):
            level = round(one, 4)
            if len(points) > 1 and points[-1][1] == points[-2][1] == level:
                points.pop()  # two steps that became one
            ends = dict.fromkeys((float(f"{value[low]:.7g}"), float(f"{value[high - 1]:.7g}")))
            points += [(end, level) for end in ends]
        return cls(*zip(*points, strict=True))

    def to_json(self) -> str:
        """JSON text of the calibration, for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Calibration from the text of :meth:`to_json`."""
        return cls(**json.loads(text))


def calibrate_boxes(
    batch: Batch,
    *,
    explode: str = "outputs.detections",
    label: str = "label.detections",
    score: str = "score",
    box: tuple[str, str, str, str] = SIDES,
    overlap: float = 0.5,
    same: str | None = None,
) -> Calibration:
    """Calibration of a detector's scores on frames whose true boxes are known.

    A detected box is right if it is matched to a true one; the one-to-one matching has the greatest total
    overlap, so a second box on an object is wrong.

    Parameters
    ----------
    batch
        Frames; those without a label (null, not an empty list) are left out.
    explode
        Full name of the list of detected boxes.
    label
        Full name of the list of true boxes.
    score
        Field with the model's score.
    box
        Fields: left, top, width, height.
    overlap
        Minimum intersection over union of a box and its true one.
    same
        Field that must also be equal, such as the class.

    Raises
    ------
    ValueError
        If a column is missing, or labelled frames have fewer than 30 boxes.

    Examples
    --------
    >>> def box(left, score):
    ...     return {"left": left, "top": 0.0, "width": 20.0, "height": 40.0, "score": score}
    >>> found = [[box(0.0, 0.9), box(300.0, 0.3)] for _ in range(40)]
    >>> frames = [{"outputs": {"detections": f}, "label": {"detections": f[:1]}} for f in found]
    >>> calibrate_boxes(Batch.from_records(frames, model="m"))
    Calibration(scores=(0.3, 0.9), chances=(0.0238, 0.9762))
    """
    for name in (explode, label):
        if not batch.has(name):
            raise ValueError(f"no column {name!r} to calibrate on; there are {', '.join(batch.names)}")
    known = batch.take(~batch.is_null(label))
    found, true = objects_of(known, explode), objects_of(known, label)
    asked = (*box, *(() if same is None else (same,)))
    found.require((score, *asked), explode)
    true.require(asked, label)
    sides, real = found.sides(box, explode), true.sides(box, label)
    starts, true_starts = (np.searchsorted(one.row, np.arange(known.rows + 1)) for one in (found, true))
    right = np.zeros(len(found.row), dtype=np.bool_)
    for row in range(known.rows):
        mine, theirs = slice(*starts[row : row + 2]), slice(*true_starts[row : row + 2])
        likeness = overlaps(sides[mine], real[theirs])
        if same is not None:
            likeness = likeness * _equal(found.column(same)[mine], true.column(same)[theirs])
        right[mine] = _paired(likeness, overlap)
    return Calibration.fit(found.numbers(score), right)


def _paired(likeness: Floats, least: float) -> Bools:
    """Mask of the boxes that are matched to a true one, shape (boxes,)."""
    from scipy.optimize import linear_sum_assignment  # 0.1 s to load

    paired = np.zeros(len(likeness), dtype=np.bool_)
    near = (likeness >= least) & (likeness > 0)
    rows, columns = linear_sum_assignment(np.where(near, 1 + likeness, 0.0), maximize=True)
    paired[rows[near[rows, columns]]] = True
    return paired


def _equal(one: pa.Array, other: pa.Array) -> Bools:
    """Equality of every pair of values, shape (n, m); null equals nothing."""
    first = np.repeat(np.arange(len(one)), len(other))
    second = np.tile(np.arange(len(other)), len(one))
    if not len(first):
        return np.zeros((len(one), len(other)), dtype=np.bool_)
    alike = pc.equal(one.take(pa.array(first)), other.take(pa.array(second))).fill_null(False)
    equal: Bools = alike.to_numpy(zero_copy_only=False).reshape(len(one), len(other))
    return equal
