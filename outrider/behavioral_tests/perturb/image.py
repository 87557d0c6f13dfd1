"""Changes of images, on whole batches of shape (n, height, width) or (n, channels, height, width).

Every function keeps shape and type and clips to ``value_range``, the lowest and highest pixel value.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .perturbation import Perturbation, Rng, column

Range = tuple[float, float]


def brightness(name: str = "image", *, by: float = 0.1, value_range: Range = (0.0, 1.0)) -> Perturbation:
    """Add ``by`` times the range to every pixel; negative darkens."""
    low, high = value_range

    def change(images: NDArray[Any], rng: Rng) -> NDArray[Any]:  # noqa: ARG001 - a change takes both
        return _clipped(images + by * (high - low), images, value_range)

    return column(name, change)


def contrast(name: str = "image", *, factor: float = 1.3, value_range: Range = (0.0, 1.0)) -> Perturbation:
    """Scale the distance of every pixel from its image's mean."""

    def change(images: NDArray[Any], rng: Rng) -> NDArray[Any]:  # noqa: ARG001 - a change takes both
        mean = images.mean(axis=tuple(range(1, images.ndim)), keepdims=True)
        return _clipped(mean + factor * (images - mean), images, value_range)

    return column(name, change)


def noise(name: str = "image", *, sigma: float = 0.05, value_range: Range = (0.0, 1.0)) -> Perturbation:
    """Add Gaussian noise with standard deviation ``sigma`` times the range."""
    low, high = value_range

    def change(images: NDArray[Any], rng: Rng) -> NDArray[Any]:
        grain = rng.standard_normal(images.shape, dtype=np.float32) * np.float32(sigma * (high - low))
        return _clipped(images + grain, images, value_range)

    return column(name, change)


def shift(name: str = "image", *, pixels: int = 1, fill: float = 0.0) -> Perturbation:
    """Move each image by up to ``pixels`` in a random direction, never by nothing; ``fill`` comes in."""
    if pixels < 1:
        raise ValueError(f"pixels must be >= 1, got {pixels}; a shift by 0 changes nothing")
    steps = np.arange(-pixels, pixels + 1)
    offsets = np.array([(y, x) for y in steps for x in steps if y or x])

    def change(images: NDArray[Any], rng: Rng) -> NDArray[Any]:
        height, width = images.shape[-2:]
        dy, dx = offsets[rng.integers(len(offsets), size=len(images))].T
        border = [(0, 0)] * (images.ndim - 2) + [(pixels, pixels)] * 2
        padded = np.pad(images, border, constant_values=fill)
        rows = (np.arange(height) + pixels)[None, :] - dy[:, None]  # (n, height)
        columns = (np.arange(width) + pixels)[None, :] - dx[:, None]  # (n, width)
        moved = np.moveaxis(padded, (-2, -1), (1, 2))[
            np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]
        ]  # (n, height, width, channels…)
        return np.ascontiguousarray(np.moveaxis(moved, (1, 2), (-2, -1)))

    return column(name, change)


def occlude(name: str = "image", *, share: float = 0.25, fill: float = 0.0) -> Perturbation:
    """Cover a random rectangle, ``share`` of the height by ``share`` of the width, with ``fill``."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must lie in (0, 1], got {share}; it is the covered part of each side")

    def change(images: NDArray[Any], rng: Rng) -> NDArray[Any]:
        height, width = images.shape[-2:]
        high, wide = max(1, round(share * height)), max(1, round(share * width))
        top = rng.integers(height - high + 1, size=len(images))[:, None]
        left = rng.integers(width - wide + 1, size=len(images))[:, None]
        rows = (np.arange(height) >= top) & (np.arange(height) < top + high)  # (n, height)
        columns = (np.arange(width) >= left) & (np.arange(width) < left + wide)  # (n, width)
        covered = rows[:, :, None] & columns[:, None, :]
        covered = covered.reshape(len(images), *(1,) * (images.ndim - 3), height, width)
        return np.where(covered, np.asarray(fill, dtype=images.dtype), images)

    return column(name, change)


def _clipped(changed: NDArray[Any], images: NDArray[Any], value_range: Range) -> NDArray[Any]:
    clipped: NDArray[Any] = np.clip(changed, *value_range).astype(images.dtype, copy=False)
    return clipped
