"""Profile: mergeable counts of all columns of some records."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import row_hashes

from .cells import FIRST, LAST, MOST, Floats, Ints, cells_around, count_cells
from .distinct import REGISTERS, Registers, registers_of, registers_of_numbers
from .features import PROPERTIES, Feature, batch_columns, features_of, source_of, source_of_feature
from .layout import (
    ABSENT,
    MISTYPED,
    NULL,
    OTHER,
    ColumnLayout,
    ProfileLayout,
    batch_entities,
    first_of_entities,
    numbers_of,
    texts_of,
)
from .points import LEAST_ENTITIES, Points

NEW_CATEGORIES = 20
"""Maximum number of new categories that a profile names, most frequent first."""
_WEIGHT_STEP = float(1 << 20)
_MOST_WEIGHT = float(1 << 42)
"""Maximum weight of a window's bin in stored form."""


@dataclass(slots=True)
class ColumnEstimates:
    """Approximate figures of one column, for display: alarms do not use them.

    Attributes
    ----------
    sums
        Sums over the finite numbers of weight, weighted ``value - centre`` and weighted ``(value -
        centre)²``, shape (3,).
    registers
        HyperLogLog registers of the distinct values, shape (REGISTERS,).
    new
        Weight by new category (unknown to the layout) of at least ten entities.
    """

    points: Points = field(default_factory=Points.nothing)
    sums: Floats = field(default_factory=lambda: np.zeros(3))
    registers: Registers = field(default_factory=lambda: np.zeros(REGISTERS, dtype=np.uint8))
    new: dict[str, float] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence["ColumnEstimates"]) -> "ColumnEstimates":
        """Figures of all parts together."""
        new: dict[str, float] = {}
        for part in parts:
            for name, weight in part.new.items():
                new[name] = new.get(name, 0.0) + weight
        most = sorted(new, key=lambda name: (-new[name], name))[:NEW_CATEGORIES]
        return cls(
            Points.merged([part.points for part in parts]),
            np.sum([part.sums for part in parts], axis=0),
            np.max([part.registers for part in parts], axis=0),
            {name: new[name] for name in most},
        )


