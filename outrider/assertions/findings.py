"""What an assertion found in one view of the stream: subjects, members, evidence and weak labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

CorrectionKind = Literal["replace", "add", "remove"]


@dataclass(frozen=True, slots=True)
class WeakLabels:
    """Corrections that assertions propose for what the model said, as aligned columns.

    Attributes
    ----------
    row
        Row of the corrected record in the view, shape (corrections,).
    finding
        Index of the finding that proposes it, shape (corrections,).
    kind
        ``replace`` the value of ``field``; ``add`` an element to the list ``field``; ``remove`` its element.
    field
        Full column name, such as ``outputs.label`` or ``outputs.boxes``.
    element
        Position in the list of ``field``; -1 for the record itself and for ``add``.
    value
        What should stand there, as JSON can carry it; None for ``remove``.
    confidence
        In (0, 1]: share of the evidence that speaks for the correction.

    References
    ----------
    Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, §4.2.
    """

    row: NDArray[np.int64]
    finding: NDArray[np.int64]
    kind: Sequence[CorrectionKind]
    field: Sequence[str]
    element: NDArray[np.int64]
    value: Sequence[Any]
    confidence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> "WeakLabels":
        """No correction."""
        whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(whole, whole, (), (), whole, (), real)


@dataclass(frozen=True, slots=True)
class Findings:
    """What one assertion found in a view; an assertion may return it instead of one value per record.

    Attributes
    ----------
    row
        Row of the view that the finding points at, a context row too, shape (findings,).
    severity
        Finite and > 0, shape (findings,).
    subject
        Key of the event that was found, fixed at its first firing, such as ``camera-3/7/flicker/frame-12``;
        None: the record itself is the subject. The same subject is one flag, however often it is found.
    members
        Rows of the view that belong to the finding (frames of a gap, records of a group), one array each;
        empty: the pointed-at row alone.
    evidence
        What a person needs to see, as JSON can carry it, one mapping or None each; empty: none.
    weak_labels
        Corrections, each of one finding.
    """

    row: NDArray[np.int64]
    severity: NDArray[np.float64]
    subject: Sequence[str | None] = ()
    members: Sequence[NDArray[np.int64]] = ()
    evidence: Sequence[dict[str, Any] | None] = ()
    weak_labels: WeakLabels = field(default_factory=WeakLabels.none)

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, severity: NDArray[np.float64]) -> "Findings":
        """Every row whose severity is > 0, itself the subject."""
        row = np.flatnonzero(severity).astype(np.int64)
        return cls(row, severity[row])
