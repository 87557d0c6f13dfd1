"""Predictor of recorded predictions for the suites' examples.

For a model that cannot be called from here: :func:`asked_by` gives the examples in order,
:func:`.prediction_files.read_predictions` reads the answers in the same order, and :func:`recorded` makes the
predictor.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.assertions.batch.columns import plain, row_hashes
from outrider.errors import ConfigError

if TYPE_CHECKING:
    from .suite import Suite

Columns = Mapping[str, NDArray[Any]]
CHECKED = ("suite", "test", "id")
"""Columns of a predictions file, besides ``inputs.*``, that identify the example of a row."""


def asked_by(suites: Sequence["Suite"], *, seed: int = 0) -> list[tuple[str, str, Batch]]:
    """Suite name, test name and examples of each test, in order.

    Only of tests with cases.
    """
    return [
        (suite.name, test.name, test.examples(seed=seed).in_order()[0])
        for suite in suites
        for test in suite.tests
        if test.cases is not None
    ]


def recorded(suites: Sequence["Suite"], columns: Columns, *, seed: int = 0) -> Predictor:
    """Predictor that returns recorded answers to the examples of ``suites``.

    ``columns`` have one row per example in the order of :func:`asked_by`; the columns ``inputs.*``,
    ``suite``, ``test`` and ``id``, if present, must match. Equal examples get their answers in file order.
    """
    import pandas as pd

    asked = asked_by(suites, seed=seed)
    rows = sum(batch.rows for _, _, batch in asked)
    given = len(next(iter(columns.values()))) if columns else 0
    if given != rows:
        raise ConfigError(
            f"{rows} predictions expected, one per example that the suites ask, got {given}; "
            "write the examples with `outrider test examples` (same suites, same seed) and predict those"
        )
    _check(asked, columns)
    outputs = {
        name.removeprefix("outputs."): values
        for name, values in columns.items()
        if name not in CHECKED and not name.startswith("inputs.")
    }
    if not outputs:
        raise ConfigError(f"a column of answers, such as label, expected beside {', '.join(columns)}")
    keys = np.concatenate([_keys(batch) for _, _, batch in asked]) if asked else np.zeros(0, np.uint64)
    order = np.argsort(keys, kind="stable")
    known = keys[order]
    uses = np.zeros(len(keys), dtype=np.intp)

    def predict(batch: Batch) -> Columns:
        wanted = _keys(batch)
        first = np.searchsorted(known, wanted)
        count = np.searchsorted(known, wanted, side="right") - first
        if (missing := np.flatnonzero(count == 0)).size:
            record = batch.slice(int(missing[0]), 1).to_records()[0]
            raise ValueError(
                f"no prediction for {str(record.get('inputs'))[:120]}: the file answers other examples; "
                "write them again with `outrider test examples` (same suites, same seed)"
            )
        nth = uses[first] + pd.Series(wanted).groupby(wanted).cumcount().to_numpy()
        picked = order[first + nth % count]
        np.add.at(uses, first, 1)
        return {name: values[picked] for name, values in outputs.items()}

    return predict


def _keys(batch: Batch) -> NDArray[np.uint64]:
    """Digest of each example's id and inputs; other columns of its test do not matter."""
    names = [name for name in batch.names if name == "id" or name.startswith("inputs.")]
    total = np.zeros(batch.rows, dtype=np.uint64)
    for name in names:
        total += row_hashes(batch.arrow(name), name)
    return total


def _check(asked: Sequence[tuple[str, str, Batch]], columns: Columns) -> None:
    start = 0
    for suite, test, batch in asked:
        names = {"suite": [suite] * batch.rows, "test": [test] * batch.rows}
        for name, values in columns.items():
            if name not in CHECKED and not name.startswith("inputs."):
                continue
            if name in names:
                expected: list[Any] = names[name]
            else:
                expected = plain(batch.arrow(name), name) if batch.has(name) else [None] * batch.rows
            given = values[start : start + batch.rows].tolist()
            for row, (one, other) in enumerate(zip(expected, given, strict=True)):
                if not _is_same(one, other):
                    raise ConfigError(
                        f"prediction {start + row + 1}: {name} {str(one)[:120]!r} expected "
                        f"(test {test!r}, example {batch.keys[row]!r}), got {str(other)[:120]!r}"
                    )
        start += batch.rows


def _is_same(expected: Any, given: Any) -> bool:
    if expected is None or expected == "":
        return given is None or given == "" or given != given
    return bool(expected == given) or str(expected) == str(given)  # a CSV file turns the id "7" into a number
