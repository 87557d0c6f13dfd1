import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.ledger.sketches import HOUR_US, HourlySketches, SketchRow, quantiles

RANKS = [0.05, 0.5, 0.95]


def batch(values: list[float | None]) -> Batch:
    return Batch.from_records([{"inputs": {"x": value, "name": "a"}} for value in values], model="m")


def test_quantiles_agree_with_numpy_within_the_stated_rank_error() -> None:
    values = np.random.default_rng(0).lognormal(size=50_000)
    sketches = HourlySketches()
    rows: list[SketchRow] = []
    for part in np.split(values, 50):
        rows = sketches.update(Batch.from_columns({"inputs.x": part}, model="m"), 0)
    for rank, value in zip(RANKS, quantiles(rows[0].payload, RANKS), strict=True):
        assert np.mean(values <= value) == pytest.approx(rank, abs=0.0133)


def test_a_restart_continues_the_hour() -> None:
    whole, first, second = HourlySketches(), HourlySketches(), HourlySketches()
    whole.update(batch([1.0, 2.0]), 10)
    expected = whole.update(batch([3.0, None]), 20)
    second.restore(first.update(batch([1.0, 2.0]), 10))
    (row,) = second.update(batch([3.0, None]), 20)
    assert (row.rows, row.nulls) == (expected[0].rows, expected[0].nulls) == (4, 1)
    assert quantiles(row.payload, RANKS) == quantiles(expected[0].payload, RANKS)


def test_each_hour_has_its_own_sketch_and_text_has_none() -> None:
    sketches = HourlySketches()
    sketches.update(batch([1.0]), 10)
    (row,) = sketches.update(batch([9.0]), HOUR_US + 10)
    assert (row.column, row.hour_us, row.rows) == ("inputs.x", HOUR_US, 1)
    assert quantiles(row.payload, [0.5]) == [9.0]


def test_a_column_without_values_has_no_quantiles() -> None:
    (row,) = HourlySketches().update(batch([None, 1.0]).take([0]), 0)
    assert np.isnan(quantiles(row.payload, RANKS)).all()
