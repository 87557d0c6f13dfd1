"""Verdict on each column, and on the report as a whole."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .classifier import DomainClassifier
from .counting import ColumnCounts
from .direction import listed
from .evidence import Change, ChangeEvidence
from .pictures import Picture, picture_of

if TYPE_CHECKING:
    import pandas as pd

Role: TypeAlias = Literal["input", "output", "label", "attribute"]
Status: TypeAlias = Literal["drift", "undecided", "no drift shown"]


@dataclass(frozen=True, slots=True)
class ColumnDrift:
    """Verdict on one column.

    Attributes
    ----------
    status
        ``drift`` if a change is proven and large enough, ``undecided`` for bad input and few records.
    words
        Direction and size of the drifting changes, else of the largest change.
    problems
        Messages with the window, the expected and the found input; none of them is drift.
    evidence
        Evidence on shape, missing and unseen values, with p-values before Holm's correction.
    adjusted
        Holm-adjusted p-values, in the same order.
    drifting
        Changes that are proven and large enough.
    statistics
        Distances by name.
    variation
        Dispersion of the reference's blocks; 1 for independent records.
    smallest_found
        Distance of the shape that would be detected with about 80 % power; ``nan`` if undecided.
    """

    column: str
    role: Role
    kind: str
    status: Status
    words: str
    problems: tuple[str, ...] = ()
    evidence: tuple[ChangeEvidence, ...] = ()
    adjusted: tuple[float, ...] = ()
    drifting: tuple[Change, ...] = ()
    statistics: Mapping[str, float] = field(default_factory=dict)
    variation: float = float("nan")
    smallest_found: float = float("nan")
    counts: ColumnCounts | None = field(default=None, repr=False)

    @property
    def distance(self) -> float:
        """Distance of the shape, in [0, 1]; 0.0 if there is none."""
        return next((each.distance for each in self.evidence if each.change == "shape"), 0.0)

    def picture(self) -> Picture | None:
        """Distributions of both windows for a chart; None if undecided."""
        return None if self.counts is None else picture_of(self.counts)

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry; values that are not finite are None."""
        picture = self.picture()
        return {
            "column": self.column,
            "role": self.role,
            "kind": self.kind,
            "status": self.status,
            "words": self.words,
            "problems": list(self.problems),
            "changes": [
                {
                    "change": each.change,
                    "drifts": each.change in self.drifting,
                    "distance": _plain(each.distance),
                    "floor": _plain(each.floor),
                    "p_value": _plain(each.chance),
                    "adjusted_p_value": _plain(chance),
                    "reference": _plain(each.before),
                    "current": _plain(each.after),
                }
                for each, chance in zip(self.evidence, self.adjusted, strict=True)
            ],
            "statistics": {name: _plain(value) for name, value in self.statistics.items()},
            "dispersion": _plain(self.variation),
            "smallest_found": _plain(self.smallest_found),
            "distribution": None if picture is None else picture.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Verdicts on all columns, worst first.

    Attributes
    ----------
    columns
        Drifting columns first, then undecided ones, then the others, by distance.
    problems
        Messages about the windows as a whole.
    ignored
        Columns of kinds without a distance, each with its kind.
    alpha
        Probability of any false alarm in the whole report.
    matched
        Times of the reference that were compared (``the same hours of 7 days``); empty for all.
    together
        Classification of records by all columns together; None if not requested.
    is_apart
        True if that classification is proven and large enough.
    """

    columns: tuple[ColumnDrift, ...]
    problems: tuple[str, ...]
    ignored: Mapping[str, str]
    reference_rows: int
    current_rows: int
    reference_effective: float
    current_effective: float
    alpha: float
    least: float
    least_share: float
    matched: str = ""
    together: DomainClassifier | None = None
    is_apart: bool = False

    @property
    def drifting(self) -> tuple[ColumnDrift, ...]:
        """Columns that drift."""
        return tuple(each for each in self.columns if each.status == "drift")

    @property
    def is_drift(self) -> bool:
        """True if a column drifts, or all of them together."""
        return bool(self.drifting) or self.is_apart

    @property
    def is_decided(self) -> bool:
        """True if every column could be decided."""
        return not self.problems and all(each.status != "undecided" for each in self.columns)

    @property
    def sentence(self) -> str:
        """Verdict in one sentence."""
        rows = f"{self.reference_rows:,} reference and {self.current_rows:,} current records"
        rows += f", {self.matched}" if self.matched else ""
        names = [each.column for each in self.drifting]
        decided = sum(each.status != "undecided" for each in self.columns)
        if names:
            return f"{len(names)} of {decided} columns drift ({rows}): {listed(names)}"
        if not decided:
            return f"nothing could be decided ({rows})"
        if self.is_apart:
            return f"no column drifts alone, all together do ({rows}): {self.together_words}"
        return f"no drift shown in {decided} columns ({rows})"

    @property
    def together_words(self) -> str:
        """Result of the domain classifier in one sentence; empty without one."""
        if self.together is None:
            return ""
        found = self.together
        by = f", most by {listed(found.columns)}" if self.is_apart and found.columns else ""
        return (
            f"both windows are told apart with an AUROC of {found.auroc:.3f} "
            f"({found.low:.3f} to {found.high:.3f}){by}"
        )

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {
            "together": None if self.together is None else self.together.to_dict(),
            "together_words": self.together_words,
            "sentence": self.sentence,
            "is_drift": self.is_drift,
            "is_decided": self.is_decided,
            "alpha": self.alpha,
            "least_distance": self.least,
            "least_share": self.least_share,
            "reference": {"records": self.reference_rows, "effective": _plain(self.reference_effective)},
            "current": {"records": self.current_rows, "effective": _plain(self.current_effective)},
            "problems": list(self.problems),
            "ignored": dict(self.ignored),
            "columns": [each.to_dict() for each in self.columns],
        }

    def json(self) -> str:
        """Text of :meth:`to_dict`."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    def to_frame(self) -> "pd.DataFrame":
        """One row per column, worst first."""
        import pandas as pd

        rows = [
            {
                "column": each.column,
                "role": each.role,
                "status": each.status,
                "change": each.words,
                "distance": each.distance,
                "adjusted_p_value": min(each.adjusted, default=float("nan")),
                **each.statistics,
            }
            for each in self.columns
        ]
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        """Table for notebooks."""
        return self.to_frame().to_html()


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
