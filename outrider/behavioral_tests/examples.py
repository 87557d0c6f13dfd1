"""Examples that a test asks, as one batch with case numbers."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import row_hashes


@dataclass(frozen=True, slots=True)
class Grouped:
    """Cases with several examples each, such as a text and its variants.

    ``case`` is the number of the case of each row, shape (rows,), non-decreasing from 0; the first example of
    a case is its original.
    """

    batch: Batch
    case: NDArray[np.intp]

    def __post_init__(self) -> None:
        steps = np.diff(self.case, prepend=-1) if len(self.case) else np.zeros(0)
        if len(self.case) != self.batch.rows or ((steps != 0) & (steps != 1)).any():
            raise ValueError(
                f"case numbers 0, 0, 1, … of {self.batch.rows} rows expected, got {self.case[:10].tolist()}"
            )


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples to ask for one test: originals and changed copies.

    Parameters
    ----------
    batch
        Examples; with ``outputs.*`` once they are answered. Rows of a case need not be adjacent.
    case
        Number of the case of each row, in [0, cases).
    original
        Row of the unchanged input of each case, shape (cases,); None in a minimum functionality test.
    skipped
        Number of further cases to which no change applied.
    """

    batch: Batch
    case: NDArray[np.intp]
    cases: int
    original: NDArray[np.intp] | None = None
    skipped: int = 0

    @classmethod
    def alone(cls, batch: Batch) -> Self:
        """Examples with one case per row."""
        return cls(batch, np.arange(batch.rows), batch.rows)

    @classmethod
    def of_written(cls, grouped: Grouped, *, has_original: bool, lone: bool = False) -> Self:
        """Examples of written cases. Originals without variants are kept only with ``lone``."""
        case = grouped.case
        cases = int(case[-1]) + 1 if len(case) else 0
        if not has_original:
            return cls(grouped.batch, case, cases)
        kept = np.bincount(case, minlength=cases) > (0 if lone else 1)
        if kept.all():
            return cls(grouped.batch, case, cases, np.searchsorted(case, np.arange(cases)))
        rows = np.flatnonzero(kept[case])
        number = np.cumsum(kept) - 1
        case = number[case[rows]].astype(np.intp)
        first = np.flatnonzero(np.diff(case, prepend=-1)).astype(np.intp)
        return cls(grouped.batch.take(rows), case, int(kept.sum()), first, int((~kept).sum()))

    @classmethod
    def of_copies(
        cls, originals: Batch, copies: Batch, parent: NDArray[np.intp], *, skipped: int = 0
    ) -> Self:
        """Originals and their changed copies. ``parent`` is the original's row of each copy."""
        if originals.rows == 0:
            return cls(originals, np.zeros(0, dtype=np.intp), 0, np.zeros(0, dtype=np.intp), skipped)
        numbers = np.arange(originals.rows)
        batch = Batch.concat([originals, copies])
        return cls(batch, np.concatenate([numbers, parent]), originals.rows, numbers, skipped)

    @property
    def is_copy(self) -> NDArray[np.bool_]:
        """Mask of the rows that are not originals. In a minimum functionality test all rows."""
        copy = np.ones(self.batch.rows, dtype=np.bool_)
        if self.original is not None:
            copy[self.original] = False
        return copy

    def answered(self, batch: Batch) -> "Examples":
        """The same examples with a batch that has answers."""
        return Examples(batch, self.case, self.cases, self.original, self.skipped)

    def in_order(self) -> tuple[Batch, NDArray[np.intp]]:
        """Rows sorted by case, the original first, and their case numbers."""
        if (np.diff(self.case) >= 0).all():
            return self.batch, self.case
        order = np.argsort(self.case, kind="stable")
        return self.batch.take(order), self.case[order]

    def take(self, cases: NDArray[np.intp]) -> "Examples":
        """Selected distinct cases with their rows, renumbered in the given order."""
        number = np.full(self.cases, -1, dtype=np.intp)
        number[cases] = np.arange(len(cases))
        rows = np.flatnonzero(number[self.case] >= 0)
        rows = rows[np.argsort(number[self.case[rows]], kind="stable")]
        original = None
        if self.original is not None:
            at = np.empty(self.batch.rows, dtype=np.intp)
            at[rows] = np.arange(len(rows))
            original = at[self.original[cases]]
        return Examples(self.batch.take(rows), number[self.case[rows]], len(cases), original)


def input_digests(batch: Batch) -> NDArray[np.uint64]:
    """Digest (uint64) of each row's inputs, shape (rows,)."""
    total = np.zeros(batch.rows, dtype=np.uint64)
    for name in batch.names:
        if name.startswith("inputs."):
            total += row_hashes(batch.arrow(name), name)  # wraps; the name is part of each hash
    return total
