"""Column aggregates that a version inherits and extends by its new rows."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Aggregates: TypeAlias = dict[str, Any]
"""``rows``, and by column ``count nulls min max mean m2`` and ``of``: rows by value of a named set."""
NUMBERS: Mapping[str, str] = {
    "expect_column_max_to_be_between": "column.max",
    "expect_column_mean_to_be_between": "column.mean",
    "expect_column_min_to_be_between": "column.min",
    "expect_column_stdev_to_be_between": "column.standard_deviation",
    "expect_column_sum_to_be_between": "column.sum",
}
SETS = tuple(f"expect_column_distinct_values_to_{how}_set" for how in ("be_in", "equal", "contain"))
DIVERGENCE = "expect_column_kl_divergence_to_be_less_than"
ROW_COUNTS = ("expect_table_row_count_to_be_between", "expect_table_row_count_to_equal")
_OTHERS = "another value"


def named_values(item: Mapping[str, Any]) -> list[Any] | None:
    kwargs = item["kwargs"]
    if item["type"] in SETS:
        return list(kwargs.get("value_set") or ())
    partition = kwargs.get("partition_object")
    if item["type"] == DIVERGENCE and isinstance(partition, Mapping) and "values" in partition:
        return list(partition["values"])
    return None


def adds_up(item: Mapping[str, Any]) -> bool:
    if "row_condition" in item["kwargs"]:
        return False
    return item["type"] in (*NUMBERS, *ROW_COUNTS) or named_values(item) is not None


def aggregates(
    rows: int,
    columns: "Iterable[tuple[str, pd.Series[Any]]]",
    sets: Sequence[tuple[str, Sequence[Any]]] = (),
) -> Aggregates:
    from pandas.api.types import is_numeric_dtype

    found: dict[str, dict[str, Any]] = {}
    for name, series in columns:
        column: dict[str, Any] = {"nulls": int(series.isna().sum())}
        if is_numeric_dtype(series.dtype):
            column |= _moments(series.to_numpy(dtype=np.float64, na_value=np.nan))
        values_of = [values for named, values in sets if named == name]
        if values_of:
            column["of"] = _counted(series, values_of)
        found[name] = column
    return {"rows": rows, "columns": found}


def _moments(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    present = values[~np.isnan(values)]
    found: dict[str, Any] = {"count": len(present)}
    if len(present) and np.isfinite(present).all():
        mean = float(present.mean())
        m2 = float(np.square(present - mean).sum())
        found |= {"min": float(present.min()), "max": float(present.max()), "mean": mean, "m2": m2}
    return found


def _counted(series: "pd.Series[Any]", sets: Iterable[Sequence[Any]]) -> dict[str, list[int]]:
    """Rows of each value of each set, then of all other values."""
    counts = series.value_counts()
    total = int(counts.sum())
    there = {value: int(count) for value, count in counts.items()}
    named = {_key(values): [there.get(value, 0) for value in values] for values in sets}
    return {key: [*found, total - sum(found)] for key, found in named.items()}


def _key(values: Sequence[Any]) -> str:
    return json.dumps(list(values), default=str)


def merged(old: Aggregates, new: Aggregates, *, absent: Iterable[str] = ()) -> Aggregates:
    """Sum of aggregates; ``absent`` columns count as null in ``old``.

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm", 1979, eq. 2.1.
    """
    before = {name: _nulls(old["rows"], new["columns"][name]) for name in absent} | old["columns"]
    shared = before.keys() & new["columns"].keys()
    columns = {name: _merged(before[name], new["columns"][name]) for name in sorted(shared)}
    return {"rows": old["rows"] + new["rows"], "columns": columns}


def _nulls(rows: int, like: Mapping[str, Any]) -> dict[str, Any]:
    none = {"nulls": rows, "count": 0} if "count" in like else {"nulls": rows}
    return none | {"of": {key: [0] * len(found) for key, found in like.get("of", {}).items()}}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"nulls": old["nulls"] + new["nulls"]}
    if "count" in old and "count" in new:
        found["count"] = old["count"] + new["count"]
        empty = next((other for one, other in ((old, new), (new, old)) if not one["count"]), None)
        if empty is not None:
            found |= {key: empty[key] for key in ("min", "max", "mean", "m2") if key in empty}
        elif "mean" in old and "mean" in new:
            apart, share = new["mean"] - old["mean"], new["count"] / found["count"]
            found |= {
                "min": min(old["min"], new["min"]),
                "max": max(old["max"], new["max"]),
                "mean": old["mean"] + apart * share,
                "m2": old["m2"] + new["m2"] + apart * apart * share * old["count"],
            }
    ours, theirs = old.get("of", {}), new.get("of", {})
    if both := ours.keys() & theirs.keys():
        found["of"] = {
            key: [a + b for a, b in zip(ours[key], theirs[key], strict=True)] for key in sorted(both)
        }
    return found


def can_judge(state: Aggregates | None, item: Mapping[str, Any]) -> bool:
    if state is None or not adds_up(item):
        return False
    if item["type"] in ROW_COUNTS:
        return True
    column = state["columns"].get(item["kwargs"].get("column"))
    if column is None:
        return False
    values = named_values(item)
    if values is None:
        return "count" in column
    counts = column.get("of", {}).get(_key(values))
    # The library gives each other value its part of the weight: it would have to be known how many there are.
    return counts is not None and not (item["type"] == DIVERGENCE and counts[-1])


def metrics(state: Aggregates, item: Mapping[str, Any]) -> dict[str, Any]:
    if item["type"] in ROW_COUNTS:
        return {"table.row_count": state["rows"]}
    column = state["columns"][item["kwargs"]["column"]]
    values = named_values(item)
    if values is not None:
        return _set_metrics(item["type"], values, column["of"][_key(values)])
    if "mean" not in column:
        return {}
    count = column["count"]
    # As pandas: the deviation of a sample, unknown of one value.
    deviation = math.sqrt(column["m2"] / (count - 1)) if count > 1 else None
    known = {
        "column.max": column["max"],
        "column.mean": column["mean"],
        "column.min": column["min"],
        "column.standard_deviation": deviation,
        "column.sum": column["mean"] * count,
    }
    return {NUMBERS[item["type"]]: known[NUMBERS[item["type"]]]}


def _set_metrics(kind: str, values: Sequence[Any], counts: Sequence[int]) -> dict[str, Any]:
    if kind == DIVERGENCE:
        import pandas as pd

        seen = {value: count for value, count in zip(values, counts, strict=False) if count}
        series = pd.Series(seen, name="count", dtype="int64")
        return {"column.value_counts": series, "column_values.nonnull.count": sum(counts)}
    missing = [value for value, count in zip(values, counts, strict=False) if not count]
    others = [_OTHERS] if counts[-1] else []
    return {
        "column.distinct_values.not_in_set.count": len(others),
        "column.distinct_values.not_in_set": others,
        "column.distinct_values.missing_from_column.count": len(missing),
        "column.distinct_values.missing_from_column": missing,
    }


def class_mix(state: Aggregates, column: str, classes: Sequence[Any]) -> list[float] | None:
    counts = state["columns"].get(column, {}).get("of", {}).get(_key(classes))
    total = sum(counts or ())
    return [count / total for count in counts] if counts and total else None


def class_shift(old: Sequence[float], new: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(old, new, strict=True)) / 2


def range_growth(old: Mapping[str, Any], new: Mapping[str, Any]) -> float | None:
    """Growth in widths of the old range."""
    if "min" not in old or "min" not in new or old["max"] <= old["min"]:
        return None
    beyond = max(new["max"] - old["max"], old["min"] - new["min"], 0.0)
    return float(beyond / (old["max"] - old["min"]))
