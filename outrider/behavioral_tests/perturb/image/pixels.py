"""Shared parts of image changes: numpy columns around torch operations.

The type of the column is kept. Torch is imported when a perturbation is created, not with this module: a
suite without images never loads it, and a suite's deadline and memory limit start after it is loaded. Random
numbers come from numpy, so that a seed gives the same images on every device.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column

if TYPE_CHECKING:
    from torch import Tensor

Range: TypeAlias = tuple[float, float]
Device: TypeAlias = str
"""``"auto"`` (CUDA if available, else CPU), or a torch device such as ``"cuda:1"``."""
Axis: TypeAlias = Literal["row", "column"]
Limits: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
Op: TypeAlias = "Callable[[Tensor, Rng], Tensor]"
"""Function of (float tensor (n, c, h, w), rng) that returns that shape. It may change the tensor in place."""

SLACK = 0.05
"""Tolerated excess of pixels over their value range, as a share of it: interpolation overshoots."""


def images(name: str, op: Op, *, device: Device = "auto") -> Perturbation:
    """Perturbation of an image column by an ``op`` without value range.

    Such an operation moves or mixes pixels.
    """
    return _images(name, op, device)


def ranged(name: str, op: Op, *, device: Device, value_range: Range | None) -> Perturbation:
    """Perturbation by an ``op`` on images scaled to [0, 1].

    Each image is scaled from its value range to [0, 1], and the result is clipped. None infers the range from
    type and values: 0 to 255 for integers, and for floats if any is above 1, else 0 to 1.
    """
    if value_range is not None and not value_range[0] < value_range[1]:
        raise ValueError(f"value_range must be (lowest, highest) pixel value, got {value_range}")
    return _images(name, op, device, partial(_range_of, given=value_range))


def _images(
    name: str, op: Op, device: Device, range_of: "Callable[[NDArray[Any], str], Limits] | None" = None
) -> Perturbation:
    import torch

    place = torch.device(_auto() if device == "auto" else device)
    change = partial(_change, name=name, op=op, device=place, range_of=range_of)
    # What torch does lazily (threads, the context of a GPU) is done now, outside any task.
    change(np.zeros((1, 3, 8, 8), dtype=np.float32), np.random.default_rng(0))
    return column(name, change)


def to_tensor(values: NDArray[Any], like: "Tensor") -> "Tensor":
    """Tensor of numbers with the type and device of ``like``."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(like)


def _auto() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _range_of(values: NDArray[Any], name: str, *, given: Range | None) -> Limits:
    """Lowest and highest possible pixel value of each image, shape (rows,)."""
    rows, kind = len(values), values.dtype
    flat = values.reshape(rows, -1)
    if kind.kind == "f":
        flat = np.where(np.isfinite(flat), flat, 0)  # what is no number has no place in a range
    lowest, highest = (np.asarray(of(flat, axis=1), dtype=np.float64) for of in (np.min, np.max))
    if given is not None:
        low, high = np.full(rows, float(given[0])), np.full(rows, float(given[1]))
        slack = high - low  # clipped, but not where another scale is meant
    elif kind == np.uint8:
        return np.zeros(rows), np.full(rows, 255.0)
    elif kind == np.int64 or kind.kind == "f":
        low = np.zeros(rows)
        is_unit = (highest <= 1 + SLACK) & (kind.kind == "f")
        high = np.where(is_unit, 1.0, 255.0)
        slack = SLACK * high
    else:
        raise ValueError(
            f"inputs.{name}: which values {kind} pixels range over is not known; "
            "give value_range=(lowest, highest), or images as uint8 or floats"
        )
    odd = np.flatnonzero((lowest < low - slack) | (highest > high + slack))
    if len(odd):
        at = int(odd[0])
        known = (
            "pixels of 0 to 1 or 0 to 255"
            if given is None
            else f"pixels of about {low[at]:g} to {high[at]:g}"
        )
        raise ValueError(
            f"inputs.{name}: {known} expected, but an image holds {lowest[at]:g} to {highest[at]:g} "
            f"({kind}); give value_range=(lowest, highest)"
        )
    return low, high


def _in_range(tensor: "Tensor", rng: Rng, *, op: Op, limits: Limits) -> "Tensor":
    """Images changed by ``op`` in the range 0 to 1, scaled back to their range."""
    low, width = (to_tensor(each.reshape(-1, 1, 1, 1), tensor) for each in (limits[0], limits[1] - limits[0]))
    if not low.any() and (width == 1).all():
        return op(tensor, rng).clamp_(0, 1)
    unit = tensor.sub(low).div_(width)
    changed = op(unit.clone(), rng).clamp_(0, 1)
    # Pixels that stay do so exactly: the way to the range and back rounds.
    return tensor.where(changed == unit, changed.mul(width).add_(low))


def _change(
    values: NDArray[Any],
    rng: Rng,
    *,
    name: str,
    op: Op,
    device: Any,
    range_of: "Callable[[NDArray[Any], str], Limits] | None",
) -> NDArray[Any]:
    import torch

    if values.ndim not in (3, 4) or values.dtype.kind not in "fiu":
        raise ValueError(
            f"inputs.{name}: numbers of shape (height, width) or (channels, height, width) per image "
            f"expected, got {values.dtype} of shape {values.shape[1:]}; reshape the column"
        )
    if range_of is not None and len(values):
        op = partial(_in_range, op=op, limits=range_of(values, name))
    work = np.float64 if values.dtype == np.float64 else np.float32
    shape = values.shape if values.ndim == 4 else (len(values), 1, *values.shape[1:])
    with torch.inference_mode():
        tensor = torch.from_numpy(np.array(values, dtype=work, order="C").reshape(shape)).to(device)
        tensor = op(tensor, rng)
        changed: NDArray[Any] = tensor.cpu().numpy().reshape(values.shape)
    if values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        changed = np.clip(np.rint(changed), limits.min, limits.max)
    return changed.astype(values.dtype, copy=False)
