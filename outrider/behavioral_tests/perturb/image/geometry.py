"""Geometry of images: shift, rotation, zoom, mirror."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng

from .pixels import Device, images, to_tensor

if TYPE_CHECKING:
    from torch import Tensor


def shift(
    name: str = "image", *, pixels: int = 1, fill: float = 0.0, device: Device = "auto"
) -> Perturbation:
    """Move each image by 1 to ``pixels`` in a random direction. New border pixels get ``fill``."""
    if pixels < 1:
        raise ValueError(f"pixels must be >= 1, got {pixels}; a shift by 0 changes nothing")
    steps = np.arange(-pixels, pixels + 1)
    offsets = np.array([(y, x) for y in steps for x in steps if y or x])

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        import torch

        n, _, height, width = x.shape
        moved = to_tensor(offsets[rng.integers(len(offsets), size=n)].astype(np.float32), x).long()
        rows = torch.arange(height, device=x.device) - moved[:, :1]  # (n, height): where each row comes from
        columns = torch.arange(width, device=x.device) - moved[:, 1:]
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
        x = x.gather(2, rows.clamp(0, height - 1)[:, None, :, None].expand_as(x))
        x = x.gather(3, columns.clamp(0, width - 1)[:, None, None, :].expand_as(x))
        return x.masked_fill_(~inside[:, None], fill)

    return images(name, op, device=device)


def rotate(
    name: str = "image", *, degrees: float = 10.0, fill: float = 0.0, device: Device = "auto"
) -> Perturbation:
    """Rotate each image about its centre by a random angle.

    The angle is in ±[degrees / 2, degrees]; corners get ``fill``. Linear interpolation also blurs the image
    slightly.
    """
    if degrees <= 0:
        raise ValueError(f"degrees must be > 0, got {degrees}; an angle of 0 changes nothing")

    def op(x: "Tensor", rng: Rng) -> "Tensor":
        n, _, height, width = x.shape
        angle = np.radians(degrees) * rng.uniform(0.5, 1.0, n) * rng.choice([-1.0, 1.0], n)
        cos, sin, zero = np.cos(angle), np.sin(angle), np.zeros(n)
        # In units of half the image's sides, in which sampling places are given.
        matrix = [[cos, -sin * height / width, zero], [sin * width / height, cos, zero]]
        return _sampled(x, np.moveaxis(np.array(matrix), 2, 0), fill)

    return images(name, op, device=device)


def zoom(
    name: str = "image", *, factor: float = 1.1, fill: float = 0.0, device: Device = "auto"
) -> Perturbation:
    """Enlarge images by ``factor`` about the centre, at constant size.

    A factor below 1 shrinks, with a border of ``fill``.
    """
    if factor <= 0 or factor == 1:
        raise ValueError(f"factor must be > 0 and not 1, got {factor}")
    matrix = np.array([[[1 / factor, 0, 0], [0, 1 / factor, 0]]])
    return images(name, lambda x, _: _sampled(x, np.repeat(matrix, len(x), axis=0), fill), device=device)


def flip(
    name: str = "image", *, axis: Literal["horizontal", "vertical"] = "horizontal", device: Device = "auto"
) -> Perturbation:
    """Mirror images. ``horizontal`` exchanges left and right, ``vertical`` top and bottom."""
    axes = {"horizontal": 3, "vertical": 2}
    if axis not in axes:
        raise ValueError(f"axis must be one of {', '.join(axes)}, got {axis!r}")
    return images(name, lambda x, _: x.flip(axes[axis]), device=device)


def _sampled(x: "Tensor", matrix: NDArray[Any], fill: float) -> "Tensor":
    """Images sampled by affine matrices (n, 2, 3), with ``fill`` outside the border."""
    from torch.nn.functional import affine_grid, grid_sample

    grid = affine_grid(to_tensor(matrix, x), list(x.shape), align_corners=False)
    if fill == 0:
        return grid_sample(x, grid, align_corners=False)
    return grid_sample(x.sub_(fill), grid, align_corners=False).add_(fill)
