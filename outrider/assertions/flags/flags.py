"""Flags: findings of assertions, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import LEVELS, Assertion, Level
from outrider.assertions.batch import Batch
from outrider.assertions.findings import Findings, WeakLabels
from outrider.errors import OutriderError

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
_SHOWN = 3  # records in a message
Seen: TypeAlias = dict[str | int, None]


class AssertionsFired(OutriderError):  # noqa: N818 - reads as the event it is
    """Raised if assertions of the requested level fired; carries the ``flags``."""

    def __init__(self, message: str, flags: "Flags") -> None:
        super().__init__(message)
        self.flags = flags


@dataclass(frozen=True, slots=True)
class Details:
    """Details of the flags that come from :class:`Findings`.

    Attributes
    ----------
    flag
        Index of each finding's flag, ascending, shape (findings,).
    subject, members, evidence
        One entry per finding; members are rows of ``Flags.batch``.
    weak_labels
        Corrections; ``row`` refers to ``Flags.batch``, ``finding`` to the index of the flag.
    """

    flag: Ints
    subject: Sequence[str | None]
    members: Sequence[Ints]
    evidence: Sequence[dict[str, Any] | None]
    weak_labels: WeakLabels


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags as aligned columns, sorted by assertion, then record.

    Attributes
    ----------
    batch
        The judged records; for a stream only those with flags, with system columns only.
    row
        Row number in ``batch``, shape (flags,).
    code
        Index into ``assertions``, shape (flags,).
    severity
        Severity of each flag, > 0, shape (flags,).
    details
        Further content of :class:`Findings`; None if every assertion returned one value per record.
    numbers
        For a stream: number of each row of ``batch`` in the stream, from 0; else None.
    """

    batch: Batch
    assertions: tuple[Assertion, ...]
    row: Ints
    code: Ints
    severity: NDArray[np.float64]
    details: Details | None = None
    numbers: Ints | None = None

    def __len__(self) -> int:
        return len(self.row)

    @property
    def counts(self) -> dict[str, int]:
        """Number of flags per assertion, zeros included."""
        counted = np.bincount(self.code, minlength=len(self.assertions))
        return {judge.name: int(count) for judge, count in zip(self.assertions, counted, strict=True)}

    @property
    def subject(self) -> NDArray[np.object_]:
        """Subject of each flag: event key, else record id, shape (flags,)."""
        subjects: NDArray[np.object_] = self.batch.keys[self.row].astype(object)
        for flag, subject in zip(*self._detail_by_flag("subject"), strict=True):
            if subject is not None:
                subjects[flag] = subject
        return subjects

    @property
    def evidence(self) -> NDArray[np.object_]:
        """Evidence of each flag, None without any, shape (flags,)."""
        notes = np.full(len(self), None, dtype=object)
        for flag, note in zip(*self._detail_by_flag("evidence"), strict=True):
            notes[flag] = note
        return notes

    @property
    def members(self) -> list[Ints]:
        """Rows of ``batch`` of each flag's members. Flags without members have their own record."""
        rows = [self.row[flag : flag + 1] for flag in range(len(self))]
        for flag, members in zip(*self._detail_by_flag("members"), strict=True):
            if len(members):
                rows[flag] = members
        return rows

    @property
    def weak_labels(self) -> WeakLabels:
        """Corrections that the flags propose.

        ``row`` refers to ``batch``, ``finding`` is the index of the flag.
        """
        return WeakLabels.none() if self.details is None else self.details.weak_labels

    def to_pandas(self) -> "pd.DataFrame":
        """Flags as a frame, one row each.

        Columns ``id assertion level severity`` and ``row``; with findings also ``subject``.
        """
        import pandas as pd

        names = np.array([judge.name for judge in self.assertions], dtype=object)
        levels = np.array([judge.level for judge in self.assertions], dtype=object)
        columns: dict[str, Any] = {
            "id": self.batch.keys[self.row],
            "assertion": names[self.code],
            "level": levels[self.code],
            "severity": self.severity,
            "row": self.row,
        }
        if self.details is not None:
            columns["subject"] = self.subject
        return pd.DataFrame(columns)

    def raise_for(self, level: Level = "critical") -> "Flags":
        """Raise if an assertion of at least ``level`` fired.

        Otherwise return the flags.

        Raises
        ------
        AssertionsFired
            With the count per assertion and the records of the highest severity.
        """
        ranks = np.array([_rank(judge.level) for judge in self.assertions], dtype=np.intp)
        fired = ranks[self.code] >= _rank(level)
        if fired.any():
            lines = [self._worst(code) for code in np.unique(self.code[fired]).tolist()]
            raise AssertionsFired("; ".join(lines), self)
        return self

    def _worst(self, code: int) -> str:
        judge = self.assertions[code]
        rows = np.flatnonzero(self.code == code)
        worst = rows[np.argsort(-self.severity[rows], kind="stable")][:_SHOWN]
        keys = self.batch.keys[self.row[worst]].tolist()
        shown = [
            f"{key!r} ({severity:.3g})"
            for key, severity in zip(keys, self.severity[worst].tolist(), strict=True)
        ]
        left = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        return f"{judge.name} ({judge.level}): {len(rows)} records, worst {', '.join(shown)}{left}"

    def _detail_by_flag(self, column: str) -> tuple[list[int], Sequence[Any]]:
        if self.details is None:
            return [], ()
        return self.details.flag.tolist(), getattr(self.details, column)


