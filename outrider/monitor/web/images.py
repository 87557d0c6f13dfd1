"""Tensors as PNG images, for people to look at."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LEAST_SIDE = 4
MOST_SIDE = 1024


def is_image(shape: tuple[int, ...]) -> bool:
    """Test for a tensor shape that can be shown as image.

    (H, W), (C, H, W) or (H, W, C) with C in 1, 3, 4.

    Examples
    --------
    >>> is_image((28, 28)), is_image((3, 32, 32)), is_image((768,))
    (True, True, False)
    """
    if len(shape) == 3 and shape[0] in (1, 3, 4):
        shape = shape[1:]
    elif len(shape) == 3 and shape[2] in (1, 3, 4):
        shape = shape[:2]
    return len(shape) == 2 and all(LEAST_SIDE <= side <= MOST_SIDE for side in shape)


def to_png(values: NDArray[Any], *, scale: tuple[float, float] | None = None) -> bytes:
    """PNG of one tensor.

    [0, 1] and [0, 255] keep their scale, other ranges are stretched, NaN is black.

    Parameters
    ----------
    scale
        Values of black and white, for pictures that belong together; default as above.

    Raises
    ------
    ValueError
        If the shape is not that of an image.
    """
    if not is_image(values.shape):
        raise ValueError(f"an image (H, W), (C, H, W) or (H, W, C) expected, got shape {values.shape}")
    pixels = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)  # (C, H, W) -> (H, W, C)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    low, high = scale or (float(pixels.min()), float(pixels.max()))
    if scale is not None:
        pixels = np.clip((pixels - low) * (255.0 / max(high - low, 1e-12)), 0.0, 255.0)
    elif low >= 0.0 and high <= 1.0:
        pixels = pixels * 255.0
    elif low < 0.0 or high > 255.0 or high <= 16.0:
        pixels = (pixels - low) * (255.0 / max(high - low, 1e-12))
    sink = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(sink, format="PNG", optimize=False)
    return sink.getvalue()


def as_image(value: Any) -> NDArray[Any] | None:
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError):
        return None
    return array if is_image(array.shape) else None
