"""Findings in host frames: raw rows and severities, JSON rest."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Findings, WeakLabels


class Corrections(msgspec.Struct):
    row: list[int]
    finding: list[int]
    kind: list[str]
    field: list[str]
    element: list[int]
    value: list[Any]
    confidence: list[float]


class Extras(msgspec.Struct, omit_defaults=True):
    subject: list[str | None] = []
    members: list[list[int]] = []
    evidence: list[dict[str, Any] | None] = []
    corrections: Corrections | None = None
    reads: list[str] = []


def pack(
    found: Findings | tuple[NDArray[np.int64], NDArray[np.float64]], reads: Sequence[str] = ()
) -> list[bytes]:
    """Buffer of rows and severities, and any of extras; ``reads`` are newly read columns."""
    row, severity = found if isinstance(found, tuple) else (found.row, found.severity)
    parts = [row.astype(np.int64, copy=False).tobytes() + severity.astype(np.float64, copy=False).tobytes()]
    if isinstance(found, tuple):
        if not reads:
            return parts
        found = Findings(row, severity)
    weak = found.weak_labels
    if not (found.subject or found.members or found.evidence or len(weak) or reads):
        return parts
    extras = Extras(
        subject=list(found.subject),
        members=[np.asarray(rows).tolist() for rows in found.members],
        evidence=list(found.evidence),
        corrections=Corrections(
            np.asarray(weak.row).tolist(),
            np.asarray(weak.finding).tolist(),
            list(weak.kind),
            list(weak.field),
            np.asarray(weak.element).tolist(),
            list(weak.value),
            np.asarray(weak.confidence).tolist(),
        )
        if len(weak)
        else None,
        reads=list(reads),
    )
    return [*parts, msgspec.json.encode(extras, enc_hook=_plain)]


def unpack(parts: Sequence[memoryview | bytes]) -> tuple[Findings, Sequence[str]]:
    count = len(parts[0]) // 16
    row = np.frombuffer(parts[0], dtype=np.int64, count=count)
    severity = np.frombuffer(parts[0], dtype=np.float64, offset=8 * count)
    if len(parts) == 1:
        return Findings(row, severity), ()
    extras = msgspec.json.decode(parts[1], type=Extras)
    told = extras.corrections
    weak = WeakLabels.none()
    if told is not None:
        weak = WeakLabels(
            np.array(told.row, dtype=np.int64),
            np.array(told.finding, dtype=np.int64),
            told.kind,  # type: ignore[arg-type]  # validated where the findings were made
            told.field,
            np.array(told.element, dtype=np.int64),
            told.value,
            np.array(told.confidence, dtype=np.float64),
        )
    members = [np.array(rows, dtype=np.int64) for rows in extras.members]
    return Findings(row, severity, extras.subject, members, extras.evidence, weak), extras.reads


def joined(found: Sequence[Findings], rows: Sequence[int]) -> Findings:
    """Findings of several views as of one joint view; ``rows`` are the views' lengths."""
    if len(found) == 1:
        return found[0]
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    before = np.concatenate([[0], np.cumsum([len(one) for one in found])]).astype(np.int64)
    return Findings(
        _shifted([one.row for one in found], starts),
        np.concatenate([one.severity for one in found]),
        _each(found, "subject"),
        _members(found, starts) if any(one.members for one in found) else [],
        _each(found, "evidence"),
        _corrections([one.weak_labels for one in found], starts, before),
    )


def _shifted(numbers: Sequence[NDArray[np.int64]], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([each + start for each, start in zip(numbers, starts, strict=False)]).astype(
        np.int64
    )


def _members(found: Sequence[Findings], starts: NDArray[np.int64]) -> list[Any]:
    return [
        np.asarray(member) + start
        for one, start in zip(found, starts.tolist(), strict=False)
        for member in (one.members or [one.row[i : i + 1] for i in range(len(one))])
    ]


def _corrections(
    weak: Sequence[WeakLabels], starts: NDArray[np.int64], before: NDArray[np.int64]
) -> WeakLabels:
    return WeakLabels(
        _shifted([each.row for each in weak], starts),
        _shifted([each.finding for each in weak], before),
        [kind for each in weak for kind in each.kind],
        [name for each in weak for name in each.field],
        np.concatenate([each.element for each in weak]).astype(np.int64),
        [value for each in weak for value in each.value],
        np.concatenate([each.confidence for each in weak]),
    )


def _each(found: Sequence[Findings], name: str) -> list[Any]:
    """Subjects or evidence of all, None where there is none; empty when none has any."""
    if not any(getattr(one, name) for one in found):
        return []
    return [value for one in found for value in (getattr(one, name) or [None] * len(one))]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)
