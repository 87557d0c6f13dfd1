"""Features that a profile counts.

Columns themselves, or properties of texts, images, vectors and lists.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.columns import is_tensor, to_tensor

Source: TypeAlias = Literal["number", "category", "text", "image", "vector", "list", "none"]
PARTS = ("inputs.", "outputs.", "attrs.")
TEXT_WORDS = 5.0
"""Mean words from which a column of strings is text, not categories."""
IMAGE_SIDE = 8
"""Least height and width of a tensor that is an image."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column to count: numbers, or values to encode. Nulls are nulls of ``values``."""

    name: str
    is_number: bool
    values: pa.Array


def source_of(column: pa.Array, *, is_text: bool | None = None) -> Source:
    """Kind of thing that a column holds.

    Parameters
    ----------
    is_text
        What is known of a column of strings; None looks at how many words they have.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return "number"
    if pa.types.is_boolean(kind):
        return "category"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text" if (_is_text(column) if is_text is None else is_text) else "category"
    if is_tensor(kind):
        sides = [side for side in kind.shape if side > 4]
        return "image" if len(sides) == 2 and min(sides) >= IMAGE_SIDE else "vector"
    return "list" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else "none"


def features_of(name: str, column: pa.Array, source: Source) -> Iterator[Feature]:
    """Features of one column of a source: itself, or properties named ``<column>#<property>``."""
    if source == "number":
        yield Feature(name, True, column)
    elif source == "category":
        yield Feature(name, False, column)
    elif source == "text":
        yield Feature(f"{name}#length", True, pc.utf8_length(column))
        yield Feature(f"{name}#language", False, _languages(column))
    elif source == "image":
        brightness, sharpness = _of_images(to_tensor(column, name, 0))
        for label, values in (("brightness", brightness), ("sharpness", sharpness)):
            yield Feature(f"{name}#{label}", True, _masked(values, column))
    elif source == "vector":
        flat = to_tensor(column, name, 0).reshape(len(column), -1).astype(np.float64)
        yield Feature(f"{name}#norm", True, _masked(np.sqrt((flat * flat).sum(axis=1)), column))
    elif source == "list":
        yield Feature(f"{name}#elements", True, pc.list_value_length(column))


def batch_columns(batch: Batch) -> dict[str, pa.Array]:
    """Columns of inputs, outputs and attributes, by full name."""
    table = batch.to_arrow()
    return {
        name: column
        for name, column in zip(table.schema.names, table.columns, strict=True)
        if name.startswith(PARTS)
    }


def _is_text(column: pa.Array) -> bool:
    texts = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    words = pc.mean(pc.count_substring_regex(texts, r"\S+")).as_py()
    return words is not None and words >= TEXT_WORDS


def _languages(column: pa.Array) -> pa.Array:
    from outrider.assertions.library.languages import detect_language

    texts = pc.utf8_slice_codeunits(pc.fill_null(column, ""), 0, 400)
    found = np.array([each or "unknown" for each in detect_language(texts.to_pylist())], dtype=object)
    return pa.array(found, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _of_images(images: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each image, and variance of its Laplacian (Pech-Pacheco et al., ICPR 2000)."""
    shape = images.shape[1:]
    channels = tuple(axis + 1 for axis, side in enumerate(shape) if side <= 4)
    grey = images.mean(axis=channels, dtype=np.float64) if channels else images.astype(np.float64)
    inner = grey[:, 1:-1, 1:-1]
    laplacian = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:] - 4.0 * inner
    return grey.mean(axis=(1, 2)), laplacian.var(axis=(1, 2))


def _masked(values: NDArray[np.float64], column: pa.Array) -> pa.Array:
    return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
