"""Chart of a dataset's rows by version."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 340.0, 90.0


@dataclass(frozen=True, slots=True)
class GrowthChart:
    """Points of an SVG.

    Attributes
    ----------
    area, line
        Rows by number of the version, from zero.
    most
        Rows at the upper end.
    first, last
        Versions at both ends.
    """

    area: str
    line: str
    most: int
    first: int
    last: int


def growth_chart(growth: Sequence[tuple[int, int, int]]) -> GrowthChart:
    """Chart of versions.

    Parameters
    ----------
    growth
        Number, rows and time of each, at least one.
    """
    first, last = growth[0][0], growth[-1][0]
    most = max(1, *(rows for _, rows, _ in growth))
    points: list[str] = []
    before = HEIGHT
    for number, rows, _ in growth:
        x = WIDTH * (number - first) / max(1, last - first)
        y = HEIGHT * (1 - rows / most)
        points += [f"{x:.1f},{before:.1f}"] if points else []
        points.append(f"{x:.1f},{y:.1f}")
        before = y
    if first == last:
        points.append(f"{WIDTH:.1f},{before:.1f}")
    corners = f"0,{HEIGHT} {' '.join(points)} {WIDTH},{HEIGHT}"
    return GrowthChart(corners, " ".join(points), most, first, last)
