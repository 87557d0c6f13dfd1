"""Rows of a dataset to learn: class, weight, early-stopping part."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor, row_hashes
from outrider.assertions.comparison.matching import class_numbers
from outrider.dataops.datasets.slices import rows_where
from outrider.dataops.labels.weak_labels import PREFIX
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.errors import ConfigError, ValidationRefused

from .dataset_rows import LABEL_SOURCE
from .options import SliceWeight, TrainingOptions
from .order import Places
from .trainer import TrainingTask

_IMBALANCE = 10
"""Ratio of the commonest class to the rarest from which a warning is due."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LearnedRows:
    rows: MappedRows
    places: Places
    stop: Places
    """For early stopping; none of them is learned."""
    classes: NDArray[np.int64] | None
    """Class number of every row of the file; None without classes."""
    weights: NDArray[np.float32] | None
    """Weight of every row of the file; None if all are equal."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Rows to learn from, by class; all in one without classes."""
        if self.classes is None:
            return np.array([len(self.places)])
        return np.bincount(self.classes[self.places], minlength=classes)


def learned_rows(rows: MappedRows, task: TrainingTask, options: TrainingOptions) -> LearnedRows:
    classes = task.source.classes if task.source.task == "classification" else ()
    numbers = _class_numbers(rows, task.target, classes)
    is_stop = _stops(rows, options.stop_share)
    sources = _label_sources(rows)
    weak = np.zeros(len(rows), np.bool_) if sources is None else sources
    learned = np.flatnonzero(~is_stop)
    facts: dict[str, Any] = {"dataset": rows.id, "rows": len(learned)}
    if options.stop_share:
        facts["stop_rows"] = int(is_stop.sum())
    if sources is not None:
        facts["weak_rows"] = int(weak[learned].sum())
    if numbers is not None:
        counts = np.bincount(numbers[learned], minlength=len(classes))
        facts["classes"] = {
            str(name): int(count) for name, count in zip(classes, counts.tolist(), strict=True)
        }
    weights = np.ones(len(rows), np.float32)
    weights[weak] *= options.weak_weight
    for part in options.slice_weights:
        mask = _in_slice(rows, part)
        weights[mask] *= part.weight
        title = ", ".join(f"{name} = {value!r}" for name, value in part.where.items())
        facts.setdefault("slices", {})[title] = int(mask[learned].sum())
    is_even = bool((weights == 1).all())
    return LearnedRows(rows, learned, np.flatnonzero(is_stop), numbers, None if is_even else weights, facts)


def check_rows(learned: Sequence[LearnedRows], classes: Sequence[int | str], min_rows: int) -> list[str]:
    """Warnings; ``ValidationRefused`` if rows are too few or of one class."""
    rows = sum(len(chosen.places) for chosen in learned)
    if rows < max(min_rows, 1):
        datasets = ", ".join(chosen.rows.id for chosen in learned) or "no dataset"
        raise ValidationRefused(
            f"{rows} rows to learn from in {datasets}: retrain.min_rows = {max(min_rows, 1)} expected; label "
            "more records, or name a dataset as retrain.replay"
        )
    if not classes:
        return []
    counts = sum((chosen.counts(len(classes)) for chosen in learned), start=np.zeros(len(classes), np.int64))
    there = np.flatnonzero(counts)
    if len(there) == 1 and len(classes) > 1:
        raise ValidationRefused(
            f"all {rows} rows to learn from are of the class {classes[there[0]]!r}: rows of at least two "
            f"classes of {_names(classes)} expected; label others too, or name a dataset as retrain.replay"
        )
    warnings = []
    if lacking := [classes[at] for at in np.flatnonzero(counts == 0).tolist()]:
        warnings.append(f"no row is of {_names(lacking)}")
    most, least = int(there[np.argmax(counts[there])]), int(there[np.argmin(counts[there])])
    if counts[most] >= _IMBALANCE * counts[least]:
        warnings.append(
            f"{counts[most]} rows are of {classes[most]!r}, {counts[least]} of {classes[least]!r}: "
            "retrain.class_weights = 'balanced' weighs them alike"
        )
    return warnings


