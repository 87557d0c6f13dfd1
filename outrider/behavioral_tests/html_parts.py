"""Parts of the HTML report: changed values and small pictures.

Drawings contain numbers only; texts of models and suites go through the template, which escapes them.
"""

import base64
import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from .case_values import image_of, is_tensor, numbers_of, numbers_summary, png_of
from .diff import Piece, text_diff
from .outcome import Measure

_MOST_PIXELS = 256  # a side
_SHORT = 40  # letters
_SAME = 300  # letters of an unchanged stretch that are shown


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an example. ``pieces``, ``images`` or ``drawing`` replace its values if set."""

    name: str
    before: str
    after: str
    changed: bool
    pieces: tuple[Piece, ...] = ()
    images: tuple[tuple[str, str], ...] = ()
    """Pairs of caption and base64 of a PNG."""
    drawing: Markup = field(default_factory=Markup)

    @property
    def is_large(self) -> bool:
        """True if an unchanged field needs a line of its own."""
        return bool(self.images or self.drawing) or len(self.after) > _SHORT


def fields_of(was: Mapping[str, Any] | None, now: Mapping[str, Any], *, marked_from: int = 0) -> list[Field]:
    """Fields of an input or answer, changed ones first.

    Changes inside texts shorter than ``marked_from`` letters are not marked: a short answer changes as a
    whole.
    """
    names = [*now, *(name for name in was or () if name not in now)]
    before = now if was is None else was
    found = [_field(name, before.get(name), now.get(name), marked_from) for name in names]
    return sorted(found, key=lambda each: not each.changed)


def _field(name: str, was: Any, now: Any, marked_from: int) -> Field:
    changed = was != now
    before, after = _text(was), _text(now)
    images = _images(was, now) if changed else _image("", now)
    drawing = _lines(was, now)
    pieces: list[Piece] = []
    texts = all(isinstance(value, str | list | dict) and numbers_of(value) is None for value in (was, now))
    if changed and texts and not images and not drawing and len(before + after) >= marked_from:
        pieces = [
            (kind, _shortened(text) if kind == "same" else text) for kind, text in text_diff(before, after)
        ]
    return Field(name, before, after, changed, tuple(pieces), tuple(images), drawing)


def _text(value: Any) -> str:
    if is_tensor(value):
        return str(value["tensor"])
    if isinstance(value, float):
        return f"{value:.6g}"
    if (array := numbers_of(value)) is not None:
        if image_of(value) is not None:
            return numbers_summary(array)
        value = _rounded(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return visible(text)


def _rounded(value: Any) -> Any:
    """Value with numbers rounded to four digits, for display."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def visible(text: str) -> str:
    """Text with invisible characters made visible, such as a zero-width space."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"⟨U+{ord(c):04X}⟩" for c in text)


def _shortened(text: str) -> str:
    return text if len(text) <= 2 * _SAME else f"{text[:_SAME]} … {text[-_SAME:]}"


def _images(was: Any, now: Any) -> list[tuple[str, str]]:
    """Images before and after the change, and their difference."""
    pair = [*_image("before", was), *_image("after", now, scale_of=was)]
    if len(pair) < 2:
        return []
    difference = _difference(*(content for _, content in pair))
    return [*pair, ("difference", difference)] if difference else pair


def _image(caption: str, value: Any, *, scale_of: Any = None) -> list[tuple[str, str]]:
    if is_tensor(value):
        return [(caption, value["png"])] if _is_png(value.get("png")) else []
    image = image_of(value)
    if image is None:
        return []
    scale = image_of(scale_of)
    return [(caption, png_of(image, image if scale is None else scale))]


def _is_png(text: object) -> bool:
    try:
        return isinstance(text, str) and base64.b64decode(text, validate=True).startswith(b"\x89PNG")
    except binascii.Error:
        return False


def _difference(before: str, after: str) -> str:
    """Base64 of a PNG of each pixel's change; the largest change is white."""
    from PIL import Image, ImageChops, ImageOps

    try:
        first, second = (Image.open(io.BytesIO(base64.b64decode(each))) for each in (before, after))
        if first.size != second.size or max(first.size) > _MOST_PIXELS:
            return ""
        change = ImageChops.difference(first.convert("RGB"), second.convert("RGB"))
    except OSError:  # outcomes may come from a file of unknown origin
        return ""
    file = io.BytesIO()
    ImageOps.autocontrast(change.convert("L")).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def _lines(was: Any, now: Any) -> Markup:
    """SVG of two series in one drawing."""
    series = [_series(value) for value in ((was, now) if was != now else (now,))]
    if any(len(points) < 3 for points in series):
        return Markup()
    low, high = min(map(min, series)), max(map(max, series))
    spread = (high - low) or 1.0
    paths = []
    for kind, points in zip(("before", "after")[-len(series) :], series, strict=True):
        step = 300 / (len(points) - 1)
        path = " ".join(
            f"{at * step:.1f},{57 - 54 * (value - low) / spread:.1f}" for at, value in enumerate(points)
        )
        paths.append(Markup('<polyline class="{}" points="{}"/>').format(kind, path))
    return Markup('<svg class="series" viewBox="0 0 300 60" role="img" aria-label="series">{}</svg>').format(
        Markup("").join(paths)
    )


