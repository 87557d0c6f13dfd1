"""Decoding of images into tensors of a declared size and mode."""

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .columns import PayloadForm
from .roots import PayloadError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""Pillow knows more, of which some run programs or have no bounds."""
_MODES = {None: "L", 1: "L", 3: "RGB", 4: "RGBA"}
MOST_PIXELS = 25_000_000
MOST_DECODED_BYTES = 268_435_456
"""Of images that one model decodes at a time, unpacked."""
_PIXEL_BYTES = 8
"""Four of the widest mode, and four of what it is converted to."""


class DecodeGate:
    """Bound on the bytes of images unpacked at a time. One may exceed alone."""

    def __init__(self, most_bytes: int = MOST_DECODED_BYTES) -> None:
        self._most = most_bytes
        self._taken = 0
        self._freed = threading.Condition()

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        size = pixels * _PIXEL_BYTES
        with self._freed:
            self._freed.wait_for(lambda: not self._taken or self._taken + size <= self._most)
            self._taken += size
        try:
            yield
        finally:
            with self._freed:
                self._taken -= size
                self._freed.notify_all()


def decode_image(
    data: bytes, form: PayloadForm, *, max_pixels: int = MOST_PIXELS, gate: DecodeGate | None = None
) -> NDArray[np.float32]:
    """First frame, resized bilinearly without keeping proportions; EXIF rotation is ignored.

    ``max_pixels`` is checked before anything is unpacked.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own bound on pixels is above ours
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise PayloadError(
                        f"an image of {width} x {height} pixels, at most {max_pixels} expected "
                        "(intake.payload_pixels of the model)"
                    )
                with nullcontext() if gate is None else gate.room(width * height):
                    return _tensor(image, form)
    except PayloadError:
        raise
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise PayloadError(f"no image in {known}: {len(data)} bytes that begin {data[:8].hex()}") from None
    except Exception as error:  # noqa: BLE001 - the record alone is refused, whatever a decoder raises
        raise PayloadError(f"the image cannot be decoded: {type(error).__name__}: {error}") from None


def _tensor(image: "Image.Image", form: PayloadForm) -> NDArray[np.float32]:
    from PIL import Image

    height, width = form.shape[:2]
    channels = form.shape[2] if len(form.shape) == 3 else None
    mode = _MODES[channels]
    converted = _eight_bits(image).convert(mode)
    if converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(converted, dtype=np.float32).reshape(form.shape)
    return values / np.float32(255.0) if form.top == 1 else values.copy()


def _eight_bits(image: "Image.Image") -> "Image.Image":
    """Pillow would clip grey of more than 8 bits at 255."""
    from PIL import Image

    if image.mode.startswith("I"):
        return Image.fromarray((np.clip(np.asarray(image), 0, 65535).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode == "F":
        return Image.fromarray(np.clip(np.nan_to_num(np.asarray(image)), 0, 255).astype(np.uint8))
    return image
