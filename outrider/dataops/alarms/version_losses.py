"""Losses of a version by block, as alarms read them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions.detection import LossBlocks
from outrider.assertions.statistics.bets import weights_of
from outrider.dataops.ledger.losses import OF_LABEL, WRONG
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.ledger.stated_values import OTHERS

from .minute_counts import ALL

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LABEL = "label="
"""Begin of the name of a class of labels among slices; real slices of such a name have no stream."""
MOST_CLASSES = 100


class _Count(NamedTuple):
    block: int
    slice: str
    weight: int
    bucket: int
    records: int


@dataclass(frozen=True, slots=True)
class BlockLosses:
    """Lost and seen observations of one version by block: ``lost`` and ``seen`` of shape (slices,
    blocks, weights), times of shape (blocks,). Above bucket ``bound`` an error is a loss; ``by_label``
    has the same losses by labelled class."""

    version: str
    number: Integers
    begun_us: Integers
    ended_us: Integers
    record_us: Integers
    newest_us: Integers
    parts: tuple[str, ...]
    lost: Floats
    seen: Floats
    weight: Floats
    bound: int | None
    by_label: "BlockLosses | None" = None

    def of(self, part: str) -> LossBlocks:
        if part not in self.parts and self.by_label is not None and part in self.by_label.parts:
            return self.by_label.of(part)
        if part == ALL:
            return LossBlocks(self.lost.sum(axis=0), self.seen.sum(axis=0), self.weight)
        at = self.parts.index(part)
        return LossBlocks(self.lost[at], self.seen[at], self.weight)

    @property
    def day(self) -> Integers:
        return np.asarray(np.maximum.accumulate(self.newest_us) // DAY_US)

    def effective(self, streams: Sequence[str]) -> tuple[Floats, Floats]:
        mass, hits = self.seen @ self.weight, self.lost @ self.weight
        squares = (self.seen @ self.weight**2).sum(axis=1)
        places = [self.parts.index(part) if part != ALL else -1 for part in streams]
        mass, hits = (
            np.concatenate([each, each.sum(axis=0, keepdims=True)])[places] for each in (mass, hits)
        )
        squares = np.append(squares, squares.sum())[places]
        scale = (mass.sum(axis=1) / np.maximum(squares, 1e-300))[:, None]
        return scale * hits, scale * mass

    @property
    def slices(self) -> list[str]:
        return list(self.parts) if len(self.seen) > 1 else []

    def where(self, kept: NDArray[np.bool_]) -> "BlockLosses":
        return replace(
            self, number=self.number[kept], begun_us=self.begun_us[kept], ended_us=self.ended_us[kept],
            record_us=self.record_us[kept], newest_us=self.newest_us[kept],
            lost=self.lost[:, kept], seen=self.seen[:, kept],
            by_label=None if self.by_label is None else self.by_label.where(kept),
        )  # fmt: skip

    def knows(self, part: str) -> bool:
        return (
            part == ALL or part in self.parts or (self.by_label is not None and part in self.by_label.parts)
        )

    def rare(self, share: float) -> list[str]:
        own = self.by_label
        if own is None or not 2 <= len(own.parts) <= MOST_CLASSES:
            return []
        mass = (own.seen @ own.weight).sum(axis=1)[: len(own.parts)]
        return [
            part for part, each in zip(own.parts, mass.tolist(), strict=True) if each < share * mass.sum()
        ]


def judged_version(connection: Connection, model: str, champion: str | None) -> str | None:
    """Champion, else the named version of the newest labelled record."""
    query = (
        "SELECT version FROM loss_block WHERE model = ? AND version != ?"
        " ORDER BY version = ? DESC, newest_us DESC LIMIT 1"
    )
    found: str | None = connection.exec_driver_sql(query, (model, OTHERS, champion or "")).scalar()
    return found


def former_version(connection: Connection, losses: BlockLosses, model: str) -> str | None:
    """Version with the newest label before the first one of another."""
    query = (
        "SELECT version FROM loss_block WHERE model = ? AND version NOT IN (?, ?) AND begun_us < ?"
        " ORDER BY begun_us DESC LIMIT 1"
    )
    before_us = int(losses.begun_us[0])
    found: str | None = connection.exec_driver_sql(query, (model, losses.version, OTHERS, before_us)).scalar()
    return found


def newest_block(connection: Connection, model: str) -> tuple[int, int] | None:
    """Time and size of the newest blocks of a model, which each observation changes."""
    query = (
        "SELECT max(ended_us), sum(observations) FROM loss_block WHERE model = ?"
        " GROUP BY version ORDER BY 1 DESC LIMIT 1"
    )
    row = connection.exec_driver_sql(query, (model,)).first()
    return None if row is None else (row[0], row[1])


def read_losses(
    connection: Connection, model: str, version: str, *, bound: int | None = None
) -> BlockLosses | None:
    """Losses of a version; None without any, or while too few errors of numbers are known to say which
    are large (unless ``bound`` does)."""
    query = (
        "SELECT block, begun_us, ended_us, record_us, newest_us, bound FROM loss_block"
        " WHERE model = ? AND version = ? ORDER BY block"
    )
    blocks = connection.exec_driver_sql(query, (model, version)).all()
    query = "SELECT block, slice, weight, bucket, records FROM loss_count WHERE model = ? AND version = ?"
    counts = [_Count(*row) for row in connection.exec_driver_sql(query, (model, version))]
    if not blocks or not counts:
        return None
    is_number = any(row.bucket > 0 for row in counts)
    first = 0
    if is_number and bound is None:
        known = [row.block for row in blocks if row.bound is not None]
        if not known:
            return None
        first, bound = known[0], blocks[-1].bound
    kept = [row for row in blocks if row.block >= first]
    counts = [row for row in counts if row.block >= first]
    labels = [row for row in counts if row.slice.startswith(OF_LABEL)]
    counts = [
        row._replace(slice=OTHERS) if row.slice.startswith(LABEL) else row
        for row in counts
        if not row.slice.startswith(OF_LABEL)
    ]
    found = _block_losses(version, kept, counts, bound, is_number=is_number)
    if is_number or not labels:
        return found
    names = [row._replace(slice=_of_label(row.slice)) for row in labels]
    return replace(found, by_label=_block_losses(version, kept, names, None, is_number=False))


def _of_label(part: str) -> str:
    name = part.removeprefix(OF_LABEL)
    return OTHERS if name == OTHERS else LABEL + name


def _block_losses(
    version: str, kept: Sequence[Any], counts: Sequence[_Count], bound: int | None, *, is_number: bool
) -> BlockLosses:
    places = {row.block: at for at, row in enumerate(kept)}
    named = {row.slice for row in counts}
    parts = {part: at for at, part in enumerate(sorted(named - {OTHERS}))}
    classes = {one: at for at, one in enumerate(sorted({row.weight for row in counts}))}
    seen = np.zeros((len(named), len(kept), len(classes)))
    lost = np.zeros_like(seen)
    for row in counts:
        at = parts.get(row.slice, len(parts)), places[row.block], classes[row.weight]
        seen[at] += row.records
        if row.bucket == WRONG or (bound is not None and row.bucket > bound):
            lost[at] += row.records
    number, begun, ended, record, newest = (
        np.array([getattr(row, name) for row in kept], dtype=np.int64)
        for name in ("block", "begun_us", "ended_us", "record_us", "newest_us")
    )
    return BlockLosses(
        version, number, begun, ended, record, newest, tuple(parts), lost, seen,
        weights_of(np.array(list(classes), dtype=np.int64)), bound if is_number else None,
    )  # fmt: skip
