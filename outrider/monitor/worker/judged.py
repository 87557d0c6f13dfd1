"""Judged answer of each record: production's, else the replica's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings, WeakLabels
from outrider.assertions.batch.columns import as_type, is_tensor, null_column, wider_type
from outrider.assertions.comparison.typed_text import typed_texts
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.redaction.columns import redacted_rows, without_answers
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.host.findings_frame import joined


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """Records that one side answered, with its answer columns; ``rows`` None are all of a unit."""

    rows: NDArray[np.intp] | None
    batch: Batch


@dataclass(frozen=True, slots=True)
class JudgedRecords:
    """Records with the answers under judgement in ``outputs.*``.

    Assertions of single records see the parts, so verdicts do not depend on how the stream is cut;
    windows need one schema and see all.
    """

    batch: Batch
    parts: tuple[JudgedPart, ...]
    left_out: int = 0
    """Redacted records, whose replica answers are not compared with production's."""

    @classmethod
    def alone(cls, batch: Batch) -> "JudgedRecords":
        return cls(batch, (JudgedPart(None, batch),))

    @classmethod
    def of(cls, batch: Batch, outputs: Outputs | None) -> "JudgedRecords":
        """Records as received, with the replica's answers to all.

        Records that production answered are judged by production's columns, with replica-only columns
        null; the others by the replica's, marked ``by_replica``. ``answers("champion")`` are the
        replica's, except for redacted records that production answered.
        """
        if outputs is None:
            return cls.alone(batch)
        replica = batch.with_outputs(outputs)
        names = _outputs(batch)
        if not names:
            return cls.alone(replica.as_replica())
        answered = _answered(batch, names)
        left_out = answered & redacted_rows(batch)
        replica = without_answers(replica, left_out)
        if answered.all():
            parts = [JudgedPart(None, _production(batch, replica))]
        elif not answered.any():
            parts = [JudgedPart(None, replica.as_replica())]
        else:
            rows, others = np.flatnonzero(answered), np.flatnonzero(~answered)
            own = _production(batch.take(rows), replica.take(rows))
            parts = [JudgedPart(rows, own), JudgedPart(others, replica.take(others).as_replica())]
        if len(parts) == 1 and all(not replica.has(n) or _type(batch, n) == _type(replica, n) for n in names):
            return cls(parts[0].batch, tuple(parts), int(left_out.sum()))
        return cls(_together(batch, replica, answered, parts), tuple(parts), int(left_out.sum()))

    @property
    def rows(self) -> int:
        return self.batch.rows

    @property
    def answered(self) -> NDArray[np.bool_]:
        return _answered(self.batch, _outputs(self.batch))

    @property
    def is_whole(self) -> bool:
        return self.parts[0].batch is self.batch

    def with_answers(self, answers: Mapping[str, Batch]) -> "JudgedRecords":
        batch = self.batch.with_answers(answers)
        if self.is_whole:
            return JudgedRecords(batch, (JudgedPart(None, batch),), self.left_out)
        parts = [
            JudgedPart(
                part.rows,
                part.batch.with_answers(
                    {s: one if part.rows is None else one.take(part.rows) for s, one in answers.items()}
                ),
            )
            for part in self.parts
        ]
        return JudgedRecords(batch, tuple(parts), self.left_out)

    def texts(self, name: str) -> list[str | None]:
        if len(self.parts) == 1:
            return _typed(self.parts[0].batch, name)
        found = np.empty(self.rows, dtype=object)
        for part in self.parts:
            found[part.rows] = _typed(part.batch, name)
        return list(found)

    def found(self, of_parts: Sequence[tuple[JudgedPart, Findings]]) -> Findings:
        whole = joined([found for _, found in of_parts], [part.batch.rows for part, _ in of_parts])
        if of_parts[0][0].rows is None:
            return whole
        at = np.concatenate([part.rows for part, _ in of_parts if part.rows is not None])
        weak = whole.weak_labels
        return Findings(
            at[whole.row],
            whole.severity,
            whole.subject,
            [at[np.asarray(rows, dtype=np.intp)] for rows in whole.members],
            whole.evidence,
            WeakLabels(
                at[weak.row], weak.finding, weak.kind, weak.field, weak.element, weak.value, weak.confidence
            ),
        )


