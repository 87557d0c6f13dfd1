"""Champion's slot: records, verdicts, labels and dead letters of a unit."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.columns import plain
from outrider.assertions.typed_text import NO_NUMBER, typed_texts
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.records import known_digests
from outrider.dataops.ledger.rotations import Rotation
from outrider.dataops.payloads.payloads import Opened
from outrider.monitor.stream.units import Unit

from .admission import SamplingState, admitted, weighted
from .inference import NO_PREDICTIONS, Predictions
from .ledger_rows import RecordLocations
from .pipeline import CHAMPION, Pipeline, owner_of
from .stages.work import Timings, Work

CONFLICT = "a record of this id with other content was accepted before; the first stands"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Records of a unit that are asked about.

    Attributes
    ----------
    rows
        Rows of the unit that are admitted, in order.
    opened
        These, with their payloads as the model sees them.
    share
        Share of the entities that is admitted.
    """

    rows: NDArray[np.intp]
    opened: Opened
    share: float

    @property
    def asked_rows(self) -> NDArray[np.intp]:
        """Rows of the unit that are asked about."""
        return self.rows[self.opened.well] if self.opened.faults else self.rows

    @property
    def batch(self) -> Batch:
        """Records to ask about: admitted, with readable payloads."""
        return self.opened.batch.take(self.opened.well) if self.opened.faults else self.opened.batch

    def predictions(self, asked_for: Predictions, positions: NDArray[np.intp]) -> Predictions:
        """Answers for the records at positions of ``rows``.

        All of them were asked about.
        """
        asked = np.searchsorted(self.opened.well, positions) if self.opened.faults else positions
        return asked_for.take(asked)