def balanced_weights(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Classes weigh the same in total; rows weigh one in the mean."""
    there = counts > 0
    weights = np.ones(len(counts))
    weights[there] = counts.sum() / (there.sum() * counts[there])
    return weights


def named_weights(given: Mapping[str, float], classes: Sequence[int | str]) -> NDArray[np.float64]:
    """Classes without a name weigh 1."""
    weights = np.ones(len(classes))
    for name, number in zip(given, class_numbers(list(given), classes).tolist(), strict=True):
        if number < 0:
            raise ConfigError(f"retrain.class_weights: {name!r} is none of the classes {list(classes)}")
        weights[number] = given[name]
    return weights


def _class_numbers(rows: MappedRows, target: str, classes: Sequence[int | str]) -> NDArray[np.int64] | None:
    name = f"label.{target}"
    if name not in rows.columns:
        labels = ", ".join(column for column in rows.columns if column.startswith("label.")) or "none"
        raise ValidationRefused(f"{rows.id} has no {name} to learn; its labels are {labels}")
    column = rows.table.column(name)
    if not classes:
        _check_values(rows, name, column)
        return None
    if pa.types.is_nested(column.type) or is_tensor(column.type):
        raise ValidationRefused(f"{rows.id}: {name} holds {column.type}, one of {_names(classes)} expected")
    found = [class_numbers(chunk, classes) for chunk in column.chunks]
    numbers = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
    if (bad := np.flatnonzero(numbers < 0)).size:
        _refuse(rows, name, column, bad, f"one of the classes {_names(classes)} expected")
    return numbers


def _check_values(rows: MappedRows, name: str, column: pa.ChunkedArray) -> None:
    missing = column.is_null().to_numpy()
    if pa.types.is_floating(column.type):
        missing |= pc.fill_null(pc.is_nan(column), True).to_numpy()
    if (bad := np.flatnonzero(missing)).size:
        _refuse(rows, name, column, bad, "a value expected")


def _refuse(
    rows: MappedRows, name: str, column: pa.ChunkedArray, bad: NDArray[np.int64], expected: str
) -> None:
    some = bad[:1000]
    values = list(dict.fromkeys(map(repr, column.take(pa.array(some)).to_pylist())))
    first = f" (id {rows.take(some[:1])['id'][0]})" if "id" in rows.columns else ""
    raise ValidationRefused(
        f"{rows.id}: {name} of {len(bad)} of {len(rows)} rows is {', '.join(values[:_SHOWN])}"
        f"{', …' if len(values) > _SHOWN else ''}, first in row {some[0]}{first}; {expected}"
    )


def _names(classes: Sequence[int | str]) -> str:
    return ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")


def _stops(rows: MappedRows, share: float) -> NDArray[np.bool_]:
    """All rows of an entity are on one side, whatever the seed."""
    if not share:
        return np.zeros(len(rows), np.bool_)
    dataset = rows.id.partition("@")[0]
    units = _units(rows)
    salt = hashlib.blake2b(f"{dataset} stop".encode(), digest_size=8).digest()
    mixed = (units ^ np.frombuffer(salt, np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    return mixed < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def _units(rows: MappedRows) -> NDArray[np.uint64]:
    """Hash of each row's entity, or id if none."""
    ids = hashes_of(rows, "id")
    if "entity" not in rows.columns:
        return ids
    entities = hashes_of(rows, "entity")
    return np.where(entities == 0, ids, entities)


def hashes_of(rows: MappedRows, name: str) -> NDArray[np.uint64]:
    """0 for nulls."""
    found = [row_hashes(chunk, name) for chunk in rows.table.column(name).chunks]
    return np.concatenate([np.empty(0, np.uint64), *found])


def _label_sources(rows: MappedRows) -> NDArray[np.bool_] | None:
    """Mask of weak labels; None if the file lacks sources."""
    if LABEL_SOURCE not in rows.table.schema.names:
        return None
    column = rows.table.column(LABEL_SOURCE)
    return np.asarray(pc.fill_null(pc.starts_with(column, PREFIX), False).to_numpy(), np.bool_)


def _in_slice(rows: MappedRows, part: SliceWeight) -> NDArray[np.bool_]:
    names = [f"attrs.{name}" for name in part.where if f"attrs.{name}" in rows.columns]
    found, start = np.zeros(len(rows), np.bool_), 0
    if len(names) < len(part.where):
        return found
    for chunk in rows.table.select(names).to_batches():
        places, _ = rows_where(Batch.from_arrow(chunk, model="rows"), part.where)
        found[start + places] = True
        start += chunk.num_rows
    return found


# ---- rows that judge ------------------------------------------------------------------------------------


def held_out_among(learned: Sequence[MappedRows], judging: Sequence[MappedRows]) -> list[str]:
    """Counts of learned rows whose entity judges, or that judge themselves.

    Rows are the same if id and inputs are equal: imported tables may count from zero.
    """
    found = []
    for rows in learned:
        for judge in judging:
            if not len(rows) or not len(judge):
                continue
            shared = _of_entities(rows, judge)
            same = _same_rows(rows, judge)
            for mask, what in ((shared, "whose entity is"), (same & ~shared, "that are")):
                if count := int(mask.sum()):
                    first = rows.take(np.flatnonzero(mask)[:1])["id"][0]
                    found.append(
                        f"{count} of {len(rows)} rows of {rows.id} {what} in {judge.id} (first id {first})"
                    )
    return found


def _of_entities(rows: MappedRows, judge: MappedRows) -> NDArray[np.bool_]:
    if "entity" not in rows.columns or "entity" not in judge.columns:
        return np.zeros(len(rows), np.bool_)
    mine, theirs = hashes_of(rows, "entity"), hashes_of(judge, "entity")
    shared: NDArray[np.bool_] = np.isin(mine, theirs[theirs != 0]) & (mine != 0)
    return shared


def _same_rows(rows: MappedRows, judge: MappedRows) -> NDArray[np.bool_]:
    mine, theirs = hashes_of(rows, "id"), hashes_of(judge, "id")
    both = np.intersect1d(mine, theirs)
    found = np.zeros(len(rows), np.bool_)
    if not len(both):
        return found
    names = sorted(name for name in rows.columns if name.startswith("inputs.") and name in judge.columns)
    place, other = (np.flatnonzero(np.isin(hashes, both)) for hashes in (mine, theirs))
    pairs = _pairs(rows, place, mine, names), _pairs(judge, other, theirs, names)
    found[place] = np.isin(pairs[0], pairs[1])
    return found


def _pairs(
    rows: MappedRows, places: NDArray[np.int64], ids: NDArray[np.uint64], names: Sequence[str]
) -> NDArray[np.uint64]:
    whole = []
    for start in range(0, len(places), 4096):
        some = places[start : start + 4096]
        table: pa.Table = rows.gather(some)
        total = ids[some].copy()
        for name in names:
            total += row_hashes(table.column(name).combine_chunks(), name)
        whole.append(total)
    return np.concatenate([np.empty(0, np.uint64), *whole])
