"""Findings of an assertion in one view of the stream.

Findings have subjects, members, evidence and weak labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .batch import Batch

CorrectionKind = Literal["replace", "add", "remove"]
Wrong = Callable[[str, object], ValueError]
CORRECTION_KINDS: tuple[CorrectionKind, ...] = get_args(CorrectionKind)


@dataclass(frozen=True, slots=True)
class WeakLabels:
    """Corrections that assertions propose for a model's answers, as aligned columns.

    Attributes
    ----------
    row
        Row of the corrected record in the view, shape (corrections,).
    finding
        Index of the finding that proposes the correction, shape (corrections,).
    kind
        ``replace`` the value of ``field``; ``add`` an element to the list ``field``; ``remove`` its element.
    field
        Full column name, such as ``outputs.label`` or ``outputs.boxes``.
    element
        Position in the list of ``field``; -1 for the record itself and for ``add``.
    value
        Corrected value, as JSON can carry it; None for ``remove``.
    confidence
        Share of the evidence in favour of the correction, in (0, 1].

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
        """Empty weak labels."""
        return _NONE


_WHOLE, _REAL = np.zeros(0, dtype=np.int64), np.zeros(0)
_NONE = WeakLabels(_WHOLE, _WHOLE, (), (), _WHOLE, (), _REAL)


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of one assertion in a view.

    An assertion may return findings instead of one value per record.

    Attributes
    ----------
    row
        Row of the view that each finding is about (context rows are allowed), shape (findings,).
    severity
        Finite and > 0, shape (findings,).
    subject
        Key of the event, fixed when it first fires, such as ``camera-3/7/flicker/frame-12``; None: the record
        itself is the subject. Findings with the same subject are one flag.
    members
        Rows of the view that belong to each finding (frames of a gap, records of a group), one array each;
        empty: only ``row``.
    evidence
        Details for reviewers that JSON can carry, one mapping or None per finding; empty: none.
    weak_labels
        Corrections, each with the index of its finding.
    """

    row: NDArray[np.int64]
    severity: NDArray[np.float64]
    subject: Sequence[str | None] = ()
    members: Sequence[NDArray[np.int64]] = ()
    evidence: Sequence[dict[str, Any] | None] = ()
    weak_labels: WeakLabels = field(default_factory=WeakLabels.none)

    def __len__(self) -> int:
        return len(self.row)

    def only(self, findings: Sequence[int]) -> "Findings":
        """Subset of the findings, in the given order, with their corrections."""
        chosen = list(findings)
        if chosen == list(range(len(self))):
            return self
        new = np.full(len(self), -1, dtype=np.int64)
        new[chosen] = np.arange(len(chosen))
        weak = self.weak_labels
        stays = np.flatnonzero(new[weak.finding] >= 0).tolist()
        return Findings(
            self.row[chosen],
            self.severity[chosen],
            subject=[self.subject[index] for index in chosen] if len(self.subject) else (),
            members=[self.members[index] for index in chosen] if len(self.members) else (),
            evidence=[self.evidence[index] for index in chosen] if len(self.evidence) else (),
            weak_labels=WeakLabels(
                weak.row[stays],
                new[weak.finding[stays]],
                [weak.kind[index] for index in stays],
                [weak.field[index] for index in stays],
                weak.element[stays],
                [weak.value[index] for index in stays],
                weak.confidence[stays],
            ),
        )

    @classmethod
    def of(cls, severity: NDArray[np.float64]) -> "Findings":
        """Findings of all rows with severity > 0. Each record is its own subject."""
        row = np.flatnonzero(severity).astype(np.int64)
        return cls(row, severity[row])


def checked(found: Findings, view: Batch, name: str) -> Findings:
    """Check findings against ``view`` and convert their arrays.

    Raises
    ------
    ValueError
        If findings do not fit the view; the message names assertion ``name`` and the fault.
    """

    def wrong(expected: str, got: object) -> ValueError:
        return ValueError(f"assertion {name!r} must return findings {expected}, got {got}")

    row, count = _rows(found.row, view.rows, "row", wrong), len(found.row)
    severity = np.asarray(found.severity, dtype=np.float64)
    if severity.shape != (count,):
        raise wrong(f"with one severity each, shape ({count},)", f"shape {severity.shape}")
    bad = ~(np.isfinite(severity) & (severity > 0))
    if bad.any():
        raise wrong("with finite severities > 0", severity[bad][0])
    for column in ("subject", "members", "evidence"):
        given = len(getattr(found, column))
        if given not in (0, count):
            raise wrong(f"with no {column} or {count}, one each", given)
    subjects = [subject for subject in found.subject if subject is not None]
    if not all(isinstance(subject, str) and subject for subject in subjects):
        raise wrong("whose subjects are texts or None", repr(subjects))
    if not all(note is None or isinstance(note, dict) for note in found.evidence):
        raise wrong("whose evidence is a dictionary or None each", repr(found.evidence)[:200])
    members = [_rows(rows, view.rows, "members", wrong) for rows in found.members]
    weak = _weak_labels(found.weak_labels, view.rows, count, wrong)
    return changed(found, row=row, severity=severity, members=members, weak_labels=weak)


def _weak_labels(weak: WeakLabels, rows: int, findings: int, wrong: Wrong) -> WeakLabels:
    size = len(weak.row)
    for column in ("finding", "kind", "field", "element", "value", "confidence"):
        if len(getattr(weak, column)) != size:
            raise wrong(f"whose weak labels have {size} of each column", f"{column} of another length")
    if not size:
        return weak
    unknown = sorted({kind for kind in weak.kind if kind not in CORRECTION_KINDS})
    if unknown:
        raise wrong(f"whose weak labels are of a kind in {', '.join(CORRECTION_KINDS)}", repr(unknown[0]))
    confidence = np.asarray(weak.confidence, dtype=np.float64)
    if not ((confidence > 0) & (confidence <= 1)).all():
        raise wrong("whose weak labels have a confidence in (0, 1]", confidence.tolist())
    return changed(
        weak,
        row=_rows(weak.row, rows, "weak_labels.row", wrong),
        finding=_rows(weak.finding, findings, "weak_labels.finding", wrong),
        element=np.asarray(weak.element, dtype=np.int64),
        confidence=confidence,
    )


def _rows(values: Any, count: int, what: str, wrong: Wrong) -> NDArray[np.int64]:
    rows = np.asarray(values)
    if rows.size == 0:
        return np.zeros(0, dtype=np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise wrong(f"whose {what} is a list of row numbers", f"{rows.dtype} of shape {rows.shape}")
    if rows.min() < 0 or rows.max() >= count:
        raise wrong(f"whose {what} lies in [0, {count})", rows.tolist()[:10])
    return rows.astype(np.int64)
