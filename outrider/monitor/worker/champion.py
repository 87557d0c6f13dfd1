import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.batch.columns import plain
from outrider.assertions.comparison.typed_text import NO_NUMBER, typed_texts
from outrider.dataops.journal.row_expiry import expired_ids
from outrider.dataops.journal.stored_rows import StoredRows
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.minutes import minute_of
from outrider.dataops.ledger.records import known_digests
from outrider.dataops.ledger.rotations import Rotation
from outrider.dataops.ledger.stated_values import LABEL
from outrider.dataops.payloads.payloads import Opened
from outrider.monitor.stream.units import Unit

from .admission import SamplingState, admitted, weighted
from .inference import NO_PREDICTIONS, Predictions
from .ledger_rows import RecordLocations
from .pipeline import CHAMPION, Pipeline, owner_of
from .stages.stated import other_classes
from .stages.work import Timings, Work

LATE_LABEL = "a label whose record has expired (storage.keep_rows_days)"
CONFLICT = "a record of this id with other content was accepted before; the first stands"


@dataclass(frozen=True, slots=True)
class Prepared:
    rows: NDArray[np.intp]
    opened: Opened
    share: float

    @property
    def asked_rows(self) -> NDArray[np.intp]:
        return self.rows[self.opened.well] if self.opened.faults else self.rows

    @property
    def batch(self) -> Batch:
        return self.opened.batch.take(self.opened.well) if self.opened.faults else self.opened.batch

    def predictions(self, asked_for: Predictions, positions: NDArray[np.intp]) -> Predictions:
        asked = np.searchsorted(self.opened.well, positions) if self.opened.faults else positions
        return asked_for.take(asked)


