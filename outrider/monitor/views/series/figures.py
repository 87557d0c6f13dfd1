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
    measure: str
    statistic: str
    unit: str
    name: str
    version: str
    slice: str | None = None


@dataclass(frozen=True, slots=True)
class SeriesRow:
    key: SeriesKey
    points: Sequence[Estimated]
    whole: Estimated
    method: str = "exact"
    """``exact`` counts, ``plain`` labels, or labels ``weighted`` by their chance."""


def counted(number: float) -> Estimated:
    return Estimated(number, number, number, int(number), float(number))


def rows_by_step(
    span: SeriesSpan,
    groups: Mapping[K, NDArray[np.intp]],
    places: NDArray[np.intp],
    figure: Callable[[NDArray[np.intp]], Estimated],
) -> dict[K, tuple[list[Estimated], Estimated]]:
    """Figures of groups of cells, by step and of all."""
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
    found: dict[K, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return {key: np.array(places, dtype=np.intp) for key, places in found.items()}


def number(value: float) -> float | None:
    return None if math.isnan(value) else value
