"""Counts of a version's rows by origin, kept in its manifest."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from typing_extensions import TypedDict


class RowCounts(TypedDict):
    """Rows of a version by part, source of the label and assertion."""

    parts: dict[str, int]
    label_sources: dict[str, int]
    """Under ``""`` the rows that name none."""
    assertions: dict[str, int]
    """A row that several flagged counts for each."""


class Origin(Protocol):
    """Origin of a row, such as `outrider.dataops.datasets.versions.Provenance`."""

    @property
    def part(self) -> str:
        """Part of the row."""

    @property
    def label_source(self) -> str | None:
        """Source of the label."""

    @property
    def assertion(self) -> str | None:
        """Names of assertions, comma-separated."""


def row_counts(
    rows: Iterable[Origin], before: RowCounts | None = None, *, gone: Iterable[Origin] = ()
) -> RowCounts:
    """Counts of rows, added to other counts; ``gone`` rows are taken off.

    Examples
    --------
    >>> from outrider.dataops.datasets.versions import Provenance
    >>> blurry = Provenance("a", "blurry,flicker", "human", "held_out")
    >>> first = row_counts([blurry])
    >>> row_counts([Provenance("b", "blurry")], first)["assertions"]
    {'blurry': 2, 'flicker': 1}
    >>> row_counts([], first, gone=[blurry])["assertions"]
    {}
    """
    parts, sources, assertions = (
        Counter({} if before is None else before[name]) for name in ("parts", "label_sources", "assertions")
    )
    for origins, sign in ((rows, 1), (gone, -1)):
        alike = Counter((origin.part, origin.label_source, origin.assertion) for origin in origins)
        for (part, source, names), count in alike.items():
            parts[part] += sign * count
            sources[source or ""] += sign * count
            for name in filter(None, (names or "").split(",")):
                assertions[name] += sign * count
    return {
        "parts": dict(sorted((+parts).items())),
        "label_sources": dict(sorted((+sources).items())),
        "assertions": dict(sorted((+assertions).items())),
    }
