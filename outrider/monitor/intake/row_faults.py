"""Rows that do not fit, with reasons that are worked out when they are asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from .rejections import Reason, Rows

NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Misfits:
    """Values of one column that do not fit.

    Parameters
    ----------
    rows
        In ascending order.
    """

    rows: Rows = field(default_factory=lambda: NO_ROWS)
    reason: Reason = ""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Iterable[int], reason: Reason) -> "Misfits":
        """Misfits of any numbers of rows."""
        return cls(np.fromiter(rows, np.int64), reason)


@dataclass(frozen=True, slots=True)
class FaultyRows:
    """Rows with one kind of fault.

    Parameters
    ----------
    rows
        In ascending order.
    field
        Full column name.
    below
        Place within the field, such as ``[3].left``.
    said_of
        The rows as ``reason`` and ``below`` count them.
    """

    rows: Rows
    field: str
    reason: Reason
    below: Reason
    said_of: Rows


class RowFaults:
    """Faulty rows of a block; the first fault of a row counts.

    Parameters
    ----------
    rows
        Length of the block.

    Examples
    --------
    >>> faults = RowFaults(3)
    >>> faults.add([2], "id", "too long"); faults.add([1, 2], "ts", "too late")
    >>> [(each.rows.tolist(), each.field) for each in faults.groups]
    [([2], 'id'), ([1], 'ts')]
    """

    def __init__(self, rows: int) -> None:
        self.is_bad = np.zeros(rows, np.bool_)
        self.groups: list[FaultyRows] = []

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def rows(self) -> Rows:
        """All faulty rows."""
        return np.flatnonzero(self.is_bad)

    def add(
        self,
        rows: Rows | list[int],
        field: str,
        reason: Reason,
        *,
        below: Reason = "",
        said_of: Rows | None = None,
    ) -> None:
        """Note rows in ascending order; ``said_of`` numbers them for the reason."""
        found = np.asarray(rows, np.int64)
        is_news = ~self.is_bad[found]
        if not is_news.any():
            return
        fresh = found[is_news]
        self.is_bad[fresh] = True
        self.groups.append(
            FaultyRows(fresh, field, reason, below, fresh if said_of is None else said_of[is_news])
        )

    def add_misfits(self, field: str, misfits: Misfits) -> None:
        """Note misfits of a column."""
        self.add(misfits.rows, field, misfits.reason)

    def add_all(self, other: "RowFaults", *, field: str | None = None) -> None:
        """Note faults of the same block; ``field`` names the column that they are in."""
        for each in other.groups:
            name = each.field if field is None else field
            self.add(each.rows, name, each.reason, below=each.below, said_of=each.said_of)

    def renumbered(self, rows: Rows) -> list[FaultyRows]:
        """The faults with row ``n`` called ``rows[n]``."""
        return [replace(each, rows=rows[each.rows]) for each in self.groups]
