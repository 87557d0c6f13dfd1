"""Faults of a camera: noise, dead pixels, dead lines, dirt, blur."""

from typing import TYPE_CHECKING

import numpy as np

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, check_positive, check_share

from .pixels import Axis, Device, Range, images, ranged, to_tensor

if TYPE_CHECKING:
    from torch import Tensor


def noise(
    name: str = "image", *, sigma: float = 0.05, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Add Gaussian noise with standard deviation ``sigma`` times the range."""
    check_positive(sigma, "sigma")
    scale = float(np.float32(sigma))

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        grain = rng.standard_normal(tuple(x.shape), dtype=np.float32)
        return x.add_(to_tensor(grain, x).mul_(scale))

    return ranged(name, op, device=device, value_range=value_range)


def salt_and_pepper(
    name: str = "image", *, share: float = 0.02, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Set a random ``share`` of the pixels to black or white.

    All channels of such a pixel get the lowest or highest value.
    """
    check_share(share, "share of the pixels")

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        n, _, height, width = x.shape
        draw = to_tensor(rng.random((n, 1, height, width), dtype=np.float32), x)
        return x.masked_fill_(draw < share / 2, 0.0).masked_fill_(draw >= 1 - share / 2, 1.0)

    return ranged(name, op, device=device, value_range=value_range)


def occlude(
    name: str = "image", *, share: float = 0.25, fill: float = 0.0, device: Device = "auto"
) -> Perturbation:
    """Cover a random rectangle with ``fill``. ``share`` is its part of the height and of the width."""
    check_share(share, "covered part of each side")

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        n, _, height, width = x.shape
        high, wide = max(1, round(share * height)), max(1, round(share * width))
        rows = _lines(x, height, rng.integers(height - high + 1, size=n), high)
        columns = _lines(x, width, rng.integers(width - wide + 1, size=n), wide)
        return x.masked_fill_((rows[:, :, None] & columns[:, None])[:, None], fill)

    return images(name, op, device=device)


def stuck(
    name: str = "image", *, axis: Axis = "row", lines: int = 1, value: float = 0.0, device: Device = "auto"
) -> Perturbation:
    """Set ``lines`` adjacent rows or columns to one value, like dead lines.

    Their place is random in each image.
    """
    if lines < 1:
        raise ValueError(f"lines must be >= 1, got {lines}; it is the number of dead lines")
    if axis not in ("row", "column"):
        raise ValueError(f"axis must be row or column, got {axis!r}")

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        size = x.shape[2 if axis == "row" else 3]
        wide = min(lines, size)
        dead = _lines(x, size, rng.integers(size - wide + 1, size=len(x)), wide)
        return x.masked_fill_(dead[:, None, :, None] if axis == "row" else dead[:, None, None], value)

    return images(name, op, device=device)


def blur(name: str = "image", *, sigma: float = 1.0, device: Device = "auto") -> Perturbation:
    """Gaussian blur with standard deviation ``sigma`` in pixels.

    Border pixels are repeated outwards and the kernel ends at 4 sigma, as in
    ``scipy.ndimage.gaussian_filter(mode="nearest")``. Each axis is one matrix product.
    """
    check_positive(sigma, "sigma")

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001 - an op takes both
        along, down = (to_tensor(_smoothing(size, sigma), x) for size in (x.shape[3], x.shape[2]))
        return down @ (x @ along.T)

    return images(name, op, device=device)


def _smoothing(size: int, sigma: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Matrix that smoothes a line of ``size`` pixels; row i holds the weights for pixel i."""
    radius = int(4 * sigma + 0.5)
    steps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    places = np.clip(np.arange(size)[:, None] + steps, 0, size - 1)  # (size, kernel)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size)[:, None], places), weights / weights.sum())
    return matrix


def _lines(x: "Tensor", size: int, start: np.ndarray[tuple[int], np.dtype[np.int64]], wide: int) -> "Tensor":
    """Mask of ``wide`` lines from ``start`` on, shape (n, size)."""
    import torch

    first = torch.from_numpy(start).to(x.device)[:, None]
    line = torch.arange(size, device=x.device)
    return (line >= first) & (line < first + wide)
