"""Locations of records in the journal, and ledger columns of findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings, WeakLabels
from outrider.assertions.comparison.typed_text import text_of
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.commit import Effects, flag_id, weak_label_id
from outrider.dataops.ledger.flag_marks import judged_marks
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.monitor.host.client import Offered
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.stream.units import Unit

from .judged import JudgedRecords
from .slot_state import Views
from .stages.measures import stored_class_scores, stored_confidences
from .stages.stated import CountedValues


@dataclass(frozen=True, slots=True)
class RecordLocations:
    unit: Unit
    keys: NDArray[np.object_]
    ts_us: NDArray[np.int64]
    seq: NDArray[np.int64]
    row: NDArray[np.int64]
    versions: Sequence[str | None] = ()
    counted: Sequence[str | None] = ()
    slices: Sequence[str | None] = ()
    """``counted`` and ``slices``: judged version and slice of every record, as counts name them."""

    @classmethod
    def of(
        cls, unit: Unit, batch: Batch, kept: NDArray[np.intp], versions: Sequence[str | None] = ()
    ) -> "RecordLocations":
        ts_us = _microseconds(batch.column("ts"))
        return cls(unit, batch.keys, ts_us, unit.seq[kept], unit.row[kept], versions)

    def take(self, rows: NDArray[np.intp]) -> "RecordLocations":
        columns = [
            [column[row] for row in rows.tolist()] if column else ()
            for column in (self.versions, self.counted, self.slices)
        ]
        return RecordLocations(
            self.unit, self.keys[rows], self.ts_us[rows], self.seq[rows], self.row[rows], *columns
        )

    def judged_as(self, versions: Sequence[str | None]) -> "RecordLocations":
        return replace(self, versions=versions)

    def counted_as(self, counted: Sequence[str | None], slices: Sequence[str | None]) -> "RecordLocations":
        return replace(self, counted=counted, slices=slices)

    def registered_as(
        self, names: Mapping[tuple[int, int], tuple[str | None, bool]], *, slot: str
    ) -> "RecordLocations":
        """Registered records, with slices and versions as counted: ``names`` by block and row.

        A challenger's version is always named.
        """
        own = [
            names.get(place, (None, False))
            for place in zip(self.seq.tolist(), self.row.tolist(), strict=True)
        ]
        versions = [
            OTHERS if unnamed and slot == CHAMPION else version
            for (_, unnamed), version in zip(own, self.versions, strict=True)
        ]
        return self.counted_as(versions, [part for part, _ in own])

    @property
    def tags(self) -> NDArray[np.int64]:
        return np.stack([self.seq, self.row], axis=1)

    def of_views(self, views: Views) -> "RecordLocations":
        """Locations of the rows of views, which may be of earlier units."""
        batches = [view.batch for view in views]
        tags = np.concatenate([view.tags for view in views])
        versions = [version for batch in batches for version in batch.column("version").tolist()]
        keys = np.concatenate([batch.keys for batch in batches])
        ts_us = np.concatenate([_microseconds(batch.column("ts")) for batch in batches])
        return RecordLocations(self.unit, keys, ts_us, tags[:, 0], tags[:, 1], versions)

    def note_judged(self, effects: Effects, answered: NDArray[np.bool_]) -> None:
        codes: dict[str | None, int] = {}
        code = np.array([codes.setdefault(one, len(codes)) for one in self.counted], dtype=np.int64)
        known = np.flatnonzero(answered & (code != codes.get(None, -1)))
        if not len(known):
            return
        at = known[np.lexsort((known, self.seq[known], code[known]))]
        keys = np.stack([code[at], self.seq[at]])
        starts = np.flatnonzero(np.any(keys[:, 1:] != keys[:, :-1], axis=0)) + 1
        names = list(codes)
        for rows in np.split(at, starts):
            effects.marks[str(names[code[rows[0]]]), int(self.seq[rows[0]])] = judged_marks(self.row[rows])

    def note_records(
        self,
        effects: Effects,
        records: JudgedRecords,
        digests: NDArray[np.uint64],
        counted: CountedValues,
        settings: ModelSettings,
    ) -> None:
        judged = records.batch
        effects.records.add(
            judged.rows,
            self._at(slice(None))
            | {
                "model": self.unit.model,
                "id": self.keys.tolist(),
                "digest": digests.view(np.int64).tolist(),
                "version": text_of(judged, "version"),
                "entity": text_of(judged, "entity"),
                "slice": counted.slices,
                "predicted": counted.predicted,
                "weight": judged.column("weight").tolist(),
                "by_replica": self._by_replica(judged),
                "confidence": stored_confidences(
                    judged, target=settings.target, positive=settings.positive_class
                ),
                "is_unnamed": counted.is_unnamed,
                "class_scores": stored_class_scores(judged),
                "groups": counted.groups,
                "is_other_class": counted.is_other_class,
            },
        )
        effects.stated_versions += counted.stated

    def _at(self, rows: NDArray[np.int64] | slice) -> dict[str, Any]:
        return {
            "seq": self.seq[rows].tolist(),
            "row": self.row[rows].tolist(),
            "ts_us": self.ts_us[rows].tolist(),
        }

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

    def note_dead_letters(self, effects: Effects, reason: str, details: Mapping[int, str]) -> None:
        rows = np.array(list(details), dtype=np.intp)
        columns = {
            "model": self.unit.model,
            "record_id": self.keys[rows].tolist(),
            "reason": reason,
            "detail": list(details.values()),
            "at_us": self.unit.received_us,
        }
        effects.dead_letters.add(len(rows), self._at(rows) | columns)

    def answers(self, version: str, batch: Batch) -> list[tuple[Any, ...]]:
        """Answer tuples: one payload per journal block, its rows in the order of the kept records."""
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
        """Add the findings of one assertion: flags, members, weak labels and the count."""
        rows, slot, model = found.row, effects.owner, self.unit.model
        name, revision = offered.name, offered.revision
        assertion = {"model": model, "slot": slot, "assertion": name, "revision": revision}
        keys, versions = self.keys[rows].tolist(), [self.versions[at] for at in rows.tolist()]
        subjects = found.subject or [None] * len(rows)
        flags = [
            flag_id(model, version, name, revision, key if subject is None else subject, slot=slot)
            for version, key, subject in zip(versions, keys, subjects, strict=True)
        ]
        columns = {
            "id": flags,
            "record_id": keys,
            "version": versions,
            "severity": found.severity.tolist(),
            "level": offered.level,
            "evidence": [None if one is None else _json(one) for one in found.evidence] or None,
        }
        effects.flags.add(len(rows), assertion | columns | self._at(rows))
        effects.counts[f"flags:{name}"] += len(rows)
        if found.members:
            at = np.concatenate(found.members).astype(np.intp)
            columns = {
                "flag_id": [flag for flag, own in zip(flags, found.members, strict=True) for _ in own],
                "record_id": self.keys[at].tolist(),
                "model": model,
            }
            effects.members.add(len(at), columns | self._at(at))
        if len(found.weak_labels.row):
            self._note_weak_labels(effects, assertion, flags, found.weak_labels)

    def _note_weak_labels(
        self, effects: Effects, assertion: Mapping[str, str], flags: Sequence[str], weak: WeakLabels
    ) -> None:
        columns: dict[str, list[Any]] = {
            "flag_id": [flags[at] for at in weak.finding.tolist()],
            "record_id": self.keys[weak.row].tolist(),
            "kind": list(weak.kind),
            "field": list(weak.field),
            "element": weak.element.tolist(),
            "value": [_json(value) for value in weak.value],
        }
        columns["id"] = [weak_label_id(*correction) for correction in zip(*columns.values(), strict=True)]
        columns["version"] = [self.versions[at] for at in weak.row.tolist()]
        columns["confidence"] = weak.confidence.tolist()
        effects.weak_labels.add(len(weak.row), {**assertion, **columns, **self._at(weak.row)})

    def note_live_answers(
        self,
        effects: Effects,
        test: str,
        status: str,
        rows: NDArray[np.int64],
        probability: NDArray[np.float64],
    ) -> None:
        columns = {
            "model": self.unit.model,
            "test": test,
            "record_id": self.keys[rows].tolist(),
            "version": [self.versions[row] or "" for row in rows.tolist()],
            "status": status,
            "probability": probability[rows].tolist(),
        }
        effects.live_answers.add(len(rows), columns | self._at(rows))


def _microseconds(times: NDArray[np.datetime64]) -> NDArray[np.int64]:
    return times.astype("datetime64[us]").astype(np.int64)


def _json(value: Any) -> str:
    """JSON text; NaN becomes null, dates and bytes become text."""
    return msgspec.json.encode(value, enc_hook=str).decode()
