"""Rows of one pass of a window: arrivals, order, views."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from outrider.assertions.batch import Batch

from .arrivals import Bools, Ints, order_by_time
from .entity_rows import Gathered

RELEASED = "~released"
"""Column of kept rows that marks those already judged."""


@dataclass(frozen=True, slots=True)
class View:
    """Rows to judge, with their context.

    At most one uninterrupted run of records of each entity.

    Attributes
    ----------
    batch
        Sorted by entity, ``ts`` and arrival; ``is_new`` and ``is_last`` are set.
    tags
        Caller's integers per row, shape (rows, tags).
    positions
        Row number in the given batch, -1 for rows of earlier batches, shape (rows,).
    """

    batch: Batch
    tags: Ints
    positions: Ints


@dataclass(frozen=True, slots=True)
class Arrived:
    """New records of a pass, and the state of their entities.

    Sorted by (round, entity), encoded in ``keys``, then time. Entities are numbered in order of appearance:
    ``named`` ones first, then records without an entity.
    """

    values: list[Any]
    codes: Ints
    entities: int
    named: int
    rounds: Ints
    last: Ints
    newest: Ints
    reach: Ints
    floor: Ints
    places: Ints
    keys: Ints
    ts: Ints
    late: Ints

    def only(self, rows: Bools) -> "Arrived":
        """Arrivals restricted to a mask of records."""
        return replace(self, places=self.places[rows], keys=self.keys[rows], ts=self.ts[rows])


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Kept and new rows of a pass in the order of judgement.

    Attributes
    ----------
    key, entity, ts, was_released
        Code of (round, entity), entity, time in µs, and whether the row was judged before, shape (rows,).
    source
        Row number in the kept rows followed by the new table.
    final
        Key of each entity's last run.
    before
        Number of kept rows, after which the new table starts.
    """

    key: Ints
    entity: Ints
    ts: Ints
    was_released: Bools
    source: Ints
    final: Ints
    before: int

    @classmethod
    def of(
        cls, arrived: Arrived, before: Gathered, owner: Ints, *, entities: int, silent: int
    ) -> "OrderedRows":
        """Rows in order of judgement, from kept rows and new ones.

        ``owner`` is the entity of each kept row.
        """
        kept, count = len(owner), max(arrived.entities, 1)
        fresh = arrived.keys
        if silent:
            fresh = (fresh // count) * entities + fresh % count
        rounds = np.concatenate([arrived.rounds, np.zeros(silent, dtype=np.int64)])
        keys = np.concatenate([owner, fresh])
        ts = np.concatenate([before.numbers("ts"), arrived.ts])
        released = np.zeros(len(keys), dtype=np.bool_)
        released[:kept] = before.numbers(RELEASED)
        most = int(rounds.max(initial=0))
        order = order_by_time(keys, ts, max(entities, 1) * (most + 1))
        key, size = keys[order], before.size
        source = np.concatenate([before.index, size + arrived.places])[order]
        final = rounds * entities + np.arange(entities)
        return cls(key, key % entities if most else key, ts[order], released[order], source, final, size)

    def by_name(self, index: Ints, names: Mapping[int, Any]) -> Ints:
        """``index`` sorted by the entity name of each row.

        Rows without an entity come last, in their order.
        """
        entity = self.entity[index]
        named = sorted((each for each in np.unique(entity).tolist() if each in names), key=names.__getitem__)
        rank = np.full(len(self.final), len(self.final), dtype=np.int64)
        rank[named] = np.arange(len(named))
        return index[np.lexsort((rank[entity], self.key[index] // len(self.final)))]

    def context(self, candidates: Bools, most: int, since: Ints | None) -> Bools:
        """Mask of judged rows that a later record may look back to.

        Parameters
        ----------
        candidates
            Mask of judged rows of entities that continue, shape (rows,).
        most
            Maximum number of rows that an entity looks back.
        since
            Earliest ``ts`` that each entity may look back to, shape (entities,); None: no limit.
        """
        if not most or not len(self.key):
            return np.zeros(len(self.key), dtype=np.bool_)
        # Released rows come first in each run, so that those after a row are counted from the run's end.
        starts = starts_of_runs(self.key)
        following = np.add.reduceat(candidates.astype(np.int64), starts)
        counts = np.diff(np.append(starts, len(self.key)))
        rank = np.repeat(starts + following, counts) - 1 - np.arange(len(self.key))
        context = candidates & (rank < most)
        return context if since is None else context & (self.ts >= since[self.entity])


def starts_of_runs(keys: Ints) -> Ints:
    """First row of each run of equal keys."""
    starts = np.ones(len(keys), dtype=np.bool_)
    starts[1:] = keys[1:] != keys[:-1]
    return np.flatnonzero(starts)


def ends_of_runs(keys: Ints) -> Bools:
    """Mask of the last row of each run of equal keys."""
    ends = np.ones(len(keys), dtype=np.bool_)
    ends[:-1] = keys[1:] != keys[:-1]
    return ends


def any_in_run(mask: Bools, keys: Ints) -> Bools:
    """Mask of the runs in which any row is marked."""
    if not len(keys) or mask.all():
        return mask
    starts = starts_of_runs(keys)
    found: Bools = np.repeat(np.logical_or.reduceat(mask, starts), np.diff(np.append(starts, len(keys))))
    return found