def _series(value: Any) -> list[float]:
    points = value.get("line") if is_tensor(value) else value
    if not isinstance(points, list) or not all(type(each) in (int, float) for each in points):
        return []
    try:
        return [float(each) for each in points]
    except OverflowError:
        return []


def rate_bar(rate: float, low: float, high: float, tolerance: float | None = None) -> Markup:
    """SVG of a rate with its interval and tolerance. The scale is 0 to 1; the tolerance is a line."""
    limit = Markup("")
    if tolerance is not None:
        limit = Markup('<line class="limit" x1="{0}" x2="{0}" y1="0" y2="12"/>').format(_x(tolerance))
    return Markup(
        '<svg class="bar" viewBox="-4 0 108 12" role="img" aria-label="{} (95 % interval {} to {})">'
        '<rect class="track" x="0" y="5" width="100" height="2" rx="1"/>'
        '<rect class="span" x="{}" y="3" width="{}" height="6" rx="2"/>{}'
        '<circle class="dot" cx="{}" cy="6" r="3"/></svg>'
    ).format(
        f"{rate:.1%}", f"{low:.1%}", f"{high:.1%}", _x(low), _x(max(high - low, 0.01)), limit, _x(rate)
    )  # fmt: skip


def measure_drawings(measures: Sequence[Measure]) -> list[Markup]:
    """SVGs of figures with intervals, on a common scale with 0."""
    ends = [end for each in measures for end in (each.low, each.value, each.high) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return [_measure(each, low, (high - low) or 1.0) for each in measures]


def _measure(measure: Measure, low: float, spread: float) -> Markup:
    start, value, end = ((each - low) / spread for each in (measure.low, measure.value, measure.high))
    if not all(math.isfinite(each) for each in (start, value, end)):
        return Markup("")
    zero = -low / spread
    return Markup(
        '<svg class="measure" viewBox="-4 0 208 16" role="img" aria-label="{0} in {1} to {2}">'
        '<line class="track" x1="0" x2="200" y1="8" y2="8"/>'
        '<line class="zero" x1="{3}" x2="{3}" y1="2" y2="14"/>'
        '<line class="span" x1="{4}" x2="{5}" y1="8" y2="8"/>'
        '<circle class="dot" cx="{6}" cy="8" r="2.5"/></svg>'
    ).format(
        *(f"{each:.4g}" for each in (measure.value, measure.low, measure.high)),
        *(f"{200 * each:.1f}" for each in (zero, start, end, value)),
    )


def _x(share: float) -> str:
    return f"{100 * share:.2f}"
