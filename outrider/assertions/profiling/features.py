"""Features that a profile counts.

These are the columns themselves, or properties of texts, images, vectors and lists.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import is_tensor, to_tensor
from outrider.assertions.texts.words import are_texts

Source: TypeAlias = Literal["number", "category", "text", "image", "vector", "list", "none"]
PARTS = ("inputs.", "outputs.", "attrs.")
PROPERTIES: Mapping[Source, tuple[str, ...]] = {
    "text": ("#length", "#language"),
    "image": ("#brightness", "#sharpness"),
    "vector": ("#norm",),
    "list": ("#elements",),
}
"""Name suffixes of features, by source."""
TRUNCATED = "#truncated"
"""Name suffix of the column that marks texts cut by a model's tokenizer."""
TEXT_WORDS = 5.0
"""Mean number of words from which a string column is text, not categories."""
IMAGE_SIDE = 8
"""Minimum height and width of a tensor that is treated as an image."""
WIDE_BYTES = 8192
"""Tensors of at least this size are buffered as their features, not as tensors."""
LOOKED_AT = 96
"""Maximum number of pixels per side that are sampled."""
_CHUNK = 32


@dataclass(frozen=True, slots=True)
class Feature:
    """Column to count: numbers, or values to encode. Nulls are nulls of ``values``."""

    name: str
    is_number: bool
    values: pa.Array


def source_of(column: pa.Array, *, is_text: bool | None = None) -> Source:
    """Kind of content of a column.

    ``is_text`` is the known kind of a string column; None decides by its number of words.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return "number"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):  # months have no length
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
    """Features of one column. The column itself, or properties named ``<column>#<property>``."""
    if source == "number":
        yield Feature(name, True, column)
    elif source == "category":
        yield Feature(name, False, column)
    elif source == "text":
        texts = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        yield Feature(f"{name}#length", True, pc.utf8_length(texts))
        yield Feature(f"{name}#language", False, _languages(texts))
    elif source == "image":
        brightness, sharpness = _of_images(to_tensor(column, name, 0))
        for label, values in (("brightness", brightness), ("sharpness", sharpness)):
            yield Feature(f"{name}#{label}", True, _masked(values, column))
    elif source == "vector":
        flat = to_tensor(column, name, 0).reshape(len(column), -1).astype(np.float64)
        yield Feature(f"{name}#norm", True, _masked(np.sqrt((flat * flat).sum(axis=1)), column))
    elif source == "list":
        yield Feature(f"{name}#elements", True, pc.list_value_length(column))


def source_of_feature(name: str, kind: pa.DataType) -> Source | None:
    """Tensor kind from which a feature column was computed, or None."""
    if not pa.types.is_float64(kind):
        return None
    tensors: tuple[Source, ...] = ("image", "vector")
    return next((source for source in tensors if name.endswith(PROPERTIES[source])), None)


def narrowed(batch: Batch) -> Batch:
    """Records with large tensors replaced by their features.

    Both batches give the same profile.

    Examples
    --------
    >>> from outrider.assertions.batch.columns import tensor_array
    >>> images = tensor_array(np.zeros((2, 64, 64)))
    >>> sorted(batch_columns(narrowed(Batch.from_columns({"inputs.image": images}, model="m"))))
    ['inputs.image#brightness', 'inputs.image#sharpness']
    """
    table = batch.to_arrow()
    if not any(_is_wide(kind) for kind in table.schema.types):
        return batch
    columns: dict[str, pa.Array] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if name.startswith(PARTS) and _is_wide(column.type):
            columns |= {one.name: one.values for one in features_of(name, column, source_of(column))}
        else:
            columns[name] = column
    return Batch(pa.record_batch(columns), model=batch.model)


def _is_wide(kind: pa.DataType) -> bool:
    return is_tensor(kind) and int(np.prod(kind.shape)) * kind.value_type.bit_width >= 8 * WIDE_BYTES


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
    return are_texts(texts, least=TEXT_WORDS)


def _languages(column: pa.Array) -> pa.Array:
    from outrider.assertions.library.languages import detect_language

    texts = pc.utf8_slice_codeunits(pc.fill_null(column, ""), 0, 200)
    found = np.array([each or "unknown" for each in detect_language(texts.to_pylist())], dtype=object)
    return pa.array(found, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _of_images(images: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each image, and variance of its Laplacian (Pech-Pacheco et al., ICPR 2000).

    Large images are subsampled for the mean, and cropped to the middle for the variance.
    """
    sides = [axis for axis, side in enumerate(images.shape[1:], start=1) if side > 4]
    thin, middle = [slice(None)] * images.ndim, [slice(None)] * images.ndim
    for axis in sides:
        side = images.shape[axis]
        thin[axis] = slice(None, None, max(1, side // (LOOKED_AT // 2)))
        begin = max(0, (side - LOOKED_AT) // 2)
        middle[axis] = slice(begin, begin + LOOKED_AT)
    brightness = np.zeros(len(images))
    sharpness = np.zeros(len(images))
    for start in range(0, len(images), _CHUNK):
        here = images[start : start + _CHUNK]
        pixels = here[tuple(thin)].reshape(len(here), -1).astype(np.float32, copy=False)
        brightness[start : start + _CHUNK] = pixels.mean(axis=1)
        sharpness[start : start + _CHUNK] = _laplacian_variance(_grey(here[tuple(middle)], sides))
    return brightness, sharpness


def _grey(images: NDArray[Any], sides: list[int]) -> NDArray[np.float32]:
    """Images averaged over channels, shape (rows, height, width)."""
    channels = [axis for axis in range(1, images.ndim) if axis not in sides]
    apart = np.moveaxis(images, channels, range(len(channels)))
    apart = apart.reshape(-1, *apart.shape[len(channels) :])
    grey: NDArray[np.float32] = apart[0].astype(np.float32)
    for channel in apart[1:]:
        grey += channel
    grey /= len(apart)
    return grey


def _laplacian_variance(grey: NDArray[np.float32]) -> NDArray[np.float64]:
    """Variance over the inner pixels of each image, shape (rows,)."""
    rows, height, width = grey.shape
    flat = np.ascontiguousarray(grey).reshape(rows, -1)  # long runs; the sides of images are left out below
    size = flat.shape[1]
    edges = flat[:, width : size - width] * np.float32(-4.0)
    for start in (0, 2 * width, width - 1, width + 1):
        edges += flat[:, start : start + size - 2 * width]
    whole = edges.reshape(rows, height - 2, width)
    whole[:, :, 0] = whole[:, :, -1] = 0.0
    inner = (height - 2) * (width - 2)
    mean: NDArray[np.float64] = edges.sum(axis=1, dtype=np.float64) / inner
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", edges, edges).astype(np.float64)
    squares /= inner
    squares -= mean * mean
    return np.maximum(squares, 0.0, out=squares)


def _masked(values: NDArray[np.float64], column: pa.Array) -> pa.Array:
    return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
