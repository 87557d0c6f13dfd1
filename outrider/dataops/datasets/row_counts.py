"""Counts of a version's rows by origin, kept in its manifest."""

from collections import Counter
from collections.abc import Iterable, Mapping
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


def row_counts(rows: Iterable[Origin], before: RowCounts | None = None) -> RowCounts:
    """Counts of rows, added to other counts.

    Examples
    --------
    >>> from outrider.dataops.datasets.versions import Provenance
    >>> first = row_counts([Provenance("a", "blurry,flicker", "human", "held_out")])
    >>> row_counts([Provenance("b", "blurry")], first)["assertions"]
    {'blurry': 2, 'flicker': 1}
    """
    known: Mapping[str, Mapping[str, int]] = {} if before is None else {**before}  # type: ignore[dict-item]
    parts, sources, assertions = (
        Counter(known.get(name, {})) for name in ("parts", "label_sources", "assertions")
    )
    for (part, source, names), count in Counter(
        (row.part, row.label_source, row.assertion) for row in rows
    ).items():
        parts[part] += count
        sources[source or ""] += count
        assertions.update({name: count for name in (names or "").split(",") if name})
    return {
        "parts": dict(sorted(parts.items())),
        "label_sources": dict(sorted(sources.items())),
        "assertions": dict(sorted(assertions.items())),
    }
