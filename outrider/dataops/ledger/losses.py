"""Blocks of labelled observations, in order of the first labels.

An observation is an entity, once in a block; a record without one is its own. A block has 50 of them, or
those of an hour: both are known before any outcome of the next one. What a label says when it first comes
counts; corrections do not change the past that alarms read: until they come, the newest would seem worse.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from sqlalchemy import Connection

from outrider.assertions.statistics.bets import weight_classes, weights_of
from outrider.dataops.state.rows import add_to_rows, replace_rows
from outrider.dataops.state.series_tables import LossBlock, LossCount

from .cube import LOSSES, Floats
from .measures import buckets_of
from .minutes import HOUR_US

BLOCK = 50
"""Observations of a full block."""
OF_LABEL = "\1"
"""Begin of the slice under which an observation counts a second time, by its label: no other has it."""
WRONG = -1
"""Bucket of a wrong class."""
ENOUGH = 200
"""Errors from which their quantile is known, where they inform as much as ``EFFECTIVE`` of equal weight."""
EFFECTIVE = 50.0
QUANTILE = 0.9
KEPT, MERGED_EVERY = 500, 100
"""Newest blocks that stay, and how often those before are put together."""


@dataclass(frozen=True, slots=True)
class FirstOutcome:
    """Outcome of a record whose first label has come."""

    id: str
    version: str
    slice: str
    entity: str | None
    record_us: int
    known_us: int
    """When label and record were both there."""
    weight: float
    """Of the record among the traffic."""
    hit: bool
    error: float
    """nan of a class."""
    label: str = ""
    """Name of the labelled class; empty of a number."""


@dataclass(slots=True)
class _OpenBlock:
    number: int
    begun_us: int
    ended_us: int
    record_us: int
    newest_us: int
    observations: int
    entities: set[str]
    bound: int | None

    def takes(self, one: FirstOutcome) -> bool:
        return self.observations < BLOCK and one.known_us < self.begun_us + HOUR_US

    def row(self, model: str, version: str) -> tuple[object, ...]:
        entities = "" if self.observations >= BLOCK else " ".join(sorted(self.entities))
        return (
            model, version, self.number, self.begun_us, self.ended_us, self.record_us, self.newest_us,
            self.observations, entities, self.bound,
        )  # fmt: skip


def count_losses(connection: Connection, model: str, found: Iterable[FirstOutcome]) -> None:
    """Add first outcomes to the blocks of their versions."""
    ordered = sorted(found, key=lambda one: (one.known_us, one.record_us, one.id))
    if not ordered:
        return
    chances = _chances(connection, model, [one.id for one in ordered])
    for version in dict.fromkeys(one.version for one in ordered):
        own = [one for one in ordered if one.version == version]
        _count(connection, model, version, own, chances)


def _count(
    connection: Connection,
    model: str,
    version: str,
    found: Sequence[FirstOutcome],
    chances: Mapping[str, float],
) -> None:
    block = _newest(connection, model, version)
    filled: list[_OpenBlock] = [] if block is None else [block]
    taken: list[FirstOutcome] = []
    numbers: list[int] = []
    for one in found:
        if block is None or not block.takes(one):
            if block is not None and (block.bound is None or _is_merging(block.number + 1)):
                _store(connection, (model, version), filled, taken, numbers, chances)
                filled, taken, numbers = [], [], []
            block = _next(connection, model, version, block, one)
            filled.append(block)
        if one.entity is not None:
            key = _hash(model, one.entity)
            if key in block.entities:
                continue
            block.entities.add(key)
        block.observations += 1
        block.ended_us = max(block.ended_us, one.known_us)
        block.newest_us = max(block.newest_us, one.record_us)
        taken.append(one)
        numbers.append(block.number)
    _store(connection, (model, version), filled, taken, numbers, chances)


def _is_merging(number: int) -> bool:
    return number % MERGED_EVERY == 0 and number > KEPT


def _newest(connection: Connection, model: str, version: str) -> _OpenBlock | None:
    query = "SELECT * FROM loss_block WHERE model = ? AND version = ? ORDER BY block DESC LIMIT 1"
    row = connection.exec_driver_sql(query, (model, version)).first()
    if row is None:
        return None
    return _OpenBlock(
        row.block, row.begun_us, row.ended_us, row.record_us, row.newest_us, row.observations,
        set(row.entities.split()), row.bound,
    )  # fmt: skip


def _next(
    connection: Connection, model: str, version: str, last: _OpenBlock | None, one: FirstOutcome
) -> _OpenBlock:
    """Block behind another one, which begins with an outcome."""
    begun_us = one.known_us if last is None else max(one.known_us, last.ended_us)
    number = 0 if last is None else last.number + 1
    bound = None if last is None else last.bound
    if last is not None and bound is None:
        bound = _bound(connection, model, version)
    if _is_merging(number):
        _merge(connection, model, version, number - KEPT)
    return _OpenBlock(number, begun_us, begun_us, one.record_us, one.record_us, 0, set(), bound)


def _bound(connection: Connection, model: str, version: str) -> int | None:
    """Bucket of the 90 % quantile of the traffic's errors so far; None while there are too few.

    Chosen labels count by one over their chance, and stand for those chosen with the same chance that have no
    label yet: failures that are labelled first are no scale.
    """
    query = (
        "SELECT bucket, weight, sum(records) FROM loss_count WHERE model = ? AND version = ?"
        " AND slice NOT LIKE ? GROUP BY bucket, weight ORDER BY bucket"
    )
    rows = connection.exec_driver_sql(query, (model, version, f"{OF_LABEL}%")).all()
    bucket, classes, records = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    if records.sum() < ENOUGH:
        return None
    asked, known = _requested(connection, model, width=int(classes.max()) + 1)
    stood_for = asked * weights_of(np.arange(len(asked)))
    is_counted = np.bincount(classes, minlength=len(asked)) > 0
    if stood_for[~is_counted].sum() > (1.0 - QUANTILE) / 2.0 * stood_for.sum():
        return None  # of a chance with which much was chosen no label has come
    weight = weights_of(classes) * (np.where(known > 0, asked, 1.0) / np.maximum(known, 1.0))[classes]
    mass = records * weight
    if mass.sum() ** 2 < EFFECTIVE * (mass @ weight):
        return None
    seen = np.cumsum(mass)
    return max(0, int(bucket[int(np.searchsorted(seen, QUANTILE * seen[-1]))]))


def _requested(connection: Connection, model: str, *, width: int) -> tuple[Floats, Floats]:
    """Records chosen for labels by class of weight, and how many of them have one; shape (classes,) each."""
    query = (
        "SELECT r.probability, count(*), sum(EXISTS (SELECT 1 FROM label l"
        " WHERE l.model = r.model AND l.record_id = r.record_id))"
        " FROM label_request r WHERE r.model = ? AND r.population > 0 AND r.probability > 0"
        " GROUP BY r.probability"
    )
    rows = np.array(connection.exec_driver_sql(query, (model,)).all(), dtype=np.float64).reshape(-1, 3)
    classes = weight_classes(1.0 / rows[:, 0])
    asked, known = (
        np.bincount(classes, column, minlength=width).astype(np.float64) for column in rows[:, 1:].T
    )
    return asked, known


def _merge(connection: Connection, model: str, version: str, until: int) -> None:
    """Put old blocks into the first one that has a bound: they may have been no onset, but stay usual."""
    first = "SELECT min(block) FROM loss_block WHERE model = ? AND version = ? AND bound IS NOT NULL"
    into = connection.exec_driver_sql(first, (model, version)).scalar()
    if into is None:
        return
    given = {"model": model, "version": version, "into": into, "until": until}
    where = "model = :model AND version = :version AND block > :into AND block < :until"
    LOSSES.move(connection, {"block": ":into"}, where, given)
    connection.exec_driver_sql(f"DELETE FROM loss_block WHERE {where}", given)


def _store(
    connection: Connection,
    key: tuple[str, str],
    filled: Sequence[_OpenBlock],
    taken: Sequence[FirstOutcome],
    numbers: Sequence[int],
    chances: Mapping[str, float],
) -> None:
    """Write blocks of a model's version, and add observations to those of their numbers."""
    if not taken:
        return
    replace_rows(connection, LossBlock, [block.row(*key) for block in filled])
    error = np.abs([one.error for one in taken])
    wrong = np.where([one.hit for one in taken], 0, WRONG)
    bucket = np.where(np.isnan(error), wrong, buckets_of(np.nan_to_num(error)))
    weight = weight_classes(np.array([one.weight / chances.get(one.id, 1.0) for one in taken]))
    rows = list(zip(numbers, weight.tolist(), bucket.tolist(), taken, strict=True))
    cells = Counter((number, one.slice, *rest) for number, *rest, one in rows)
    cells.update((number, OF_LABEL + one.label, *rest) for number, *rest, one in rows if one.label)
    add_to_rows(connection, LossCount, [(*key, *cell, records) for cell, records in cells.items()])


def _chances(connection: Connection, model: str, ids: Sequence[str]) -> dict[str, float]:
    """Chance with which each record was chosen for a label, of those that were."""
    query = (
        "SELECT record_id, probability FROM label_request WHERE model = ?"
        " AND record_id IN (SELECT value FROM json_each(?))"
    )
    return {row[0]: row[1] for row in connection.exec_driver_sql(query, (model, json.dumps(ids)))}


def _hash(model: str, entity: str) -> str:
    return blake2b(f"{model}\0{entity}".encode(), digest_size=8).hexdigest()
