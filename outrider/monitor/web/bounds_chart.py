"""Chart of a difference beyond noise by number of records, with its bounds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 340.0, 90.0


@dataclass(frozen=True, slots=True)
class BoundsChart:
    """Points of an SVG. ``band`` and ``line`` are bounds and middle of the difference, ``top`` the
    share at the upper end, ``margin`` the height of the margin, ``records`` those at the right end."""

    band: str
    line: str
    top: float
    margin: float
    records: int


def bounds_chart(looks: Sequence[Mapping[str, Any]], margin: float) -> BoundsChart | None:
    if not looks:
        return None
    top = min(1.0, max([2.5 * margin, *[1.2 * look["high"] for look in looks[len(looks) // 3 :]]]))
    points = [(look, _x(at, looks)) for at, look in enumerate(looks)]
    high = [f"{x},{_y(look['high'], top)}" for look, x in points]
    low = [f"{x},{_y(look['low'], top)}" for look, x in reversed(points)]
    line = [f"{x},{_y(look['value'], top)}" for look, x in points]
    return BoundsChart(" ".join(high + low), " ".join(line), top, _y(margin, top), looks[-1]["records"])


def worse_chart(looks: Sequence[Mapping[str, Any]]) -> BoundsChart | None:
    if not looks:
        return None
    late = looks[len(looks) // 3 :]
    reach = min(1.0, max(0.02, *[1.2 * max(abs(look["low"]), abs(look["high"])) for look in late[-5:]]))
    points = [(look, _x(at, looks)) for at, look in enumerate(looks)]

    def place(share: float) -> float:
        return _y((max(-reach, min(share, reach)) + reach) / 2, reach)

    high = [f"{x},{place(look['high'])}" for look, x in points]
    low = [f"{x},{place(look['low'])}" for look, x in reversed(points)]
    line = [f"{x},{place(look['value'])}" for look, x in points]
    return BoundsChart(" ".join(high + low), " ".join(line), reach, place(0.0), looks[-1]["records"])


def _x(at: int, looks: Sequence[Mapping[str, Any]]) -> float:
    """Horizontal place of a look, by the root of its records, so that the beginning is seen, too."""
    share = float(looks[at]["records"] / max(1, looks[-1]["records"]))
    return round(WIDTH * math.sqrt(share), 1)


def _y(share: float, top: float) -> float:
    return round(HEIGHT * (1.0 - min(share, top) / top), 1)