def prepare(pipeline: Pipeline, unit: Unit, share: float, *, seed: int) -> Prepared:
    """Admit records of a unit, which has some, and open their payloads."""
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

    Parameters
    ----------
    target
        Field of the labels that is kept as text too.
    prepared
        Its records, where it has any.
    version, predictions
        The champion, and its answers to the prepared records.
    slot
        Which of the slots that speak of the champion.
    share, seed
        Share of the entities that is judged, at most that of ``prepared``, and what the draw depends on; the
        others are shed and counted.
    may_test
        False sheds live tests.
    """
    name = unit.model
    if unit.batch is None or prepared is None:
        effects = pipeline.pass_time(slot, unit, timings) or Effects(
            name, slot, unit.last_seq, owner=owner_of(slot)
        )
    else:
        share = min(share, prepared.share)
        rows = (
            prepared.rows
            if share == prepared.share
            else admitted(unit.batch, share, seed=seed, period=unit.received_us // pipeline.period_us)
        )
        standing, rotation = pipeline.standing, None
        factor, after = 1.0, standing
        if slot == CHAMPION and (share < 1.0 or standing.carried):
            factor, after, rotation = _sampled(pipeline, unit, rows, share)
        batch = unit.batch if len(rows) == unit.batch.rows else unit.batch.take(rows)
        digests, located = batch.content_digests(), RecordLocations.of(unit, batch, rows)
        new, dead, counts = _identify(engine, batch, located, digests)
        at = np.searchsorted(prepared.rows, rows[new])
        unopened = []
        if faults := prepared.opened.faults:
            why = [faults.get(position) for position in at.tolist()]
            unopened = [
                located.dead_letter(row, "payload", reason)
                for row, reason in zip(new.tolist(), why, strict=True)
                if reason
            ]
            well = np.flatnonzero([not reason for reason in why])
            new, at = new[well], at[well]
        timings.stage("read")
        opened = prepared.opened.batch
        effects = yield from pipeline.evaluate(
            slot,
            weighted(opened if len(at) == opened.rows else opened.take(at), factor),
            located if len(new) == batch.rows else located.take(new),
            version=version,
            predictions=prepared.predictions(predictions, at),
            digests=digests[new],
            timings=timings,
            may_test=may_test,
        )
        if after != standing:
            pipeline.standing = after
            effects.admission = (after.carried, after.since_us, after.until_us)
        effects.rotation = None if rotation is None else (rotation.seq, rotation.at_us)
        effects.dead_letters += dead + unopened
        effects.counts.update(counts)
        effects.counts["unopened"] += len(unopened)
        effects.counts["shed:sampled"] += unit.batch.rows - len(rows)
    effects.counts["unreadable"] += unit.unreadable_rows
    for seq, reason in unit.unreadable:
        effects.dead_letters.append((seq, -1, name, "", "unreadable", reason, unit.received_us))
    for seq, received_us, table in unit.labels:
        effects.labels += label_rows(table, name, target, seq, received_us)
    effects.counts["labels"] += len(effects.labels)
    return effects


def _sampled(
    pipeline: Pipeline, unit: Unit, rows: NDArray[np.intp], share: float
) -> tuple[float, SamplingState, Rotation | None]:
    """Weight factor, next sampling state, and a rotation where the sampled entities change."""
    assert unit.batch is not None
    standing, weight = pipeline.standing, unit.batch.column("weight")
    factor, carried = standing.factor(float(weight.sum()), float(weight[rows].sum()))
    if share >= 1.0:
        return factor, SamplingState(carried, standing.since_us, standing.until_us), None
    period_us = pipeline.period_us
    since_us = unit.received_us // period_us * period_us
    rotation = None
    if standing.rotates(since_us, since_us + period_us):
        rotation = Rotation(unit.first_seq - 1, unit.received[int(unit.seq[0])])
        pipeline.rotations.append(rotation)
    return factor, SamplingState(carried, since_us, since_us + period_us), rotation


def _identify(
    engine: Engine, batch: Batch, located: RecordLocations, digests: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], list[tuple[Any, ...]], dict[str, int]]:
    """Rows of ``batch`` whose id is new.

    Repeats are counted, repeats with other content are dead letters.
    """
    keys = pd.Series(batch.keys)
    with engine.connect() as connection:
        known = known_digests(connection, located.unit.model, batch.keys.tolist())
    seen = keys.map(known)
    first = ~keys.duplicated() & seen.isna()
    kept: NDArray[np.intp] = np.flatnonzero(first)
    if len(kept) == len(keys):
        return kept, [], {}
    signed = digests.view(np.int64)
    standing = dict(zip(keys[first], signed[kept].tolist(), strict=True)) | known
    repeated = np.flatnonzero(~first)
    conflicts = [row for row in repeated.tolist() if standing[keys[row]] != int(signed[row])]
    dead = [located.dead_letter(row, "conflict", CONFLICT) for row in conflicts]
    counts = {"conflicts": len(conflicts), "duplicates": len(repeated) - len(conflicts)}
    return kept, dead, counts


def label_rows(table: pa.Table, name: str, target: str, seq: int, received_us: int) -> list[tuple[Any, ...]]:
    """Tuples of a label block.

    The whole label is kept as JSON, the target also as text.
    """
    fields = [column for column in table.column_names if column.startswith("label.")]
    full = f"label.{target}"
    values = typed_texts(table.column(full).combine_chunks()) if full in fields else [None] * table.num_rows
    values = [None if value == NO_NUMBER else value for value in values]
    columns = {
        column.removeprefix("label."): plain(table.column(column).combine_chunks(), column)
        for column in fields
    }
    ts_us = table.column("ts").cast(pa.int64()).to_pylist()
    ids, sources = table.column("id").to_pylist(), table.column("source").to_pylist()
    entities = table.column("entity").to_pylist() if "entity" in table.column_names else [None] * len(ids)
    rows = []
    for row, (key, source) in enumerate(zip(ids, sources, strict=True)):
        label = json.dumps(
            {field: column[row] for field, column in columns.items() if column[row] is not None}
        )
        # Who names the record means it; a label of an entity finds its own in the commit.
        named = (key, None) if key is not None else ("", entities[row])
        rows.append((seq, row, name, named[0], source, values[row], label, ts_us[row], received_us, named[1]))
    return rows
