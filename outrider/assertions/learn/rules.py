"""Rules of single columns and between columns, with their evidence."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import library
from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.library.reading import arrow, earlier, numbers

from .proposal import Kind

FEW_NUMBERS, FEW_WORDS, FEW_IN_PAIRS = 10, 100, 50
"""Maximum number of distinct values of category columns: whole numbers, texts, and columns of pair rules."""
EXPECTED = 10.0
"""Minimum number of records expected with both values under independence, for a rule against the pair."""
NEVER = 1e-3
"""Tolerated share of that number: reference data has errors too."""
MOST_PAIRS = 30

Rule: TypeAlias = tuple[Kind, str, str, dict[str, Any], int, str]


Grouped: TypeAlias = Mapping[str, tuple[NDArray[np.int64], list[Any]]]
"""Code of each value, and the values, by category column."""


def kinds(batch: Batch, columns: Sequence[str]) -> tuple[list[str], Grouped]:
    """Numeric columns, and category columns with their values."""
    of = {column: kind_of(batch, column) for column in columns}
    numeric = [column for column in columns if of[column] == "number"]
    return numeric, {column: values_of(batch, column) for column in columns if of[column] == "category"}


def rules(
    batch: Batch, columns: list[str], numeric: list[str], grouped: Grouped, least: int, seed: int
) -> Iterator[Rule]:
    """Yield all rules that the records support. Only columns with at least ``least`` values are used."""
    yield from _present(batch, columns)
    for column in numeric:
        yield from _range(batch, column, least)
    for column, (_, known) in grouped.items():
        present = [value for value in known if value is not None]
        why = f"{column} is one of {len(present)} values"
        parameters = {"column": column, "allowed": present}
        yield "categories", f"{word_of(column)}_categories", "categories", parameters, batch.rows, why
    yield from _pairs(
        {name: found for name, found in grouped.items() if len(found[1]) <= FEW_IN_PAIRS}, least
    )
    yield from _orders(batch, numeric, least, seed)
    for column in grouped:
        if not column.startswith("inputs."):
            yield from _transitions(batch, column, least)


def kind_of(batch: Batch, column: str) -> Literal["number", "category", "other"]:
    """Kind of rules that a column allows."""
    found = arrow(batch, column)
    kind = found.type
    if pa.types.is_boolean(kind):
        return "category"
    distinct = 0 if is_tensor(kind) or pa.types.is_nested(kind) else found.drop_null().unique()
    size = 0 if isinstance(distinct, int) else len(distinct)
    if pa.types.is_integer(kind):
        few = FEW_IN_PAIRS if not column.startswith("inputs.") else FEW_NUMBERS
        return "category" if size <= few else "number"
    if pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "category" if 0 < size <= FEW_WORDS and size * 10 <= batch.rows else "other"
    return "other"


def values_of(batch: Batch, column: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Code of each value, and the sorted values, with None last."""
    found = arrow(batch, column).dictionary_encode()
    known = found.dictionary.to_pylist()
    order = sorted(range(len(known)), key=lambda index: (str(type(known[index])), known[index]))
    rank = np.zeros(len(known) + 1, dtype=np.int64)
    rank[order] = np.arange(len(known))
    rank[-1] = len(known)
    code = rank[found.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
    return code, [known[index] for index in order] + ([None] if found.null_count else [])


def _present(batch: Batch, columns: list[str]) -> Iterator[Rule]:
    whole = [column for column in columns if not library.required([column]).severities(batch).any()]
    for part in ("inputs", "outputs"):
        named = [column for column in whole if column.startswith(f"{part}.")]
        if named:
            why = f"{', '.join(named)} {'are' if len(named) > 1 else 'is'} never null"
            yield "nulls", f"no_null_{part}", "required", {"columns": named}, batch.rows, why
    floats = [column for column in columns if _has_floats(arrow(batch, column).type)]
    clean = [column for column in floats if not library.finite([column]).severities(batch).any()]
    if clean:
        why = f"{', '.join(clean)} {'hold' if len(clean) > 1 else 'holds'} no NaN and no infinity"
        yield "finite", "all_finite", "finite", {"columns": clean}, batch.rows, why


def _has_floats(kind: Any) -> bool:
    inner = kind.value_type if is_tensor(kind) or pa.types.is_list(kind) else kind
    return bool(pa.types.is_floating(inner))


def is_name(batch: Batch, column: str) -> bool:
    """True for whole numbers without repeats, such as ids. The next value will be new."""
    found = arrow(batch, column)
    known = len(found) - found.null_count
    return bool(pa.types.is_integer(found.type) and len(found.drop_null().unique()) > 0.99 * known)


def _range(batch: Batch, column: str, least: int) -> Iterator[Rule]:
    value = numbers(batch, column)
    value = value[np.isfinite(value)]
    if len(value) < least or value.min() == value.max():
        return  # one and the same value says nothing of the next
    if is_name(batch, column):
        return
    whole = pa.types.is_integer(arrow(batch, column).type)
    low, high = (int(edge) if whole else float(edge) for edge in (value.min(), value.max()))
    parameters = {"column": column, "low": low, "high": high}
    why = f"{column} is within {low:.6g} to {high:.6g}"
    yield "range", f"{word_of(column)}_range", "bounds", parameters, len(value), why


def _pairs(grouped: Mapping[str, tuple[NDArray[np.int64], list[Any]]], least: int) -> Iterator[Rule]:
    ranked: list[tuple[float, Rule]] = []
    for first, second in combinations(grouped, 2):
        (left, lefts), (right, rights) = grouped[first], grouped[second]
        counts = np.bincount(left * len(rights) + right, minlength=len(lefts) * len(rights))
        table = counts.reshape(len(lefts), len(rights)).astype(np.float64)
        expected = table.sum(axis=1)[:, None] * table.sum(axis=0) / len(left)
        never = (expected >= EXPECTED) & (table <= NEVER * expected)
        if not never.any():
            continue
        rule = (
            _determined(first, second, table, lefts, rights, least)
            or _determined(second, first, table.T, rights, lefts, least)
            or _excluded(first, second, np.where(never, expected, 0.0), lefts, rights, len(left))
        )
        ranked.append((float(expected[never].sum()), rule))
    ranked.sort(key=lambda one: -one[0])
    yield from (rule for _, rule in ranked[:MOST_PAIRS])


def _determined(
    first: str, second: str, table: NDArray[np.float64], firsts: list[Any], seconds: list[Any], least: int
) -> Rule | None:
    """Rule that ``first`` determines ``second``, if each frequent value of it has one value of ``second``."""
    rows = table.sum(axis=1)
    frequent = [row for row in np.flatnonzero(rows >= least) if firsts[row] is not None]
    top = table.argmax(axis=1)
    sure = all(rows[row] - table[row, top[row]] <= NEVER * rows[row] for row in frequent)
    covered = rows[frequent].sum() >= 0.99 * rows.sum()
    if not sure or not covered or len({top[row] for row in frequent}) < 2:
        return None
    mapping = [[firsts[row], seconds[top[row]]] for row in frequent]
    name, why = f"{word_of(first)}_determines_{word_of(second)}", f"{first} says what {second} is"
    parameters = {"first": first, "second": second, "mapping": mapping}
    return "determines", name, "determines", parameters, int(rows[frequent].sum()), why


def _excluded(
    first: str, second: str, missed: NDArray[np.float64], firsts: list[Any], seconds: list[Any], rows: int
) -> Rule:
    """Rule that pairs with ``missed`` > 0 (expected number of records under independence) never occur."""
    pairs = [[firsts[a], seconds[b]] for a, b in np.argwhere(missed > 0)]
    worst = np.unravel_index(np.argmax(missed), missed.shape)
    many = "1 pair never meets" if len(pairs) == 1 else f"{len(pairs)} pairs never meet"
    why = f"{first} and {second}: {many}, as {firsts[worst[0]]!r} with {seconds[worst[1]]!r}"
    parameters = {"first": first, "second": second, "pairs": pairs}
    return "pairs", f"{word_of(first)}_against_{word_of(second)}", "never_together", parameters, rows, why


def _orders(batch: Batch, numeric: list[str], least: int, seed: int) -> Iterator[Rule]:
    values = {column: numbers(batch, column) for column in numeric}
    rng = np.random.default_rng(seed)
    for lower, upper in permutations(numeric, 2):
        both = np.isfinite(values[lower]) & np.isfinite(values[upper])
        small, large = values[lower][both], values[upper][both]
        if len(small) < least or (small > large).mean() > NEVER or (small == large).all():
            continue
        # In another order of the records it must not hold: else the two ranges say it already.
        if (rng.permutation(small) > large).mean() < 0.05:
            continue
        parameters = {"lower": lower, "upper": upper}
        name = f"{word_of(lower)}_at_most_{word_of(upper)}"
        yield "order", name, "ordered", parameters, len(small), f"{lower} never exceeds {upper}"


def _transitions(batch: Batch, column: str, least: int) -> Iterator[Rule]:
    if arrow(batch, "entity").null_count == batch.rows:
        return
    view = batch.take(in_order(batch))
    code, known = values_of(view, column)
    before = earlier(view, "entity", 1)[:, 0]
    changed = (before >= 0) & (code != code[before])
    present = np.array([value is not None for value in known])
    changed &= present[code] & present[code[before]]
    if changed.sum() < least:
        return
    table = np.zeros((len(known), len(known)))
    np.add.at(table, (code[before[changed]], code[changed]), 1.0)
    expected = table.sum(axis=1)[:, None] * table.sum(axis=0) / table.sum()
    np.fill_diagonal(expected, 0.0)
    never = (expected >= EXPECTED) & (table <= NEVER * expected)
    if not never.any():
        return
    allowed = [[known[a], known[b]] for a, b in np.argwhere(table > 0) if not never[a, b]]
    worst = np.unravel_index(np.argmax(np.where(never, expected, 0)), never.shape)
    example = f"{known[worst[0]]!r} to {known[worst[1]]!r}"
    why = f"{column} changes in {len(allowed)} ways within an entity, never from {example}"
    parameters = {"column": column, "allowed": allowed}
    yield (
        "transitions",
        f"{word_of(column)}_transitions",
        "unseen_transition",
        parameters,
        int(changed.sum()),
        why,
    )


def in_order(batch: Batch) -> NDArray[np.intp]:
    """Row order by entity, then time."""
    entity = arrow(batch, "entity").dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order: NDArray[np.intp] = np.lexsort((batch.column("ts"), entity))
    return order


def word_of(column: str) -> str:
    """Short name of a column, valid inside an identifier."""
    word = re.sub(r"[^0-9A-Za-z_]", "_", column.partition(".")[2])
    return f"c{word}" if word[:1].isdigit() else word
