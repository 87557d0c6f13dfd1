"""Reference and current with their columns and samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.assertions.batch_schema import MARKS, SYSTEM, is_part

from .reading import arrow_of, columns_of
from .sampling import WindowSample, sample_of

FEWEST = 30
"""Effective records of a window below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Columns of both windows, and their samples.

    Attributes
    ----------
    samples
        Of reference and current.
    entity, weight
        Columns of that name, or None.
    """

    reference: Mapping[str, Any]
    current: Mapping[str, Any]
    samples: tuple[WindowSample, WindowSample]
    entity: str | None
    weight: str | None

    @classmethod
    def of(cls, reference: Any, current: Any, entity: str | None, weight: str | None) -> "Windows":
        """Windows of data.

        Records of a service bring entity and weight under these names.

        Raises
        ------
        ValueError
            If a named column is absent, or a weight is not above 0.
        """
        one, two = columns_of(reference), columns_of(current)
        if any(map(is_part, one)):
            both = one, two
            entity = entity or ("entity" if all(_has_values(each.get("entity")) for each in both) else None)
            weight = weight or ("weight" if any(_is_uneven(each.get("weight")) for each in both) else None)
        named = [name for name in (entity, weight) if name is not None]
        samples = []
        for window, columns in (("reference", one), ("current", two)):
            if absent := [name for name in named if name not in columns]:
                raise ValueError(f"{window}: column {absent[0]!r} expected, found {', '.join(columns)}")
            by = [None if name is None else columns[name] for name in (weight, entity)]
            samples.append(sample_of(_rows(columns), *by))
        return cls(one, two, (samples[0], samples[1]), entity, weight)

    def chosen(self, columns: Sequence[str] | None) -> list[str]:
        """Columns to compare, in the order of the reference.

        Raises
        ------
        ValueError
            If one is absent from the reference.
        """
        system = {*SYSTEM, *MARKS} if any(map(is_part, self.reference)) else set()
        if columns is None:
            return [name for name in self.reference if name not in {*system, self.entity, self.weight}]
        if absent := [name for name in columns if name not in self.reference]:
            raise ValueError(f"reference: column {absent[0]!r} expected, found {', '.join(self.reference)}")
        return list(columns)

    def problems(self) -> list[str]:
        """Sentences about windows that are too small for any verdict."""
        return size_problems((self.samples[0].effective, self.samples[1].effective))


def size_problems(effective: tuple[float, float]) -> list[str]:
    """Sentences about windows with too few effective records."""
    return [
        f"{window}: at least {FEWEST} effective records expected, found {records:,.0f}"
        for window, records in zip(("reference", "current"), effective, strict=True)
        if records < FEWEST
    ]


def _rows(columns: Mapping[str, Any]) -> int:
    return len(next(iter(columns.values()))) if columns else 0


def _has_values(column: Any) -> bool:
    return column is not None and arrow_of(column).null_count < len(column)


def _is_uneven(column: Any) -> bool:
    if column is None or not len(column):
        return False
    values = np.asarray(arrow_of(column).to_numpy(zero_copy_only=False))
    return bool((values != values[0]).any())