class FiredRows(NamedTuple):
    """Findings of one assertion, in rows of the flags' batch.

    Attributes
    ----------
    rows, severity
        Record number and severity of each finding.
    findings
        :class:`Findings` that the function returned, None if it returned one value per record.
    place
        Record number of each row of the view; None: row i is record i.
    """

    code: int
    rows: Ints
    severity: NDArray[np.float64]
    findings: Findings | None = None
    place: Ints | None = None


def found_in(judge: Assertion, code: int, view: Batch, place: Ints | None, seen: Seen) -> FiredRows:
    """Findings of one assertion in a batch or view.

    Parameters
    ----------
    place
        Record number of each row of the view; None: row i is record i.
    seen
        Subjects already found (record numbers if the record is the subject); new ones are added in place.
    """
    judged = judge.judged(view)
    if type(judged) is tuple:
        return FiredRows(code, judged[0] if place is None else place[judged[0]], judged[1])
    assert isinstance(judged, Findings)
    kept = []
    for index in np.argsort(judged.row, kind="stable").tolist():
        row = int(judged.row[index])
        subject = judged.subject[index] if len(judged.subject) else None
        key = subject if subject is not None else row if place is None else int(place[row])
        if key not in seen:
            kept.append(index)
            seen[key] = None
    findings = judged.only(kept)
    return FiredRows(code, _placed(findings.row, place), findings.severity, findings, place)


def flags_of(
    batch: Batch, assertions: tuple[Assertion, ...], found: Sequence[FiredRows], *, in_order: bool = False
) -> Flags:
    """Flags from findings, sorted by assertion and record.

    With ``in_order`` the findings are already sorted.
    """
    if not found:
        none = np.zeros(0, dtype=np.int64)
        return Flags(batch, assertions, none, none, np.zeros(0))
    rows = np.concatenate([part.rows for part in found])
    severity = np.concatenate([part.severity for part in found])
    code = np.repeat([part.code for part in found], [part.rows.size for part in found])
    if in_order and not any(part.findings for part in found):
        return Flags(batch, assertions, rows, code, severity)
    order = np.lexsort((rows, code))
    details = _details(found, order) if any(part.findings is not None for part in found) else None
    return Flags(batch, assertions, rows[order], code[order], severity[order], details)


def _details(found: Sequence[FiredRows], order: Ints) -> Details:
    """Details of findings, reordered by ``order``."""
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    flag: list[int] = []
    subject: list[str | None] = []
    members: list[Ints] = []
    evidence: list[dict[str, Any] | None] = []
    weak: list[WeakLabels] = []
    base = 0
    for part in found:
        count, of_part = len(part.rows), part.findings
        if of_part is not None and count:
            place = part.place
            flag += at[base : base + count].tolist()
            subject += list(of_part.subject) or [None] * count
            evidence += list(of_part.evidence) or [None] * count
            members += [_placed(m, place) for m in of_part.members] or [np.zeros(0, dtype=np.int64)] * count
            if len(of_part.weak_labels):
                labels = of_part.weak_labels
                weak.append(_moved(labels, _placed(labels.row, place), at[base + labels.finding]))
        base += count
    ordered = np.argsort(np.array(flag, dtype=np.int64), kind="stable").tolist()
    return Details(
        np.array(flag, dtype=np.int64)[ordered],
        [subject[index] for index in ordered],
        [members[index] for index in ordered],
        [evidence[index] for index in ordered],
        _joined(weak),
    )


def _placed(rows: Ints, place: Ints | None) -> Ints:
    return rows if place is None else place[rows]


def _moved(labels: WeakLabels, row: Ints, finding: Ints) -> WeakLabels:
    return WeakLabels(
        row, finding, labels.kind, labels.field, labels.element, labels.value, labels.confidence
    )


def _joined(parts: Sequence[WeakLabels]) -> WeakLabels:
    """Corrections of all parts, sorted by finding."""
    if not parts:
        return WeakLabels.none()
    finding = np.concatenate([part.finding for part in parts])
    order = np.argsort(finding, kind="stable")
    lists: Mapping[str, list[Any]] = {
        name: [value for part in parts for value in getattr(part, name)]
        for name in ("kind", "field", "value")
    }
    return WeakLabels(
        np.concatenate([part.row for part in parts])[order],
        finding[order],
        [lists["kind"][index] for index in order],
        [lists["field"][index] for index in order],
        np.concatenate([part.element for part in parts])[order],
        [lists["value"][index] for index in order],
        np.concatenate([part.confidence for part in parts])[order],
    )


def _rank(level: Level) -> int:
    return LEVELS.index(level)
