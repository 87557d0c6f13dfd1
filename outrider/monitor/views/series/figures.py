"""Series: figures by step, and of the whole range."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.performance import UNKNOWN, Estimated

from .span import SeriesSpan

K = TypeVar("K", bound=Hashable)
ALL = "all"


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Name of a series: one figure of one judged version."""

    measure: str
    statistic: str
    """``share``, ``count``, ``mean``, ``sum``, ``p50``, ``p95``, or the name of a performance figure."""
    unit: str
    name: str
    """Assertion, live test or challenger; empty where there is none."""
    version: str
    """The judged one; empty where it is not known."""
    slice: str | None = None
    """None is all slices together."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One series."""

    key: SeriesKey
    points: Sequence[Estimated]
    whole: Estimated
    method: str = "exact"
    """``exact`` counts, ``plain`` labels, or labels ``weighted`` by their chance of having been asked for."""


def counted(number: float) -> Estimated:
    """Exact count, which has no interval."""
    return Estimated(number, number, number, int(number), float(number))


def rows_by_step(
    span: SeriesSpan,
    groups: Mapping[K, NDArray[np.intp]],
    places: NDArray[np.intp],
    figure: Callable[[NDArray[np.intp]], Estimated],
) -> dict[K, tuple[list[Estimated], Estimated]]:
    """Figures of groups of cells, by step and of all.

    Parameters
    ----------
    groups
        Cells of each group.
    places
        Step of each cell.
    figure
        Estimated of some cells; there is at least one.
    """
    found = {}
    for key, cells in groups.items():
        points = [UNKNOWN] * span.steps
        order = cells[np.argsort(places[cells], kind="stable")]
        steps, first = np.unique(places[order], return_index=True)
        for step, part in zip(steps.tolist(), np.split(order, first[1:]), strict=True):
            points[step] = figure(part)
        found[key] = points, figure(cells)
    return found


def group_cells(keys: Sequence[K]) -> dict[K, NDArray[np.intp]]:
    """Places of each key, in the order of the keys' first."""
    found: dict[K, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return {key: np.array(places, dtype=np.intp) for key, places in found.items()}


def number(value: float) -> float | None:
    """Figure for JSON: None where unknown."""
    return None if math.isnan(value) else value
