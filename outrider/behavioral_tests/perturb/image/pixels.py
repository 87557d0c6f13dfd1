"""What changes of images share: numpy columns in, torch tensors inside, numpy of the same type out.

Torch is imported when a perturbation is made, not when this module is: a suite without images never loads
it, and where a suite runs under a deadline and a memory limit, they begin after it is loaded. Random numbers
come from numpy, so that a seed gives the same pictures on every device.
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
"""``"auto"`` (CUDA where there is one, else the CPU), or what torch takes, such as ``"cuda:1"``."""
Axis: TypeAlias = Literal["row", "column"]
Op: TypeAlias = "Callable[[Tensor, Rng], Tensor]"
"""Floats of shape (n, c, h, w) to the same shape. It may work in place: the tensor is a copy."""

UNIT: Range = (0.0, 1.0)


def images(name: str, op: Op, *, device: Device = "auto", value_range: Range | None = None) -> Perturbation:
    """Perturbation of an image column by ``op``, clipped to ``value_range`` if one is given.

    Raises
    ------
    ValueError
        When made, if the range is empty; when run, if the column does not hold images of shape
        (height, width) or (channels, height, width).
    """
    import torch

    if value_range is not None and not value_range[0] < value_range[1]:
        raise ValueError(f"value_range must be (lowest, highest) pixel value, got {value_range}")
    place = torch.device(_auto() if device == "auto" else device)
    change = partial(_change, name=name, op=op, device=place, value_range=value_range)
    # What torch does lazily (threads, the context of a GPU) is done now, outside any task.
    change(np.zeros((1, 3, 8, 8), dtype=np.float32), np.random.default_rng(0))
    return column(name, change)


def to_tensor(values: NDArray[Any], like: "Tensor") -> "Tensor":
    """Random numbers as a tensor of the type and on the device of ``like``."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(like)


def _auto() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _change(
    values: NDArray[Any], rng: Rng, *, name: str, op: Op, device: Any, value_range: Range | None
) -> NDArray[Any]:
    import torch

    if values.ndim not in (3, 4) or values.dtype.kind not in "fiu":
        raise ValueError(
            f"inputs.{name}: numbers of shape (height, width) or (channels, height, width) per image "
            f"expected, got {values.dtype} of shape {values.shape[1:]}; reshape the column"
        )
    work = np.float64 if values.dtype == np.float64 else np.float32
    shape = values.shape if values.ndim == 4 else (len(values), 1, *values.shape[1:])
    with torch.inference_mode():
        tensor = torch.from_numpy(np.array(values, dtype=work, order="C").reshape(shape)).to(device)
        tensor = op(tensor, rng)
        if value_range is not None:
            tensor = tensor.clamp_(*value_range)
        changed: NDArray[Any] = tensor.cpu().numpy().reshape(values.shape)
    if values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        changed = np.clip(np.rint(changed), limits.min, limits.max)
    return changed.astype(values.dtype, copy=False)
