"""Boxes as arrays with columns ``left, top, width, height``."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SIDES = ("left", "top", "width", "height")


def overlaps(first: Floats, second: Floats, *, buffer: float = 0.0) -> Floats:
    """Intersection over union of every pair.

    Parameters
    ----------
    first : shape (n, 4)
    second : shape (m, 4)
    buffer
        Each box is first widened by this share of its width and height on each side, so that small, fast
        objects that do not overlap can be compared.

    Returns
    -------
    shape (n, m)
        In [0, 1]; 0 for boxes without area.

    Examples
    --------
    >>> overlaps(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 2, 2], [5, 5, 1, 1]])).round(3)
    array([[0.333, 0.   ]])
    """
    one = [side[:, None] for side in _edges(first, buffer)]
    other = [side[None, :] for side in _edges(second, buffer)]
    return _ratio(one, other)


def overlap_of_pairs(first: Floats, second: Floats) -> Floats:
    """Intersection over union row by row, shape (n,)."""
    return _ratio(_edges(first, 0.0), _edges(second, 0.0))


def centred(boxes: Floats) -> Floats:
    """Box centres and sizes, shape (n, 4): ``x, y, width, height``."""
    return np.column_stack([boxes[:, :2] + boxes[:, 2:] / 2, boxes[:, 2:]])


def cornered(boxes: Floats) -> Floats:
    """Inverse of :func:`centred`, shape (n, 4)."""
    return np.column_stack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]])


def _edges(boxes: Floats, buffer: float) -> list[Floats]:
    """Left, top, right and bottom edges, and area, each of shape (n,); separate columns are much faster."""
    left, top, width, height = np.asarray(boxes, dtype=np.float64).reshape(-1, 4).T
    width, height = np.maximum(width, 0.0), np.maximum(height, 0.0)
    left, top = left - buffer * width, top - buffer * height
    width, height = (1 + 2 * buffer) * width, (1 + 2 * buffer) * height
    return [left, top, left + width, top + height, width * height]


def _ratio(one: list[Floats], other: list[Floats]) -> Floats:
    across = np.minimum(one[2], other[2]) - np.maximum(one[0], other[0])
    down = np.minimum(one[3], other[3]) - np.maximum(one[1], other[1])
    common = np.maximum(across, 0.0) * np.maximum(down, 0.0)
    union = one[4] + other[4] - common
    ratio: Floats = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return ratio