def prepare(pipeline: Pipeline, unit: Unit, share: float, *, seed: int) -> Prepared:
    assert unit.batch is not None
    rows = admitted(unit.batch, share, seed=seed, period=unit.received_us // pipeline.period_us)
    return Prepared(rows, pipeline.payloads.open(unit.batch, rows), share)


def evaluate_unit(
    engine: Engine,
    pipeline: Pipeline,
    unit: Unit,
    timings: Timings,
    *,
    target: str,
    prepared: Prepared | None = None,
    version: str | None = None,
    predictions: Predictions = NO_PREDICTIONS,
    slot: str = CHAMPION,
    share: float = 1.0,
    seed: int = 0,
    may_test: bool = True,
) -> Work[Effects]:
    """Everything that a unit changes where the champion is judged; commits nothing.

    ``share`` is at most that of ``prepared``, the rest is shed and counted; ``may_test=False`` sheds live
    tests.
    """
    name = unit.model
    if unit.batch is None or prepared is None:
        effects = pipeline.pass_time(slot, unit, timings) or Effects(
            name, slot, unit.last_seq, owner=owner_of(slot)
        )
    else:
        sample = _admit(pipeline, unit, prepared, slot=slot, share=share, seed=seed)
        batch = unit.batch if len(sample.rows) == unit.batch.rows else unit.batch.take(sample.rows)
        digests, located = batch.content_digests(), RecordLocations.of(unit, batch, sample.rows)
        new, conflicts, counts = _identify(engine, batch, located, digests)
        new, unopened = _readable(prepared, sample.rows, new)
        at = np.searchsorted(prepared.rows, sample.rows[new])
        timings.stage("read")
        opened = prepared.opened.batch
        effects = yield from pipeline.evaluate(
            slot,
            weighted(opened if len(at) == opened.rows else opened.take(at), sample.factor),
            located if len(new) == batch.rows else located.take(new),
            version=version,
            predictions=prepared.predictions(predictions, at),
            digests=digests[new],
            timings=timings,
            may_test=may_test,
        )
        sample.note(pipeline, effects)
        located.note_dead_letters(effects, "conflict", dict.fromkeys(conflicts, CONFLICT))
        located.note_dead_letters(effects, "payload", unopened)
        effects.counts.update(counts)
        effects.counts["unopened"] += len(unopened)
        effects.counts["shed:sampled"] += unit.batch.rows - len(sample.rows)
    effects.counts["unreadable"] += unit.unreadable_rows
    for seq, reason in unit.unreadable:
        letter = {"seq": seq, "row": -1, "model": name, "record_id": "", "at_us": unit.received_us}
        effects.dead_letters.add(1, letter | {"reason": "unreadable", "detail": reason})
    for seq, received_us, labels in unit.labels:
        block = {"seq": seq, "model": name, "received_us": received_us}
        columns = label_columns(labels, target)
        minutes = np.full(len(labels.rows), minute_of(received_us), dtype=np.int64)
        columns["is_other_class"] = other_classes(pipeline.stated, LABEL, columns["value"], minutes)
        effects.labels.add(len(labels.rows), block | columns)
    _refuse_late_labels(engine, effects)
    effects.counts["labels"] += len(effects.labels)
    return effects


def _refuse_late_labels(engine: Engine, effects: Effects) -> None:
    """Make dead letters of labels whose records have expired."""
    if not effects.labels:
        return
    with engine.connect() as connection:
        gone = expired_ids(connection, effects.model, filter(None, effects.labels["record_id"]))
    if not gone:
        return
    late = [id_ in gone for id_ in effects.labels["record_id"]]
    for seq, row, id_, at_us in effects.labels.where(late).select("seq", "row", "record_id", "received_us"):
        letter = {"seq": seq, "row": row, "model": effects.model, "record_id": id_, "at_us": at_us}
        effects.dead_letters.add(1, letter | {"reason": "expired", "detail": LATE_LABEL})
    effects.labels = effects.labels.where(not is_late for is_late in late)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """Rows of a unit that are judged, their weight factor, and the new sampling state if any."""

    rows: NDArray[np.intp]
    factor: float = 1.0
    after: SamplingState | None = None
    rotation: Rotation | None = None

    def note(self, pipeline: Pipeline, effects: Effects) -> None:
        if self.after is not None and self.after != pipeline.standing:
            pipeline.standing = self.after
            effects.admission = (self.after.carried, self.after.since_us, self.after.until_us)
        effects.rotation = None if self.rotation is None else (self.rotation.seq, self.rotation.at_us)


def _admit(
    pipeline: Pipeline, unit: Unit, prepared: Prepared, *, slot: str, share: float, seed: int
) -> _Admitted:
    """Rows of the share's entities; the champion's own sample takes the weight of those left out."""
    assert unit.batch is not None
    standing, period_us, rows = pipeline.standing, pipeline.period_us, prepared.rows
    if share < prepared.share:
        rows = admitted(unit.batch, share, seed=seed, period=unit.received_us // period_us)
    share = min(share, prepared.share)
    if slot != CHAMPION or (share >= 1.0 and not standing.carried):
        return _Admitted(rows)
    weight = unit.batch.column("weight")
    factor, carried = standing.factor(float(weight.sum()), float(weight[rows].sum()))
    if share >= 1.0:
        return _Admitted(rows, factor, replace(standing, carried=carried))
    since_us = unit.received_us // period_us * period_us
    after, rotation = SamplingState(carried, since_us, since_us + period_us), None
    if standing.rotates(after.since_us, after.until_us):
        rotation = Rotation(unit.first_seq - 1, unit.received[int(unit.seq[0])])
        pipeline.rotations.append(rotation)
    return _Admitted(rows, factor, after, rotation)


def _readable(
    prepared: Prepared, rows: NDArray[np.intp], new: NDArray[np.intp]
) -> tuple[NDArray[np.intp], dict[int, str]]:
    faults = prepared.opened.faults
    if not faults:
        return new, {}
    positions = np.searchsorted(prepared.rows, rows[new]).tolist()
    why = {row: faults[at] for row, at in zip(new.tolist(), positions, strict=True) if faults.get(at)}
    return new[~np.isin(new, list(why))], why


def _identify(
    engine: Engine, batch: Batch, located: RecordLocations, digests: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], list[int], dict[str, int]]:
    keys = batch.keys.tolist()
    with engine.connect() as connection:
        standing = known_digests(connection, located.unit.model, keys)
        gone = expired_ids(connection, located.unit.model, (key for key in keys if key not in standing))
    kept, conflicts = [], []
    for row, (key, digest) in enumerate(zip(keys, digests.view(np.int64).tolist(), strict=True)):
        if key in gone:
            continue
        if key not in standing:
            standing[key] = digest
            kept.append(row)
        elif standing[key] != digest:
            conflicts.append(row)
    repeated = len(keys) - len(kept)
    counts = {"conflicts": len(conflicts), "duplicates": repeated - len(conflicts)} if repeated else {}
    return np.array(kept, dtype=np.intp), conflicts, counts


def label_columns(labels: StoredRows, target: str) -> dict[str, list[Any]]:
    table = labels.table
    fields = {
        name.removeprefix("label."): plain(table.column(name), name)
        for name in table.schema.names
        if name.startswith("label.")
    }
    nothing = [None] * table.num_rows
    values = typed_texts(table.column(f"label.{target}")) if target in fields else nothing
    ids = table.column("id").to_pylist()
    entities = table.column("entity").to_pylist() if "entity" in table.schema.names else nothing
    return {
        "row": labels.rows.tolist(),
        # Who names the record means it; a label of an entity finds its own in the commit.
        "record_id": ["" if key is None else key for key in ids],
        "entity": [entity if key is None else None for key, entity in zip(ids, entities, strict=True)],
        "source": table.column("source").to_pylist(),
        "key": table.column("key").to_pylist() if "key" in table.schema.names else nothing,
        "value": [None if value == NO_NUMBER else value for value in values],
        "label": [
            json.dumps({name: column[row] for name, column in fields.items() if column[row] is not None})
            for row in range(table.num_rows)
        ],
        "ts_us": table.column("ts").cast(pa.int64()).to_pylist(),
        "is_other_class": nothing,
    }
