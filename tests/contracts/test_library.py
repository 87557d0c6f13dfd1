"""What every assertion of the library must hold to, whichever family it is of."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch
from outrider.assertions.catalogue import entries
from outrider.assertions.checker import severities_of
from outrider.assertions.library.reading import codes
from outrider.assertions.windows.state import WindowState

from .library_cases import CASES, Case, revisions, traffic

each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return traffic()


def test_every_assertion_of_these_families_has_a_case() -> None:
    families = {entry.family for entry in entries() if entry.name in CASES}
    assert {entry.name for entry in entries() if entry.family in families} == set(CASES)


@each
def test_it_fires_on_some_records_and_severities_are_finite(case: Case, batch: Batch) -> None:
    severity = severities_of(case.make(), batch)
    assert severity.shape == (batch.rows,)
    assert np.isfinite(severity).all()
    assert (severity >= 0).all()
    assert 0 < np.count_nonzero(severity) < batch.rows


@each
def test_an_empty_batch_and_one_record_are_judged(case: Case, batch: Batch) -> None:
    judge = case.make()
    assert severities_of(judge, batch.slice(0, 0)).shape == (0,)
    assert np.asarray(judge(batch.slice(0, 0))).shape == (0,)
    assert all(severities_of(judge, batch.slice(row, 1)).shape == (1,) for row in range(4))


@each
def test_nulls_and_absent_columns_do_not_fire_unless_they_are_what_is_sought(
    case: Case, batch: Batch
) -> None:
    table = batch.to_arrow()
    kept = {"id", "ts", "received", "entity"}
    nulls = {
        name: table.column(name) if name in kept else pa.nulls(batch.rows, table.schema.field(name).type)
        for name in batch.names
    }
    same = np.full(batch.rows, np.datetime64("2026-01-05", "us"))
    empty = Batch.from_columns(nulls | {"ts": same}, model="m")
    bare = Batch.from_columns({"id": batch.keys, "ts": same}, model="m")
    for missing in (empty, bare):
        assert severities_of(case.make(), missing).any() == case.fires_on_nulls


@each
def test_judging_twice_gives_the_same_and_changes_nothing(case: Case, batch: Batch) -> None:
    before = batch.to_ipc()
    first = severities_of(case.make(), batch)
    assert first.tobytes() == severities_of(case.make(), batch).tobytes()
    assert batch.to_ipc() == before


@each
def test_any_split_of_the_stream_gives_the_same_severities(case: Case, batch: Batch) -> None:
    judge = case.make()
    whole = severities_of(judge, batch)
    rng = np.random.default_rng(1)
    for size in (1, 3, 40):
        cuts = sorted(int(cut) for cut in rng.choice(batch.rows, size))
        assert _in_pieces(judge, batch, cuts).tobytes() == whole.tobytes()


@each
def test_a_changed_parameter_is_another_revision(case: Case) -> None:
    assert case.make().revision == case.make().revision
    assert case.make().revision != case.changed().revision


def test_revisions_are_the_same_in_another_process() -> None:
    code = "import json; from tests.contracts.library_cases import revisions; print(json.dumps(revisions()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == revisions()


def _in_pieces(judge: Assertion, batch: Batch, cuts: list[int]) -> NDArray[np.float64]:
    edges = [0, *cuts, batch.rows]
    pieces = [batch.slice(start, stop - start) for start, stop in pairwise(edges)]
    if judge.window is None:
        return np.concatenate([judge.severities(piece) for piece in pieces])
    state, found = WindowState(judge.window), []
    for piece in pieces:
        severity = np.zeros(piece.rows)
        for view in state.update(piece):
            new = view.batch.is_new
            severity[view.positions[new]] = judge.severities(view.batch)[new]
        found.append(severity)
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["a", None, "b", "z"], ["b", "a", "b"]),
        (["a", None, "b", "z"], ["b", None]),
        ([1, 2, None, 4], [4.0, 2]),
        ([1.5, None, 2.0, float("nan")], [2, 1.5]),
        ([True, False, None, True], [1]),
        (["a", None, "b", "z"], [1, 2]),
        (["a", None, "b", "z"], ["a", 2]),
        ([None, None, None, None], ["a"]),
        (["a", None, "b", "z"], []),
    ],
)
def test_codes_of_few_values_and_of_many_are_the_same(values: list[object], wanted: list[object]) -> None:
    few = codes(pa.array(values), wanted)
    many = codes(pa.array(values * 100), wanted)
    assert many.tolist() == few.tolist() * 100
    assert few.tolist() == [wanted.index(value) if value in wanted else -1 for value in values]
