"""Training/serving skew: a record served with other features than in training."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import from_values

from .reading import Floats, arrow, values

if TYPE_CHECKING:
    import pandas as pd


def served_differs(
    training: Mapping[str, Any],
    *,
    key: str = "id",
    columns: Sequence[str] = (),
    tolerance: float = 1e-6,
    name: str | None = None,
    level: Level = "critical",
) -> Assertion:
    """Feature served with another value than in the training table.

    Rows are matched by id.

    Severity is the share of the compared features that differ. Ids that the table lacks do not fire.

    Parameters
    ----------
    training
        Columns of the training table by full name, including ``key``; later rows win.
    columns
        Features to compare; default: all but the key.
    tolerance
        Allowed relative difference of numbers.

    Finds
    -----
    Feature code written twice (once for training, once for serving), late or stale features, another
    time zone, unit or handling of nulls.

    Cost
    ----
    5.4 µs per record in blocks of 64, 1 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): hours a week served 5 too high: 1.00 (0.98 to
    1.00) of 161 found, 1.00 (0.98 to 1.00) of 161 flags right; 0 (0 to 0.45) flags per 1,000 records as
    they came.

    Examples
    --------
    >>> table = {"id": ["a", "b"], "inputs.age": [41, 30]}
    >>> served = Batch.from_columns({"id": ["a", "b", "c"], "inputs.age": [41, 31, 9]}, model="m")
    >>> served_differs(table).severities(served)
    array([0., 1., 0.])
    """
    import pandas as pd

    compared = tuple(columns) or tuple(column for column in training if column != key)
    if key not in training or not compared:
        raise ValueError(f"training needs the key {key!r} and at least one feature, got {list(training)}")
    wanted = {column: _plain(from_values(training[column])) for column in compared}
    keys = pd.Index([None if value is None else str(value) for value in _listed(training[key])], dtype=object)
    last = ~keys.duplicated(keep="last")
    place = np.flatnonzero(last)
    index = keys[last]
    # A digest in the closure makes the table part of the revision; arrays are not.
    digest = blake2b(repr(_texts(wanted, keys)).encode(), digest_size=8).hexdigest()

    def judge(batch: Batch) -> Floats:
        assert digest
        asked = np.array(
            [None if value is None else str(value) for value in values(batch, key)], dtype=object
        )
        found = index.get_indexer(pd.Index(asked, dtype=object))
        rows = np.flatnonzero((found >= 0) & (asked != np.array(None, dtype=object)))
        other = place[found[rows]]
        different = np.zeros(batch.rows)
        for column in compared:
            served = _plain(arrow(batch, column))
            different[rows] += _differs(served[rows], wanted[column][other], tolerance)
        return different / len(compared)

    return assertion(
        name=name or "served_differs",
        level=level,
        description=f"{', '.join(compared)} served otherwise than the training table has it.",
    )(judge)


def _plain(column: Any) -> NDArray[Any]:
    """Numbers as floats with NaN for null; other values as Python objects."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.asarray(
            column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64
        )
    plain = np.empty(len(column), dtype=object)
    plain[:] = column.to_pylist()
    return plain


def _listed(column: Any) -> list[Any]:
    listed: list[Any] = from_values(column).to_pylist()
    return listed


def _texts(wanted: Mapping[str, NDArray[Any]], keys: "pd.Index") -> list[tuple[str, list[str]]]:
    return [("key", [repr(key) for key in keys])] + [
        (name, [repr(value) for value in column.tolist()]) for name, column in wanted.items()
    ]


def _differs(served: NDArray[Any], wanted: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    if served.dtype == np.float64 and wanted.dtype == np.float64:
        absent = np.isnan(served) | np.isnan(wanted)
        with np.errstate(invalid="ignore"):
            far = np.abs(served - wanted) > tolerance * np.maximum(np.abs(wanted), 1.0)
        return np.asarray(np.where(absent, np.isnan(served) != np.isnan(wanted), far), dtype=np.bool_)
    # Of different types: equal only as values, or where both are missing.
    left, right = (_missing_as_none(side) for side in (served, wanted))
    return np.array([a != b for a, b in zip(left, right, strict=True)], dtype=np.bool_)


def _missing_as_none(column: NDArray[Any]) -> list[Any]:
    return [None if isinstance(value, float) and value != value else value for value in column.tolist()]
