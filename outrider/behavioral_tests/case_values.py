"""Compact values of a failed case for reports.

Texts are cut around their change, tensors described, and one image is kept.
"""

import base64
import io
import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, Any]
_LONGEST_TENSOR = 256  # numbers; shorter ones are spelled out
_LONGEST_TEXT = 4_000  # letters
_BEFORE_CHANGE = 500  # letters kept in front of the first one that differs
_POINTS = 128  # of a series
_SIDES = {1: 64, 3: 48, 4: 40}  # pixels by channels: noise, which does not compress, stays below 10 kB
_MIN_SIDE = 4


def keep(was: Values, now: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compact values of an input before and after its change.

    JSON-compatible, below about 20 kB per field for both. An image, and any tensor of more than 256 numbers,
    becomes ``{"tensor": description, "shape": […]}``, with ``png`` (base64) for the first changed image, or
    ``line``, at most 128 numbers, for a series.
    """
    changed = [name for name in now if was.get(name) != now[name]]
    images = [name for name in (*changed, *now) if image_of(now[name]) is not None]
    pictured = images[0] if images else None
    before = {name: _kept(old, now.get(name, old), old, name == pictured) for name, old in was.items()}
    after = {}
    for name, new in now.items():
        old = was.get(name, new)
        after[name] = _kept(new, old, old, name == pictured)
    return before, after


def describe(values: Values) -> dict[str, Any]:
    """Compact values that have no counterpart, such as answers."""
    return {name: _kept(value, value, value, False) for name, value in values.items()}


def is_tensor(value: object) -> TypeGuard[Mapping[str, Any]]:
    """True if a compact value represents a tensor."""
    return isinstance(value, Mapping) and "tensor" in value and "shape" in value


def image_of(value: object) -> NDArray[Any] | None:
    """Pixels of nested lists that look like an image.

    Shape (height, width) or (height, width, channels); None if they do not.
    """
    array = numbers_of(value)
    if array is None or array.ndim not in (2, 3):
        return None
    if array.ndim == 3:
        if array.shape[0] in _SIDES:
            array = np.moveaxis(array, 0, -1)
        if array.shape[-1] not in _SIDES:
            return None
        array = array[..., 0] if array.shape[-1] == 1 else array
    return array if min(array.shape[:2]) >= _MIN_SIDE else None


def png_of(image: NDArray[Any], scale_of: NDArray[Any]) -> str:
    """Base64 of a small PNG. Black and white are the minimum and maximum of ``scale_of``; NaN is black."""
    from PIL import Image

    known = scale_of[np.isfinite(scale_of)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    pixels = np.nan_to_num(image.astype(np.float64), nan=low, posinf=high, neginf=low)
    share = (pixels - low) / ((high - low) or 1.0)
    picture = Image.fromarray((np.clip(share, 0.0, 1.0) * 255).round().astype(np.uint8))
    side = _SIDES[1 if image.ndim == 2 else image.shape[-1]]
    picture.thumbnail((side, side), Image.Resampling.BOX)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def clip(text: str, other: str) -> str:
    """Part of a long text around its first difference from ``other``."""
    if max(len(text), len(other)) <= _LONGEST_TEXT:
        return text
    common = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    start = max(0, common - _BEFORE_CHANGE)
    end = start + _LONGEST_TEXT
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _kept(value: Any, other: object, scale_of: object, pictured: bool) -> Any:
    if isinstance(value, str):
        return clip(value, other if isinstance(other, str) else value)
    array = numbers_of(value)
    if array is not None:
        return _plain(value) if array.size <= _LONGEST_TENSOR else _tensor(value, array, scale_of, pictured)
    if isinstance(value, list | Mapping):
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) > _LONGEST_TEXT:
            return clip(text, json.dumps(other, ensure_ascii=False, default=str))
    return _plain(value)


def _plain(value: Any) -> Any:
    """Value that JSON can carry: dates and the like as text, NaN as None."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _tensor(value: object, array: NDArray[Any], scale_of: object, pictured: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "tensor": numbers_summary(array),
        "shape": list(array.shape),
    }
    image = image_of(value)
    if pictured and image is not None:
        scale = image_of(scale_of)
        kept["png"] = png_of(image, image if scale is None else scale)
    elif array.ndim == 1 and np.isfinite(array).all():
        at = np.linspace(0, array.size - 1, _POINTS).round().astype(np.intp)
        kept["line"] = [float(f"{number:.4g}") for number in array[at].tolist()]
    return kept


def numbers_summary(array: NDArray[Any]) -> str:
    """Shape, range and mean of a long array, as text."""
    return f"tensor{array.shape} in [{array.min():.3g}, {array.max():.3g}], mean {array.mean():.3g}"


def numbers_of(value: object) -> NDArray[Any] | None:
    """Array of nested lists of numbers with equal lengths, else None."""
    if not isinstance(value, list):
        return None
    try:
        array = np.asarray(value)
        if array.dtype == object:  # JSON has None for NaN
            array = array.astype(np.float64)
    except (ValueError, TypeError, OverflowError):  # ragged, no numbers, or beyond all of them
        return None
    return array if array.dtype.kind in "fiub" and array.size else None
