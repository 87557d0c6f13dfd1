"""Columns of every kind, held against every other, end in a verdict or a sentence."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from outrider.assertions.drift import drift_report

ROWS = 300
NUMBERS = np.random.default_rng(0).random(ROWS)
WORDS = ["p", "q", None] * 100
KINDS: dict[str, Any] = {
    "double": NUMBERS,
    "float": NUMBERS.astype(np.float32),
    "half": NUMBERS.astype(np.float16),
    "integer": np.arange(ROWS),
    "nullable": pd.Series([1, None, 3] * 100, dtype="Int64"),
    "truth": np.arange(ROWS) % 2 == 0,
    "nullable truth": pd.Series([True, None, False] * 100, dtype="boolean"),
    "huge": np.where(np.arange(ROWS) % 2, 1e308, -1e308),
    "tiny": 5e-324 * np.arange(ROWS),
    "infinite": np.where(np.arange(ROWS) % 2, np.inf, 1.0),
    "decimal": [Decimal("1.5"), Decimal("2.5"), None] * 100,
    "words": WORDS,
    "objects": pd.Series(WORDS, dtype=object),
    "category": pd.Categorical(WORDS),
    "whole category": pd.Categorical([1, 2, 3] * 100),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "whole dictionary": pa.array([1, 2, None] * 100).dictionary_encode(),
    "view": pa.array(WORDS, pa.string_view()),
    "chunks": pa.chunked_array([pa.array(["a", "b"] * 75), pa.array(["a", "c"] * 75)]),
    "identifiers": [f"id{number}" for number in range(ROWS)],
    "constant": np.ones(ROWS),
    "nothing": [None] * ROWS,
    "times": pd.date_range("2026-01-01", periods=ROWS),
    "vectors": [[1.0, 2.0]] * ROWS,
    "ragged": [[1.0], [1.0, 2.0], None] * 100,
    "nested": [{"a": 1}] * ROWS,
}


@pytest.mark.parametrize("before", KINDS)
def test_every_kind_meets_every_kind(before: str) -> None:
    for now in KINDS:
        for labels in ((), ("x",)):
            found = drift_report({"x": KINDS[before]}, {"x": KINDS[now]}, labels=labels)
            assert len(found.columns) + len(found.ignored) == 1
            assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
            if before == now:
                assert not found.is_drift


@pytest.mark.parametrize("kind", KINDS)
def test_entities_and_weights_of_every_kind_are_taken_or_refused(kind: str) -> None:
    data = {"x": NUMBERS, "by": KINDS[kind]}
    for by in ({"entity": "by"}, {"weight": "by"}):
        try:
            found = drift_report(data, data, entity=by.get("entity"), weight=by.get("weight"))
        except ValueError as error:
            refused = str(error)
        else:
            refused = "expected, found nothing wrong"
            assert not found.is_drift
        assert "expected, found" in refused
