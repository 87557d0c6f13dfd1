"""Search for weak slices: parts of the traffic with a higher rate.

A slice is one to three conditions under which records are wrong, or flagged, more often. Slices are searched
on half of the entities and tested on the other half.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from .clusters import Clusters, Numbers, Scatter
from .group_rates import Limits, Sums, differences, shares

Operator: TypeAlias = Literal["=", "<=", ">", "is missing"]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ERROR = 0.05
LEAST_ROWS, LEAST_SHARE = 30, 0.01
"""Minimum size of a proposed slice, in rows and as a share of the records."""
MOST_SEARCHED = 20_000
MOST_VALUES, MOST_KINDS, MOST_CONDITIONS = 30, 200, 400
"""Maximum numbers: values per column that become conditions; distinct values of a column (more are ids);
conditions."""
_THRESHOLDS = np.linspace(0.1, 0.9, 9)
_BEAM = 40
"""Number of two-condition slices that are extended by a third condition."""
_SPLIT = 3.0
"""Minimum effect of a further condition, and of a proposal, in standard errors; the largest of hundreds of
irrelevant conditions may reach it."""
_WITHIN = 0.5
"""Minimum part of a slice's variance within stretches of time for removing differences between stretches."""
_LENGTH = "length of "


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a column, such as ``length of inputs.text > 140``."""

    column: str
    operator: Operator
    value: str | float | bool | None = None

    def __str__(self) -> str:
        if self.operator == "is missing":
            return f"{self.column} is missing"
        shown = f"{self.value:.6g}" if isinstance(self.value, float) else self.value
        return f"{self.column} {self.operator} {shown}"


@dataclass(frozen=True, slots=True)
class WeakSlice:
    """Slice with its rate, on records not used to propose slices.

    Attributes
    ----------
    conditions
        Conditions that all hold in the slice.
    rows
        Number of records of ``rate``.
    share
        Share of the traffic, by weight.
    rate, low, high
        Rate of the outcome in the slice, with a 95 % interval.
    rest
        Rate of all other records.
    more, more_low, more_high
        ``rate - rest`` with its 95 % interval.
    p
        Holm-adjusted p-value over all proposals, for a slice no worse than the rest.
    """

    conditions: tuple[Condition, ...]
    rows: int
    share: float
    rate: float
    low: float
    high: float
    rest: float
    more: float
    more_low: float
    more_high: float
    p: float

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))


@dataclass(frozen=True, slots=True)
class WeakSlices:
    """Result of a search.

    Attributes
    ----------
    rows, rate
        Number of records that slices were tested on, and their rate.
    slices
        Proposals, smallest p-value first.
    left_out
        Columns that were not searched, each with the reason.
    """

    rows: int
    rate: float
    error: float
    slices: tuple[WeakSlice, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    stretch: str = ""
    """Period to which the test is limited; empty if there are enough days."""

    @property
    def proven(self) -> tuple[WeakSlice, ...]:
        """Slices proven worse than the rest, by their ``p``."""
        return tuple(one for one in self.slices if one.p <= self.error)


def find_weak_slices(
    columns: pa.Table | pa.RecordBatch,
    outcome: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    entity: ArrayLike | None = None,
    time: NDArray[np.datetime64] | None = None,
    most: int = 5,
    error: float = ERROR,
    seed: int = 0,
) -> WeakSlices:
    """Find the slices with the highest rate of an outcome.

    Parameters
    ----------
    columns
        Columns for the conditions: numbers, strings, booleans; for free texts their length. Others are left
        out.
    outcome
        Whether each record is bad, shape (rows,).
    weight
        Number of traffic records that each record represents; default 1.
    entity
        Entity of each record, or null; all records of one entity are on one side of the split.
    time
        Event time of each record; None if unknown.
    most
        Maximum number of proposals. More proposals need more records, since all are tested together.
    error
        Probability that any slice is called proven although it is no worse than the rest.

    Raises
    ------
    ValueError
        If shapes differ.

    Notes
    -----
    The search tries every value, decile and missing value of each column, all pairs, and a third condition on
    the best pairs: a tree that splits column by column misses two conditions that matter only together.
    Records of a slice are removed from later ones, in search and test, so that slices are distinct. Proposals
    depend only on their half of the records, so that Holm's correction over the proposals, not over all
    searched slices, bounds the error on the other half. Each day (each hour, if there are few days) has its
    own rate: the day's mean is removed if the slice has records on most days; otherwise whole days are
    compared.

    References
    ----------
    Cox, "A note on data-splitting for the evaluation of significance levels", Biometrika 1975. Chung et al.,
    "Slice Finder", ICDE 2019. Sagadeeva & Boehm, "SliceLine", SIGMOD 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> region, age = rng.choice(["north", "south"], 4000), rng.integers(18, 90, 4000)
    >>> wrong = rng.random(4000) < np.where((region == "north") & (age > 60), 0.4, 0.05)
    >>> found = find_weak_slices(pa.table({"region": region, "age": age.astype(float)}), wrong)
    >>> [str(one) for one in found.proven]
    ['region = north and age > 61']
    """
    y = np.asarray(outcome, dtype=np.bool_)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    if not len(y) == len(w) == columns.num_rows:
        raise ValueError(
            f"{columns.num_rows} rows of columns, {len(y)} outcomes, {len(w)} weights: equal numbers expected"
        )
    columns = pa.table({name: _plain(columns.column(name)) for name in columns.schema.names})
    clusters = Clusters.of(_codes(entity, len(y)), time, rows=len(y))
    rng = np.random.default_rng(seed)
    is_searched = (rng.permutation(clusters.entities.max(initial=-1) + 1) % 2 == 0)[clusters.entities]
    left_out: dict[str, str] = {}
    searched, proof = np.flatnonzero(is_searched & (w > 0)), np.flatnonzero(~is_searched & (w > 0))
    if len(searched) > MOST_SEARCHED:
        searched = np.sort(rng.choice(searched, MOST_SEARCHED, replace=False))
    proposed = _search(_Conditions.of(columns, searched, left_out), y[searched], w[searched], most)
    rate = float(np.average(y[proof], weights=w[proof])) if len(proof) else float("nan")
    records = _Proof(columns.take(pa.array(proof)), y[proof], w[proof], clusters.take(proof))
    slices = [one for conditions in proposed if (one := records.of(conditions)) is not None]
    found = tuple(_holm(slices, len(proposed)))
    return WeakSlices(len(proof), rate, error, found, left_out, clusters.stretch)


def holds(condition: Condition, columns: pa.Table | pa.RecordBatch) -> Bools:
    """Mask of the rows on which a condition holds, shape (rows,)."""
    name = condition.column
    is_length = name.startswith(_LENGTH) and name not in columns.schema.names
    column = columns.column(name.removeprefix(_LENGTH) if is_length else name)
    column = pc.utf8_length(column) if is_length else column
    if condition.operator == "is missing":
        return _bools(_is_missing(column))
    if condition.operator == "=":
        return _bools(pc.equal(column, pa.scalar(condition.value, column.type)))
    compared = pc.less_equal if condition.operator == "<=" else pc.greater
    return _bools(compared(column.cast(pa.float64(), safe=False), condition.value)) & ~_bools(
        _is_missing(column)
    )


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Conditions with a float32 indicator of the rows on which each holds, shape (rows, conditions)."""

    conditions: tuple[Condition, ...]
    rows: NDArray[np.float32]

    @classmethod
    def of(
        cls, columns: pa.Table | pa.RecordBatch, at: NDArray[np.intp], left_out: dict[str, str]
    ) -> "_Conditions":
        """Conditions of all columns on some rows; ``left_out`` receives the reasons for skipped columns."""
        table = columns.take(pa.array(at))
        found: list[Condition] = []
        for name in table.schema.names:
            try:
                found += _conditions_on(name, table.column(name))
            except ValueError as error:
                left_out[name] = str(error)
        held = [holds(condition, table) for condition in found]
        least = max(LEAST_ROWS // 2, LEAST_SHARE * len(at))
        kept = [number for number, rows in enumerate(held) if least <= rows.sum() <= len(at) - least]
        if len(kept) > MOST_CONDITIONS:
            kept = _evenly(kept, found, [min(rows.sum(), len(at) - rows.sum()) for rows in held])
            for name in {found[number].column for number in kept[MOST_CONDITIONS:]}:
                left_out.setdefault(name, f"some of its conditions: more than {MOST_CONDITIONS} in all")
            kept = sorted(kept[:MOST_CONDITIONS])
        rows = (
            np.stack([held[number] for number in kept], axis=1) if kept else np.zeros((len(at), 0), np.bool_)
        )
        return cls(tuple(found[number] for number in kept), rows.astype(np.float32))


def _evenly(kept: Sequence[int], found: Sequence[Condition], split: Sequence[int]) -> list[int]:
    """Conditions in turns of two per column, the most balanced first, columns with few conditions first.

    So many numeric columns do not displace a binary column.
    """
    turns: dict[str, int] = {}
    turn: dict[int, int] = {}
    for number in sorted(kept, key=lambda number: -split[number]):
        turn[number] = turns[found[number].column] = turns.get(found[number].column, -1) + 1
    return sorted(kept, key=lambda number: (turn[number] // 2, turns[found[number].column], -split[number]))


def _plain(column: Any) -> Any:
    """Column with plain values instead of dictionary or view encodings."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def _conditions_on(name: str, column: Any) -> Iterator[Condition]:
    """Conditions on a column; raises ValueError with the reason if there are none."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (is_text or is_number or pa.types.is_boolean(kind)):
        raise ValueError(f"{kind} is neither number, text nor truth value")
    yield Condition(name, "is missing")
    kinds = pc.value_counts(column.drop_null() if hasattr(column, "drop_null") else pc.drop_null(column))
    if is_number and not (pa.types.is_integer(kind) and len(kinds) <= MOST_VALUES):
        yield from _thresholds(name, column)
        return
    if len(kinds) > MOST_KINDS:
        if is_text:
            yield from _thresholds(_LENGTH + name, pc.utf8_length(column))
        return
    values, counts = kinds.field(0), kinds.field(1).to_numpy(zero_copy_only=False)
    for number in np.argsort(-counts, kind="stable")[:MOST_VALUES].tolist():
        yield Condition(name, "=", values[number].as_py())


def _thresholds(name: str, column: Any) -> Iterator[Condition]:
    values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    values = values[np.isfinite(values)]
    if len(values):
        for value in np.unique(np.quantile(values, _THRESHOLDS, method="lower")).tolist():
            yield Condition(name, "<=", value)
            yield Condition(name, ">", value)


def _search(known: _Conditions, y: Bools, w: Floats, most: int) -> list[tuple[Condition, ...]]:
    """Worst slices in sequence, each on the records that earlier ones leave."""
    chosen: list[tuple[Condition, ...]] = []
    left = np.ones(len(y), dtype=np.bool_)
    while len(chosen) < most and known.conditions:
        members, score = _worst(known.rows[left], y[left], w[left])
        if score < _SPLIT:
            break
        chosen.append(tuple(known.conditions[number] for number in members))
        left &= ~known.rows[:, members].all(axis=1)
    return chosen


def _worst(rows: NDArray[np.float32], y: Bools, w: Floats) -> tuple[list[int], float]:
    """Worst slice of one to three conditions, and its score."""
    sums = _Sums.of(y, w)
    if not 0 < sums.hit < sums.weight:
        return [], -np.inf
    weight, hit = w.astype(np.float32), (w * y).astype(np.float32)
    alone = weight @ rows, hit @ rows
    scores = sums.score(*alone)
    members, best = [int(np.argmax(scores))], float(scores.max())
    both = rows.T @ (rows * weight[:, None]), rows.T @ (rows * hit[:, None])
    # Within either of the two the other one must matter.
    splits = sums.score(*both, of=(alone[0][:, None], alone[1][:, None]))
    pairs = np.where(np.minimum(splits, splits.T) >= _SPLIT, sums.score(*both), -np.inf)
    first, second = np.triu_indices(len(pairs), 1)
    for at in np.argsort(-pairs[first, second], kind="stable")[:_BEAM]:
        pair = [int(first[at]), int(second[at])]
        score = float(pairs[pair[0], pair[1]])
        if score == -np.inf:
            break
        if score > best:
            members, best = pair, score
        inside = rows[:, pair].all(axis=1)
        of = float(weight[inside].sum()), float(hit[inside].sum())
        within = weight[inside] @ rows[inside], hit[inside] @ rows[inside]
        threes = np.where(sums.score(*within, of=of) >= _SPLIT, sums.score(*within), -np.inf)
        if threes.max() > best:
            members, best = [*pair, int(np.argmax(threes))], float(threes.max())
    return members, best


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over all searched records, for comparison with slices."""

    weight: float
    hit: float
    effective: float
    """Effective number of records per unit of weight."""

    @classmethod
    def of(cls, y: Bools, w: Floats) -> "_Sums":
        return cls(float(w.sum()), float((w * y).sum()), float(w.sum() / (w**2).sum()))

    def score(self, weight: NDArray[Any], hit: NDArray[Any], *, of: tuple[Any, Any] | None = None) -> Floats:
        """Standard errors by which slices are worse than the rest of ``of``; -inf for too small ones.

        ``weight`` and ``hit`` are the slices' sums, arrays of one shape.
        """
        whole, hits = (self.weight, self.hit) if of is None else of
        weight, hit = weight.astype(np.float64), hit.astype(np.float64)
        rest = whole - weight
        fits = (weight * self.effective >= LEAST_ROWS / 2) & (weight >= LEAST_SHARE * self.weight)
        fits = fits & (rest * self.effective >= LEAST_ROWS / 2)
        weight, rest = np.where(fits, weight, 1.0), np.where(fits, rest, 1.0)
        p = hits / np.maximum(whole, 1e-12)
        fits = fits & (p > 0) & (p < 1)
        p = np.where(fits, p, 0.5)
        error = np.sqrt(p * (1 - p) / self.effective * (1 / weight + 1 / rest))
        return np.where(fits, (hit / weight - (hits - hit) / rest) / error, -np.inf)


@dataclass(slots=True)
class _Proof:
    """Test records; those of earlier slices are removed."""

    table: Any
    y: Bools
    w: Floats
    clusters: Clusters

    def of(self, conditions: tuple[Condition, ...]) -> WeakSlice | None:
        """Figures of a slice with its unadjusted p-value; removes its records. None without records."""
        inside = np.logical_and.reduce([holds(condition, self.table) for condition in conditions])
        if not inside.any() or inside.all():
            return None
        sums = Sums.of(self.y, self.w, inside.astype(np.intp), 2, entities=self.clusters.entities)
        rates = shares(sums)
        rest, here = (Limits(*(each[[side]] for each in rates)) for side in (0, 1))
        chance, wider = _chance(self.y, self.w, self.clusters, inside)
        value, low, high = (float(each[0]) for each in differences(here, rest))
        low, high = max(value - wider * (value - low), -1.0), min(value + wider * (high - value), 1.0)
        rate, least, most = (float(each[1]) for each in rates)
        least, most = max(rate - wider * (rate - least), 0.0), min(rate + wider * (most - rate), 1.0)
        found = WeakSlice(
            conditions, int(inside.sum()), float(sums.weight[1] / sums.weight.sum()), rate, least, most,
            float(rates.value[0]), value, low, high, chance,
        )  # fmt: skip
        outside = ~inside
        self.table = self.table.filter(pa.array(outside))
        self.y, self.w = self.y[outside], self.w[outside]
        self.clusters = self.clusters.take(np.flatnonzero(outside))
        return found


def _chance(y: Bools, w: Floats, clusters: Clusters, inside: Bools) -> tuple[float, float]:
    """P-value of a slice's excess rate, and factor that widens its interval for stretches of time.

    The p-value is the largest of three: Student's test of the difference between the weighted rates, with the
    variance between entities and degrees of freedom by kurtosis; the same within stretches of time; and
    Fisher's exact test with the effective number of records, which decides if few hits are expected.
    """
    from scipy.stats import hypergeom, t

    w = w / w.mean()
    p = float(np.average(y, weights=w))
    if not 0.0 < p < 1.0:
        return 1.0, 1.0
    lever = np.where(inside, w / w[inside].sum(), -w / w[~inside].sum())
    value, residuals = float(lever @ y), lever * (y - p)
    own = _spread(residuals, clusters.entities)
    if own.variance <= 0:
        return 1.0, 1.0
    more, both = _in_time(y, w, inside, clusters) or (value, own)
    if clusters.stretches is not None and both is own:  # whole stretches are compared, as few as they are
        both = clusters.combined(lambda numbers: _spread(residuals, numbers))
        both = Scatter(both.variance, min(both.freedom, _spread(residuals, clusters.stretches).freedom))
    wider = np.sqrt(both.variance / own.variance) * t.ppf(0.975, both.freedom) / t.ppf(0.975, own.freedom)
    wider = max(1.0, float(wider))
    if value <= 0:
        return 1.0, wider
    spread = own.variance
    found = ((value, own), (more, both))
    by_spread = max(float(t.sf(by / np.sqrt(of.variance), of.freedom)) for by, of in found)
    # Records that say as much: of independent ones of equal weight the variance would be `spread`.
    part = float(w[inside].sum() / w.sum())
    n = min(len(y), p * (1 - p) / (spread * part * (1 - part)))
    whole, size = int(n), max(1, int(n * part))
    inside_hits = int(np.floor(np.average(y[inside], weights=w[inside]) * size))
    hits = max(inside_hits, int(np.ceil(p * whole)))
    exact = float(hypergeom.sf(inside_hits - 1, whole, min(hits, whole), size))
    return max(by_spread, exact), wider


def _in_time(y: Bools, w: Floats, inside: Bools, clusters: Clusters) -> tuple[float, Scatter] | None:
    """Difference between the rates within stretches of time, with its scatter.

    Effects common to a stretch cancel; the scatter is the variation of the difference between stretches. None
    if the slice consists mostly of whole stretches, or stretches are unknown.
    """
    stretches = clusters.stretches
    if stretches is None:
        return None
    weight = np.bincount(stretches, w)

    def within(values: NDArray[Any]) -> Floats:
        return np.asarray(values - (np.bincount(stretches, w * values) / weight)[stretches])

    x, rest = within(inside.astype(np.float64)), within(y.astype(np.float64))
    leverage = w * x * x
    total = float(leverage.sum())
    if total < _WITHIN * float(w @ np.square(inside - np.average(inside, weights=w))):
        return None
    more = float(w @ (x * rest)) / total
    scores = w * x * (rest - more * x) / total

    def spread(numbers: Numbers) -> Scatter:
        share = np.bincount(numbers, leverage) / total
        many = 1.0 / float(np.square(share).sum())
        if len(share) < 2 or many <= 1.0:
            return Scatter(np.inf, 1.0)
        variance = float(np.square(np.bincount(numbers, scores)).sum()) * many / (many - 1.0)
        return Scatter(variance, max(1.0, many - 1.0))

    return more, clusters.combined(spread)


def _spread(residuals: Floats, clusters: Numbers) -> Scatter:
    """Variance of the sum of residuals, with degrees of freedom from the clusters' shares in it."""
    square = np.bincount(clusters, residuals) ** 2
    total = float(square.sum())
    if len(square) < 2 or total <= 0.0:
        return Scatter(0.0, 1.0)
    freedom = max(1.0, total**2 / float((square**2).sum()) - 1)
    return Scatter(total * len(square) / (len(square) - 1), freedom)


def _holm(found: Sequence[WeakSlice], proposed: int) -> Iterator[WeakSlice]:
    """Slices with Holm-adjusted p-values, smallest first."""
    largest = 0.0
    for number, one in enumerate(sorted(found, key=lambda each: each.p)):
        largest = max(largest, min(1.0, one.p * (proposed - number)))
        yield replace(one, p=largest)


def _codes(entity: ArrayLike | None, rows: int) -> NDArray[np.intp]:
    """Index of each record's entity; a record without one is its own."""
    if entity is None:
        return np.arange(rows)
    values = entity if isinstance(entity, pa.Array | pa.ChunkedArray) else pa.array(entity, from_pandas=True)
    known = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    codes = known.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.float64)
    alone = np.isnan(codes)
    codes[alone] = np.nanmax(codes, initial=-1.0) + 1 + np.arange(alone.sum())
    return np.asarray(codes, dtype=np.intp)


def _is_missing(column: Any) -> Any:
    return pc.is_null(column, nan_is_null=True)


def _bools(column: Any) -> Bools:
    return np.asarray(pc.fill_null(column, fill_value=False), dtype=np.bool_)
