import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from outrider.assertions.batch.columns import tensor_array
from outrider.dataops.improvement.gate import error_of
from outrider.dataops.improvement.row_tries import count_try, row_keys, rows_to_judge_by, tries_of
from outrider.dataops.state.database import write
from tests.databases import migrated


def rows(first: int, count: int, prefix: str = "r") -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {"id": [f"{prefix}{n}" for n in numbers], "inputs.x": numbers, "label.label": numbers % 2}
    )


def test_tries_belong_to_the_inputs_whatever_a_row_is_called_and_labelled(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    with write(engine) as connection:
        keys = row_keys(connection, rows(0, 30))
        count_try(connection, "m", keys)
        count_try(connection, "m", [*keys[:10], keys[0]])
        other = rows(5, 40, "other").set_column(2, "label.label", pa.array([7] * 40))
        assert (
            tries_of(connection, "m", row_keys(connection, other)).tolist() == [2] * 5 + [1] * 20 + [0] * 15
        )
        assert not tries_of(connection, "another", keys).any()
    engine.dispose()


def test_no_further_column_order_or_width_of_numbers_makes_a_row_fresh(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    reals, lists = np.random.default_rng(0).normal(size=50), np.random.default_rng(1).normal(size=(50, 3))
    table = pa.table({"inputs.x": reals, "inputs.v": lists.tolist(), "inputs.k": np.arange(50)})
    tensor = tensor_array(lists.astype(np.float32))
    narrow = pa.table({"inputs.k": np.arange(50.0), "inputs.v": tensor, "inputs.x": reals.astype(np.float32)})
    padded = narrow.append_column("inputs.note", pa.array(["new"] * 50))
    fed = ("inputs.x", "inputs.v", "inputs.k")
    with write(engine) as connection:
        keys = row_keys(connection, table, fed)
        assert row_keys(connection, narrow, fed) == row_keys(connection, padded, fed) == keys
        assert row_keys(connection, narrow) == keys
        assert row_keys(connection, padded) != keys
        assert len(row_keys(connection, pa.table({"id": ["a", "b"]}), fed)) == 2
    assert len(set(keys)) == 50
    engine.dispose()


@pytest.mark.parametrize(
    ("counts", "most"),
    [({0: 100}, 0), ({1: 300, 0: 100}, 1), ({40: 300, 0: 250}, 0), ({40: 3000, 0: 250}, 40), ({}, 0)],
)
def test_rows_with_the_narrowest_bounds_judge(counts: dict[int, int], most: int) -> None:
    tries = np.repeat(list(counts), list(counts.values())).astype(np.int64)
    chosen = rows_to_judge_by(tries)
    assert chosen.tolist() == (tries <= most).tolist()
    widths = {
        k: norm.isf(error_of(k + 1)) / math.sqrt(sum(n for tried, n in counts.items() if tried <= k))
        for k in counts
    }
    assert not counts or min(widths, key=widths.__getitem__) == most
