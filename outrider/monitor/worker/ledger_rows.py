"""Locations of records in the journal, and ledger tuples.

Tuples are made from findings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings, WeakLabels
from outrider.assertions.typed_text import text_of
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.commit import Effects, flag_id, weak_label_id
from outrider.monitor.host.client import Offered
from outrider.monitor.stream.units import Unit

from .slot_state import Views


@dataclass(frozen=True, slots=True)
class RecordLocations:
    """Journal locations of a batch's rows, with ledger tuples.

    From columns.

    Attributes
    ----------
    keys, ts_us
        Id and event time of every record, shape (rows,).
    seq, row
        Journal block and row in it of every record, shape (rows,).
    versions
        Judged model version of every record.
    """

    unit: Unit
    keys: NDArray[np.object_]
    ts_us: NDArray[np.int64]
    seq: NDArray[np.int64]
    row: NDArray[np.int64]
    versions: Sequence[str | None] = ()

    @classmethod
    def of(
        cls, unit: Unit, batch: Batch, kept: NDArray[np.intp], versions: Sequence[str | None] = ()
    ) -> "RecordLocations":
        """Locations of the records of ``batch``: rows ``kept`` of a unit."""
        ts_us = _microseconds(batch.column("ts"))
        return cls(unit, batch.keys, ts_us, unit.seq[kept], unit.row[kept], versions)

    def take(self, rows: NDArray[np.intp]) -> "RecordLocations":
        """Locations of some of the records, in this order."""
        versions = [self.versions[row] for row in rows.tolist()] if self.versions else ()
        return RecordLocations(
            self.unit, self.keys[rows], self.ts_us[rows], self.seq[rows], self.row[rows], versions
        )

    def judged_as(self, versions: Sequence[str | None]) -> "RecordLocations":
        """The same records, judged as answers of these versions."""
        return replace(self, versions=versions)

    @property
    def tags(self) -> NDArray[np.int64]:
        """Block and row, shape (rows, 2)."""
        return np.stack([self.seq, self.row], axis=1)

    def of_views(self, views: Views) -> "RecordLocations":
        """Locations of the rows of views.

        Some came in earlier units.
        """
        batches = [view.batch for view in views]
        tags = np.concatenate([view.tags for view in views])
        versions = [version for batch in batches for version in batch.column("version").tolist()]
        keys = np.concatenate([batch.keys for batch in batches])
        ts_us = np.concatenate([_microseconds(batch.column("ts")) for batch in batches])
        return RecordLocations(self.unit, keys, ts_us, tags[:, 0], tags[:, 1], versions)

    def records(
        self,
        judged: Batch,
        digests: NDArray[np.uint64],
        predicted: Sequence[str | None],
        slice_by: str | None,
    ) -> list[tuple[Any, ...]]:
        """Tuples that register the records.

        Parameters
        ----------
        predicted
            The values under judgement, as text.
        """
        sliced = f"attrs.{slice_by}" if slice_by else ""
        return list(
            zip(
                [self.unit.model] * judged.rows,
                self.keys.tolist(),
                self.seq.tolist(),
                self.row.tolist(),
                self.ts_us.tolist(),
                digests.view(np.int64).tolist(),
                text_of(judged, "version"),
                text_of(judged, "entity"),
                text_of(judged, sliced),
                predicted,
                judged.column("weight").tolist(),
                self._by_replica(judged),
                strict=True,
            )
        )

    @staticmethod
    def _by_replica(judged: Batch) -> list[bool | None]:
        """Mask of the records with the replica's answer; None without any answer."""
        found: list[bool | None] = judged.by_replica.tolist()
        columns = [judged.arrow(name) for name in judged.names if name.startswith("outputs.")]
        if any(column.null_count == 0 for column in columns):
            return found
        answered = np.array(found, dtype=np.bool_)
        for column in columns:
            answered |= column.is_valid().to_numpy(zero_copy_only=False)
        return [value if known else None for value, known in zip(found, answered.tolist(), strict=True)]

    def dead_letter(self, row: int, reason: str, detail: str) -> tuple[Any, ...]:
        """Tuple of one dead letter."""
        at = (int(self.seq[row]), int(self.row[row]))
        return (*at, self.unit.model, self.keys[row], reason, detail, self.unit.received_us)

    def answers(self, version: str, batch: Batch) -> list[tuple[Any, ...]]:
        """Answer tuples: one payload per journal block.

        Its rows in the order of the kept records.
        """
        names = [name for name in batch.names if name.startswith("outputs.")]
        table = batch.to_arrow()
        narrow = Batch.from_columns(
            {name: table.column(name) for name in ["id", *names]}, model=self.unit.model, rows=batch.rows
        )
        blocks, starts = np.unique(self.seq, return_index=True)
        stops = np.append(starts[1:], len(self.seq))
        return [
            (self.unit.model, version, seq, narrow.slice(start, stop - start).to_ipc())
            for seq, start, stop in zip(blocks.tolist(), starts.tolist(), stops.tolist(), strict=True)
        ]

    def note(self, effects: Effects, offered: Offered, found: Findings) -> None:
        """Add the findings of one assertion.

        Flags, their members, weak labels and the count.
        """
        rows = found.row
        located = zip(
            rows.tolist(),
            self.keys[rows].tolist(),
            found.subject or [None] * len(rows),
            found.severity.tolist(),
            self.seq[rows].tolist(),
            self.row[rows].tolist(),
            self.ts_us[rows].tolist(),
            found.evidence or [None] * len(rows),
            strict=True,
        )
        model, slot, versions = self.unit.model, effects.owner, self.versions
        name, revision, level = offered.name, offered.revision, offered.level
        flags = [
            (
                flag_id(model, versions[at], name, revision, key if subject is None else subject, slot=slot),
                model,
                key,
                name,
                revision,
                slot,
                versions[at],
                severity,
                level,
                None if evidence is None else _json(evidence),
                seq,
                row,
                ts_us,
            )
            for at, key, subject, severity, seq, row, ts_us, evidence in located
        ]
        effects.flags += flags
        effects.counts[f"flags:{name}"] += len(flags)
        if slot != CHAMPION:
            effects.earlier_ids |= {
                flag[0]: flag_id(model, flag[6], name, revision, subject)
                for flag, subject in zip(flags, found.subject, strict=False)
                if subject is not None
            }
        for flag, members in zip(flags, found.members, strict=False):
            effects.members += [
                (flag[0], self.keys[at], model, int(self.seq[at]), int(self.row[at])) for at in members
            ]
        effects.weak_labels += self._weak_labels(
            offered, slot, [flag[0] for flag in flags], found.weak_labels
        )

    def _weak_labels(
        self, offered: Offered, slot: str, flags: Sequence[str], weak: WeakLabels
    ) -> list[tuple[Any, ...]]:
        """Tuples of corrections, each with the flag that it comes from."""
        rows = []
        for n, at in enumerate(weak.row.tolist()):
            flag, key = flags[weak.finding[n]], self.keys[at]
            kind, name, element = weak.kind[n], weak.field[n], int(weak.element[n])
            value = _json(weak.value[n])
            rows.append(
                (
                    weak_label_id(flag, key, kind, name, element, value),
                    self.unit.model,
                    key,
                    flag,
                    offered.name,
                    offered.revision,
                    slot,
                    self.versions[at],
                    kind,
                    name,
                    element,
                    value,
                    float(weak.confidence[n]),
                    int(self.seq[at]),
                    int(self.row[at]),
                    int(self.ts_us[at]),
                )
            )
        return rows

    def live_answers(
        self, test: str, status: str, rows: NDArray[np.int64], probability: NDArray[np.float64]
    ) -> list[tuple[Any, ...]]:
        """Tuples of sampled questions with one outcome.

        ``probability`` is of every record, shape (rows,).
        """
        model = self.unit.model
        located = zip(
            self.keys[rows].tolist(),
            (self.versions[row] or "" for row in rows.tolist()),
            self.seq[rows].tolist(),
            self.ts_us[rows].tolist(),
            probability[rows].tolist(),
            strict=True,
        )
        return [(model, test, key, version, seq, ts_us, status, p) for key, version, seq, ts_us, p in located]


def _microseconds(times: NDArray[np.datetime64]) -> NDArray[np.int64]:
    return times.astype("datetime64[us]").astype(np.int64)


def _json(value: Any) -> str:
    """JSON text; NaN becomes null, and dates and bytes have a form."""
    return msgspec.json.encode(value, enc_hook=str).decode()
