"""Layout of profiles: fixed bin edges or categories of each column.

Fitted on a reference. Counts of one layout add up over any parts; counts of different layouts cannot be
compared.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch

from .cells import MOST, Floats, cell_floor, cells_of, count_cells
from .features import (
    PROPERTIES,
    Feature,
    Source,
    batch_columns,
    features_of,
    source_of,
    source_of_feature,
)
from .points import LEAST_ENTITIES

Kind: TypeAlias = Literal["numeric", "category"]
BINS = 64
"""Maximum number of bins, which have equal shares."""
CATEGORIES = 100
"""Maximum number of categories that a column keeps by name; the rest is counted together."""
CLASS_NUMBERS = 1000
"""Maximum number of distinct integers of an output that are class numbers."""
REST = ("other", "null", "mistyped", "absent")
"""Counts after the bins: unknown categories or non-finite numbers, nulls, columns of another type, and
records whose schema lacks the column."""
OTHER, NULL, MISTYPED, ABSENT = range(4)


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Bins of one column.

    Attributes
    ----------
    source
        Kind of column that the feature is computed from.
    centre, edges
        For numbers: value around which cells are finest, and first cell of each bin but the first.
    categories
        Names of the categories in order, as text.
    """

    name: str
    kind: Kind
    source: Source
    centre: float = 0.0
    edges: tuple[int, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def bins(self) -> int:
        """Number of bins, without ``REST``."""
        return len(self.edges) + 1 if self.kind == "numeric" else len(self.categories)

    @property
    def column(self) -> str:
        """Column of the records, without the ``#property`` suffix."""
        properties = PROPERTIES.get(self.source, ())
        return next((self.name.removesuffix(one) for one in properties if self.name.endswith(one)), self.name)

    def edge_values(self) -> Floats:
        """Smallest value of each bin but the first.

        In the column's unit, shape (bins - 1,).
        """
        return cell_floor(np.array(self.edges, dtype=np.int64), self.centre)


@dataclass(frozen=True)
class ProfileLayout:
    """Columns of a profile with their bins.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.random.default_rng(0).integers(18, 80, 1000)
    >>> reference = Batch.from_columns({"inputs.age": ages, "outputs.label": ages > 40}, model="m")
    >>> layout = ProfileLayout.fit(reference)
    >>> [(column.name, column.kind) for column in layout.columns], layout.columns[1].categories
    ([('inputs.age', 'numeric'), ('outputs.label', 'category')], ('true', 'false'))
    """

    columns: tuple[ColumnLayout, ...]

    @classmethod
    def fit(cls, reference: Batch, *, classes: Mapping[str, Sequence[str]] | None = None) -> "ProfileLayout":
        """Layout fitted to a reference.

        Bins have equal shares and at least ten entities; each category has at least ten entities. Each entity
        counts once. A value with more than such a share has a bin of its own; two outer bins hold numbers
        twice as far from the middle as any of the reference.

        Parameters
        ----------
        classes
            Categories known without records, by column, such as a model's classes.
        """
        known = classes or {}
        first = np.flatnonzero(first_of_entities(batch_entities(reference)))
        is_few = len(first) < LEAST_ENTITIES
        columns: list[ColumnLayout] = []
        for name, column in batch_columns(reference).items():
            if column.null_count == len(column) or source_of(column, is_text=False) == "none":
                continue  # nulls say nothing of their type: fitted when it holds values
            own = column if is_few else column.take(pa.array(first))
            if own.null_count == len(own):
                continue
            if (tensor := source_of_feature(name, own.type)) is not None:
                columns.append(_fitted(Feature(name, True, own), tensor, (), is_few=is_few))
                continue
            source = _source(name, own)
            columns += [
                _fitted(feature, source, known.get(feature.name, ()), is_few=is_few)
                for feature in features_of(name, own, source)
            ]
        return cls(tuple(columns))

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that are equal for equal columns and bins."""
        return blake2b(self.to_json().encode(), digest_size=8).hexdigest()

    @cached_property
    def by_name(self) -> dict[str, ColumnLayout]:
        """Columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Index of the first count of each column.

        Shape (columns + 1,); the last entry is the total number of counts.
        """
        return np.cumsum([0, *(column.bins + len(REST) for column in self.columns)])

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Source of each record column, by name."""
        return {column.column: column.source for column in self.columns}

    def extended(
        self, reference: Batch, *, classes: Mapping[str, Sequence[str]] | None = None
    ) -> "ProfileLayout":
        """Layout extended by columns of ``reference`` that this one lacks. Existing columns are unchanged."""
        lacking = [name for name in batch_columns(reference) if name not in self.sources]
        if not lacking:
            return self
        more = ProfileLayout.fit(reference, classes=classes)
        found = [one for one in more.columns if one.column in lacking or one.name in lacking]
        return ProfileLayout((*self.columns, *(one for one in found if one.name not in self.by_name)))

    def to_json(self) -> str:
        """JSON text for :meth:`from_json`."""
        return json.dumps([asdict(column) for column in self.columns], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "ProfileLayout":
        """Inverse of :meth:`to_json`."""
        held: list[dict[str, Any]] = json.loads(text)
        return cls(
            tuple(
                ColumnLayout(**one | {"edges": tuple(one["edges"]), "categories": tuple(one["categories"])})
                for one in held
            )
        )


def batch_entities(batch: Batch) -> pa.Array:
    """Entity of each record, null without one."""
    return batch.arrow("entity") if batch.has("entity") else pa.nulls(batch.rows, pa.string())


def first_of_entities(entities: pa.Array) -> NDArray[np.bool_]:
    """Mask of the first record of each entity, shape (rows,).

    A record without an entity counts as one.
    """
    if entities.null_count == len(entities):
        return np.ones(len(entities), dtype=np.bool_)
    codes = entities.dictionary_encode().indices
    there: NDArray[np.bool_] = codes.is_valid().to_numpy(zero_copy_only=False)
    found = ~there
    rows = np.flatnonzero(there)
    found[rows[np.unique(codes.drop_null().to_numpy(), return_index=True)[1]]] = True
    return found


def numbers_of(column: pa.Array) -> Any:
    """Numpy values of a numeric or temporal column without nulls.

    As int64 or float64; times in seconds.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        return column.to_numpy(zero_copy_only=False) / 1e6
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return column.cast(width).cast(pa.int64()).to_numpy(zero_copy_only=False)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        return (
            values.view(np.int64)
            if len(values) and values.max() <= np.iinfo(np.int64).max
            else values.astype(np.float64)
        )
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64, copy=False)


def texts_of(dictionary: pa.Array) -> pa.Array:
    """Values of categories as text: ``true``, ``7``, ``north``."""
    return dictionary if pa.types.is_string(dictionary.type) else dictionary.cast(pa.string())


def _source(name: str, column: pa.Array) -> Source:
    source = source_of(column)
    kind = column.type
    if source != "number" or not pa.types.is_integer(kind):
        return source
    most = 2 if name.startswith("inputs.") else CLASS_NUMBERS
    return "category" if pc.count_distinct(column, mode="only_valid").as_py() <= most else "number"


def _fitted(feature: Feature, source: Source, known: Sequence[str], *, is_few: bool) -> ColumnLayout:
    if feature.is_number:
        values = numbers_of(feature.values.drop_null())
        values = values.astype(np.float64, copy=False)
        centre, edges = _edges(values[np.isfinite(values)], is_whole=pa.types.is_integer(feature.values.type))
        return ColumnLayout(feature.name, "numeric", source, centre, edges)
    encoded = (
        feature.values.dictionary_encode()
        if not pa.types.is_dictionary(feature.values.type)
        else feature.values
    )
    names = texts_of(encoded.dictionary).to_pylist()
    counts = np.bincount(encoded.indices.drop_null().to_numpy(), minlength=len(names))
    least = np.inf if is_few else LEAST_ENTITIES
    often = [names[at] for at in np.argsort(-counts, kind="stable") if counts[at] >= least]
    categories = tuple(dict.fromkeys([*known, *often]))[: max(CATEGORIES, len(known))]
    return ColumnLayout(feature.name, "category", source, categories=categories)


def _edges(values: Floats, *, is_whole: bool) -> tuple[float, tuple[int, ...]]:
    """Centre and first cells of the bins; each bin has at least ten of the values."""
    if len(values) < 2 * LEAST_ENTITIES:
        return 0.0, ()
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
    with np.errstate(over="ignore"):
        deviation = float(np.std(values))
        spread = float(high - low) or (deviation if np.isfinite(deviation) else 0.0)
    spread = min(spread or abs(float(median)) or 1.0, MOST)
    step = max(10.0 ** np.floor(np.log10(spread / 10)), 1.0 if is_whole else 0.0)
    centre = float(np.round(median / step) * step)
    cells, rows, _ = count_cells(cells_of(values, centre))
    begins = _grouped(rows, max(LEAST_ENTITIES, len(values) / BINS))
    edges = cells[1:][np.array(begins, dtype=np.bool_)].tolist()
    with np.errstate(over="ignore"):
        reach = 2.0 * np.array([values.min() - centre, values.max() - centre])
        ends = np.array([min(reach[0], -spread), max(reach[1], spread)]) + centre
    far = cells_of(ends, centre)
    found = np.array(sorted({*edges, int(far[0]) + 1, int(far[1])}), dtype=np.int64)
    with np.errstate(invalid="ignore"):
        is_number = np.isfinite(cell_floor(found, centre))
    return centre, tuple(found[is_number].tolist())


def _grouped(rows: NDArray[np.int64], least: float) -> list[bool]:
    """Bin starts such that every bin has at least ``least`` values."""
    begins, held, left = [], int(rows[0]), int(rows.sum()) - int(rows[0])
    for here in rows[1:].tolist():
        starts = left >= least and (held >= least or (held >= LEAST_ENTITIES and here >= least))
        begins.append(starts)
        held, left = here if starts else held + here, left - here
    return begins