@dataclass(slots=True)
class Profile:
    """Counts of records in the bins of one layout.

    Attributes
    ----------
    counts, weights
        Number and weight of records in each bin of each column, in the order of ``layout.offsets``, shape
        (bins,). Weights are multiples of 2**-20, so that sums are exact. Alarms use only these.
    estimates
        Approximate figures of each column, for display.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.random.default_rng(0).integers(18, 80, 1000)
    >>> batch = Batch.from_columns({"inputs.age": ages}, model="m")
    >>> layout = ProfileLayout.fit(batch)
    >>> whole = Profile.of(batch, layout)
    >>> parts = Profile.of(batch.slice(0, 300), layout).merged(Profile.of(batch.slice(300), layout))
    >>> whole.rows, bool((whole.counts == parts.counts).all())
    (1000, True)
    """

    layout: ProfileLayout
    rows: int
    weight: float
    counts: Ints
    weights: Floats
    estimates: tuple[ColumnEstimates, ...]

    @classmethod
    def empty(cls, layout: ProfileLayout) -> "Profile":
        """Profile of no records."""
        bins = int(layout.offsets[-1])
        estimates = tuple(ColumnEstimates() for _ in layout.columns)
        return cls(layout, 0, 0.0, np.zeros(bins, dtype=np.int64), np.zeros(bins), estimates)

    @classmethod
    def of(cls, batch: Batch, layout: ProfileLayout) -> "Profile":
        """Profile of a batch's records, by their weights.

        Columns outside the layout are not counted; see :meth:`ProfileLayout.extended`.
        """
        found = cls.empty(layout)
        if not batch.rows:
            return found
        given = batch.column("weight")
        weight = None if (given == 1.0).all() else np.round(given * _WEIGHT_STEP) / _WEIGHT_STEP
        first = first_of_entities(batch_entities(batch))
        rows = _Rows(batch.rows, weight, first, bool(first.all()))
        found.rows, found.weight = batch.rows, rows.total
        columns = batch_columns(batch)
        features = {feature.name: feature for feature in _features(columns, layout)}
        for at, column in enumerate(layout.columns):
            counts, weights = found.counts_at(at)
            feature = features.get(column.name)
            if feature is None:
                missing = MISTYPED if column.column in columns else ABSENT
                if missing == MISTYPED and columns[column.column].null_count == batch.rows:
                    missing = NULL  # a column of nulls alone may be of any type
                _rest(counts, weights, missing, batch.rows, rows.total)
            elif column.kind == "numeric":
                _count_numbers(column, feature, rows, counts, weights, found.estimates[at])
            else:
                _count_categories(column, feature, rows, counts, weights, found.estimates[at])
        return found

    def merged(self, other: "Profile") -> "Profile":
        """Profile of both.

        Counts of a column whose bins differ cannot be added: those of ``other``, the newer one, are kept.
        """
        return merged([self, other])

    def under(self, layout: ProfileLayout) -> "Profile":
        """Profile under another layout.

        Columns whose bins differ there count as absent.
        """
        if layout.digest == self.layout.digest:
            return self
        found = Profile.empty(layout)
        found.rows, found.weight = self.rows, self.weight
        estimates = list(found.estimates)
        own = {column: at for at, column in enumerate(self.layout.columns)}
        for at, column in enumerate(layout.columns):
            counts, weights = found.counts_at(at)
            if (here := own.get(column)) is None:
                _rest(counts, weights, ABSENT, self.rows, self.weight)
                continue
            counts[:], weights[:] = self.counts_at(here)
            estimates[at] = self.estimates[here]
        found.estimates = tuple(estimates)
        return found

    def counts_of(self, name: str) -> tuple[Ints, Floats]:
        """Records and weights of a column's bins, then of ``REST``.

        Each of shape (bins + 4,).

        Raises
        ------
        KeyError
            If the layout has no such column.
        """
        return self.counts_at(self.layout.columns.index(self.layout.by_name[name]))

    def counts_at(self, at: int) -> tuple[Ints, Floats]:
        """Records and weights of the column at an index.

        See :meth:`counts_of`.
        """
        begin, end = self.layout.offsets[at : at + 2]
        return self.counts[begin:end], self.weights[begin:end]

    # ---- stored ----------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Compressed bytes, without the layout.

        Bytes of equal significance are stored together, which compresses better.
        """
        is_plain = bool((self.weights == self.counts).all())
        new = {str(at): one.new for at, one in enumerate(self.estimates) if one.new}
        points = [one.points for one in self.estimates]
        cells = [np.diff(one.cells, prepend=0) for one in points]
        head = {
            "rows": self.rows,
            "weight": self.weight,
            "plain": is_plain,
            "points": [len(one.cells) for one in points],
            "new": new,
        }
        parts = [
            _packed(self.counts.astype(np.uint32)),
            b""
            if is_plain
            else _packed((np.minimum(self.weights, _MOST_WEIGHT) * _WEIGHT_STEP).astype(np.int64)),
            _packed(np.concatenate([np.zeros(0, dtype=np.int64), *cells]).astype(np.uint16)),
            _packed(np.concatenate([np.zeros(0), *(one.weights for one in points)])),
            _packed(np.concatenate([np.zeros(0), *(one.sums for one in self.estimates)])),
            *(one.registers.tobytes() for one in self.estimates),
        ]
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
        return zlib.compress(b"".join([len(text).to_bytes(4, "little"), text, *parts]), 4)

    @classmethod
    def from_bytes(cls, payload: bytes, layout: ProfileLayout) -> "Profile":
        """Profile from the bytes of :meth:`to_bytes`.

        Raises
        ------
        ValueError
            If it was written under another layout.
        """
        held = _Reader(zlib.decompress(payload))
        head = json.loads(held.take(int.from_bytes(held.take(4), "little")))
        bins, columns, lengths = int(layout.offsets[-1]), len(layout.columns), head["points"]
        if len(lengths) != columns:
            raise ValueError(f"the profile has {len(lengths)} columns, its layout {columns}")
        counts = held.array(np.uint32, bins).astype(np.int64)
        weights = counts.astype(np.float64)
        if not head["plain"]:
            weights = held.array(np.int64, bins) / _WEIGHT_STEP
        cells = held.array(np.uint16, sum(lengths)).astype(np.int64)
        masses = held.array(np.float64, sum(lengths))
        sums = held.array(np.float64, 3 * columns).reshape(columns, 3)
        registers = np.frombuffer(held.take(columns * REGISTERS), dtype=np.uint8).reshape(-1, REGISTERS)
        ends = np.cumsum([0, *lengths]).tolist()
        estimates = tuple(
            ColumnEstimates(
                Points(np.cumsum(cells[ends[at] : ends[at + 1]]), masses[ends[at] : ends[at + 1]]),
                sums[at],
                registers[at],
                head["new"].get(str(at), {}),
            )
            for at in range(columns)
        )
        return cls(layout, head["rows"], head["weight"], counts, weights, estimates)


def stored_weights(payload: bytes, layout: ProfileLayout) -> Floats:
    """Bin weights of a stored profile, shape (bins,).

    Reads only the beginning of the bytes, at a fifth of the cost of :meth:`Profile.from_bytes`.
    """
    stream = zlib.decompressobj()
    size = int.from_bytes(begin := stream.decompress(payload, 4), "little")
    bins = int(layout.offsets[-1])
    begin += stream.decompress(stream.unconsumed_tail, size + 12 * bins)
    held = _Reader(begin[4:])
    is_plain = json.loads(held.take(size))["plain"]
    counts = held.array(np.uint32, bins)
    return counts.astype(np.float64) if is_plain else held.array(np.int64, bins) / _WEIGHT_STEP


@dataclass(frozen=True, slots=True)
class _Rows:
    """Number of rows, their weights (None: all 1), and mask of the first row of each entity."""

    number: int
    weight: Floats | None
    first: NDArray[np.bool_]
    is_all_first: bool

    @property
    def total(self) -> float:
        return float(self.number) if self.weight is None else float(self.weight.sum())

    def weight_where(self, mask: NDArray[np.bool_]) -> float:
        return float(mask.sum()) if self.weight is None else float(self.weight[mask].sum())


def _features(columns: dict[str, pa.Array], layout: ProfileLayout) -> list[Feature]:
    """Features of the columns that have the type of the layout."""
    found: list[Feature] = []
    for name, source in layout.sources.items():
        column = columns.get(name)
        if column is None:  # unless its features replace it
            given = [
                each for each in (f"{name}{one}" for one in PROPERTIES.get(source, ())) if each in columns
            ]
            own = [each for each in given if source_of_feature(each, columns[each].type) == source]
            found += [Feature(each, True, columns[each]) for each in own]
            continue
        kind = source_of(column, is_text=source == "text")
        if kind == "number" and source == "category" and not pa.types.is_floating(column.type):
            kind = "category"  # class numbers
        if kind == source:
            found += features_of(name, column, source)
    return found


def _count_numbers(
    column: ColumnLayout,
    feature: Feature,
    rows: _Rows,
    counts: Ints,
    weights: Floats,
    estimates: ColumnEstimates,
) -> None:
    values, there = feature.values, np.ones(rows.number, dtype=np.bool_)
    if values.null_count:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        values = values.drop_null()
        _rest(counts, weights, NULL, int((~there).sum()), rows.weight_where(~there))
    exact = numbers_of(values)
    estimates.registers[:] = registers_of_numbers(exact)
    numbers = exact.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        away = numbers - column.centre
        is_finite = bool(np.isfinite(away.sum()))  # one pass over what is nearly always so
    if not is_finite:
        finite = np.isfinite(numbers)
        at = np.flatnonzero(there)[~finite]
        there[at] = False
        mask = np.zeros(rows.number, dtype=np.bool_)
        mask[at] = True
        _rest(counts, weights, OTHER, len(at), rows.weight_where(mask))
        with np.errstate(over="ignore"):
            away = np.clip(numbers[finite] - column.centre, -MOST, MOST)
    weight = rows.weight if rows.weight is None or there.all() else rows.weight[there]
    own = cells_around(away)
    cells, number, mass = count_cells(own, weight)
    bins = np.searchsorted(np.array(column.edges, dtype=np.int64), cells, side="right")
    counts[: column.bins] += np.bincount(bins, number, column.bins).astype(np.int64)
    weights[: column.bins] += np.bincount(bins, mass, column.bins)
    entities = number
    if not rows.is_all_first:
        seen, firsts, _ = count_cells(own[rows.first[there]])
        entities = np.zeros(len(cells), dtype=np.int64)
        entities[np.searchsorted(cells, seen)] = firsts
    estimates.points = Points.of(cells, mass, entities)
    if len(estimates.points.cells):  # else the mean would say what few entities had
        if cells[0] <= FIRST or cells[-1] >= LAST:
            away = np.clip(away, -MOST, MOST)
        scaled = away if weight is None else away * weight
        estimates.sums[:] = mass.sum(), scaled.sum(), scaled @ away


def _count_categories(
    column: ColumnLayout,
    feature: Feature,
    rows: _Rows,
    counts: Ints,
    weights: Floats,
    estimates: ColumnEstimates,
) -> None:
    values = feature.values
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes, names = encoded.indices, texts_of(encoded.dictionary)
    there = None
    if codes.null_count:
        there = codes.is_valid().to_numpy(zero_copy_only=False)
        codes = codes.drop_null()
        _rest(counts, weights, NULL, int((~there).sum()), rows.weight_where(~there))
    at = codes.to_numpy(zero_copy_only=False)
    weight = rows.weight if rows.weight is None or there is None else rows.weight[there]
    number = np.bincount(at, minlength=len(names))
    mass = number.astype(np.float64) if weight is None else np.bincount(at, weight, len(names))
    place = pc.index_in(names, pa.array(column.categories, names.type)) if column.categories else None
    slots = np.full(len(names), column.bins + OTHER)
    if place is not None:
        known = place.is_valid().to_numpy(zero_copy_only=False)
        slots[known] = place.drop_null().to_numpy()
    counts += np.bincount(slots, number, len(counts)).astype(np.int64)
    weights += np.bincount(slots, mass, len(weights))
    estimates.registers[:] = registers_of(row_hashes(names.filter(pa.array(number > 0)), ""))
    unknown = slots == column.bins + OTHER
    if unknown.any():
        first = rows.first if there is None else rows.first[there]
        entities = number if rows.is_all_first else np.bincount(at[first], minlength=len(names))
        _name_new(names, mass.astype(np.float64), unknown & (entities >= LEAST_ENTITIES), estimates)


def _name_new(names: pa.Array, mass: Floats, named: NDArray[np.bool_], estimates: ColumnEstimates) -> None:
    places = np.flatnonzero(named)
    places = places[np.argsort(-mass[places], kind="stable")][:NEW_CATEGORIES]
    estimates.new.update(zip(names.take(pa.array(places)).to_pylist(), mass[places].tolist(), strict=True))


def _rest(counts: Ints, weights: Floats, which: int, rows: int, weight: float) -> None:
    """Add rows to one of the ``REST`` counts, in place."""
    counts[which - 4] += rows
    weights[which - 4] += weight


def _together(one: ProfileLayout, newer: ProfileLayout) -> ProfileLayout:
    """Columns of both layouts; if bins differ, those of the newer."""
    names = dict.fromkeys([*one.by_name, *newer.by_name])
    return ProfileLayout(tuple(newer.by_name.get(name) or one.by_name[name] for name in names))


def _packed(values: NDArray[np.generic]) -> bytes:
    """Numbers as bytes grouped by significance: most are zero, which compresses well."""
    return values.view(np.uint8).reshape(len(values), -1).T.tobytes() if len(values) else b""


class _Reader:
    """Reader that consumes bytes from the front."""

    def __init__(self, held: bytes) -> None:
        self._held, self._at = held, 0

    def take(self, size: int) -> bytes:
        self._at += size
        return self._held[self._at - size : self._at]

    def array(self, kind: type[np.generic], length: int) -> NDArray[Any]:
        """Numbers that :func:`_packed` wrote."""
        size = np.dtype(kind).itemsize
        raw = np.frombuffer(self.take(size * length), dtype=np.uint8)
        return np.ascontiguousarray(raw.reshape(size, length).T).view(kind).reshape(length)


def merged(profiles: Sequence[Profile]) -> Profile:
    """Merged profile of one or more, given in order of time.

    Counts of a column whose bins differ cannot be added: those of the newest profile are kept.
    """
    if len(profiles) == 1:
        return profiles[0]
    layout = profiles[0].layout
    for one in profiles[1:]:
        if one.layout.digest != layout.digest:
            layout = _together(layout, one.layout)
    parts = [one.under(layout) for one in profiles]
    columns = zip(*(one.estimates for one in parts), strict=True)
    return Profile(
        layout,
        sum(one.rows for one in parts),
        float(sum(one.weight for one in parts)),
        np.sum([one.counts for one in parts], axis=0),
        np.sum([one.weights for one in parts], axis=0),
        tuple(ColumnEstimates.merged(column) for column in columns),
    )