def is_answered(batch: Batch) -> bool:
    names = _outputs(batch)
    return bool(names) and bool(_answered(batch, names).all())


def _outputs(batch: Batch) -> list[str]:
    return [name for name in batch.names if name.startswith("outputs.")]


def _typed(batch: Batch, name: str) -> list[str | None]:
    return typed_texts(batch.arrow(name)) if batch.has(name) else [None] * batch.rows


def _type(batch: Batch, name: str) -> pa.DataType:
    return batch.arrow(name).type


def _answered(batch: Batch, names: Sequence[str]) -> NDArray[np.bool_]:
    columns = [batch.arrow(name) for name in names]
    if any(column.null_count == 0 for column in columns):
        return np.ones(batch.rows, dtype=np.bool_)
    answered = np.zeros(batch.rows, dtype=np.bool_)
    for column in columns:
        if column.null_count < len(column):
            answered |= column.is_valid().to_numpy(zero_copy_only=False)
    return answered


def _production(batch: Batch, replica: Batch) -> Batch:
    """Records as production answered them, with replica-only columns null."""
    known = set(batch.names)
    missing = {
        name: null_column(batch.rows, replica.arrow(name).type)
        for name in _outputs(replica)
        if name not in known
    }
    return (batch.with_columns(missing) if missing else batch).with_answers({CHAMPION: replica})


def _together(
    batch: Batch, replica: Batch, answered: NDArray[np.bool_], parts: Sequence[JudgedPart]
) -> Batch:
    """All records in one schema, which depends on both sides' types, not on who answered."""
    first = parts[0].batch
    changed: dict[str, pa.Array] = {}
    rows = np.arange(batch.rows)
    picked = pa.array(np.where(answered, rows, batch.rows + rows))
    for name in dict.fromkeys([*_outputs(batch), *_outputs(replica)]):
        own, other = (side.arrow(name) if side.has(name) else None for side in (batch, replica))
        if len(parts) == 1 and (own is None or other is None or own.type.equals(other.type)):
            continue  # as it stands in the one part
        sides = _of_one_type(own, other, batch.rows)
        if len(parts) == 1:
            column = sides[0] if answered.all() else sides[1]
            if not (first.has(name) and column.type.equals(first.arrow(name).type)):
                changed[name] = column
        else:
            changed[name] = pa.concat_arrays(sides).take(picked)
    if len(parts) == 1:
        return first.with_columns(changed) if changed else first
    whole = batch.with_columns({**changed, "by_replica": pa.array(~answered)})
    return whole.with_answers({CHAMPION: replica})


def _of_one_type(own: pa.Array | None, other: pa.Array | None, rows: int) -> list[pa.Array]:
    """Production's column and the replica's in a type that holds both: the wider number, or text.

    Without such a type (tensors of other shapes) the replica's is null.
    """
    if own is None or other is None:
        given = own if other is None else other
        assert given is not None
        nothing = null_column(rows, given.type)
        return [nothing if own is None else own, nothing if other is None else other]
    kind = wider_type(own.type, other.type)
    if kind is None and _is_plain(own.type) and _is_plain(other.type):
        return [_as_texts(column) for column in (own, other)]
    if kind is None:
        return [own, null_column(rows, own.type)]
    return [as_type(own, kind), as_type(other, kind)]


def _as_texts(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column
    return pa.array(typed_texts(column), pa.string())


def _is_plain(kind: pa.DataType) -> bool:
    return not (is_tensor(kind) or pa.types.is_nested(kind))
