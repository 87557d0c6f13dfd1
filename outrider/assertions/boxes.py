"""Boxes as arrays of ``left, top, width, height``."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def overlaps(first: Floats, second: Floats, *, buffer: float = 0.0) -> Floats:
    """Intersection over union of every pair.

    Parameters
    ----------
    first : shape (n, 4)
    second : shape (m, 4)
    buffer
        Every box is first widened by this share of its width and height on each side, so that small and
        fast objects that do not touch can still be compared.

    Returns
    -------
    shape (n, m)
        In [0, 1]; 0 for boxes without area.

    Examples
    --------
    >>> overlaps(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 2, 2], [5, 5, 1, 1]])).round(3)
    array([[0.333, 0.   ]])
    """
    first, second = (_corners(np.asarray(boxes, dtype=np.float64), buffer) for boxes in (first, second))
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - common
    ratio: Floats = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return ratio


def overlap_of_pairs(first: Floats, second: Floats) -> Floats:
    """Intersection over union row by row, shape (n,)."""
    one, other = _corners(np.asarray(first, float), 0.0), _corners(np.asarray(second, float), 0.0)
    sides = np.minimum(one[:, 2:], other[:, 2:]) - np.maximum(one[:, :2], other[:, :2])
    common = np.prod(np.clip(sides, 0.0, None), axis=1)
    union = np.prod(one[:, 2:] - one[:, :2], axis=1) + np.prod(other[:, 2:] - other[:, :2], axis=1) - common
    ratio: Floats = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return ratio


def centred(boxes: Floats) -> Floats:
    """Centre and size ``x, y, width, height`` of every box, shape (n, 4)."""
    return np.column_stack([boxes[:, :2] + boxes[:, 2:] / 2, boxes[:, 2:]])


def cornered(boxes: Floats) -> Floats:
    """Inverse of :func:`centred`, shape (n, 4)."""
    return np.column_stack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]])


def _corners(boxes: Floats, buffer: float) -> Floats:
    size = np.clip(boxes[:, 2:], 0.0, None)
    low = boxes[:, :2] - buffer * size
    return np.column_stack([low, low + (1 + 2 * buffer) * size])
