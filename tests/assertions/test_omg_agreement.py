"""On generated and real frames the same records are flagged as by OMG's package, patched where it raises."""

import inspect
from collections.abc import Callable
from typing import Any

import model_assertions.consistency
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_assertions.per_row import PerRowAssertion

from benchmarks.assertions._omg import identifier_consistency, time_consistency
from outrider.assertions import Assertion, Batch, Checker, assertion
from tests.requirements import require_data


def patched() -> dict[str, Any]:
    """OMG's consistency assertions; it sorts a column in place, which current pandas refuses."""
    source = inspect.getsource(model_assertions.consistency)
    assert "group[self.timestamp].values\n" in source
    module: dict[str, Any] = {}
    exec(source.replace("].values\n", "].to_numpy(copy=True)\n"), module)
    return module


OMG = patched()


def rows(errors: list[Any]) -> list[int]:
    """Every record that an error names."""
    return sorted({int(row) for error in errors for row in (error if isinstance(error, list) else [error])})


def flagged(judge: Assertion, frame: pd.DataFrame) -> list[int]:
    batch = Batch.from_pandas(frame, model="m", inputs=[str(name) for name in frame.columns])
    return sorted(Checker([judge]).check(batch).row.tolist())


def by_time(frame: pd.DataFrame, timestamp: str) -> pd.DataFrame:
    """As OMG needs it: it names the record that stands where the one it means stands in order of time."""
    return frame.sort_values(timestamp, kind="stable")


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["van", "car", "bus"]), st.integers(0, 12)), max_size=30
    ),
    st.sampled_from([1, 2, 3, 4, 2.5]),
    st.integers(-1, 4),
)
def test_generated_frames_agree(records: list[tuple[int, str, int]], window: float, allowed: int) -> None:
    frame = pd.DataFrame(records, columns=["car", "label", "frame"]).astype(
        {"car": "int64", "frame": "int64"}
    )
    same = OMG["IdentifierConsistencyAssertion"]("car", "label")
    assert flagged(identifier_consistency("inputs.car", "inputs.label"), frame) == rows(
        same.check_errors(frame, frame.iloc[:, :0])
    )
    steady = OMG["TimeConsistencyAssertion"]("car", "frame", window=window, allowed_transitions=allowed)
    judge = time_consistency("inputs.car", "inputs.frame", window=window, allowed_transitions=allowed)
    assert flagged(judge, frame) == rows(steady.check_errors(by_time(frame, "frame"), None))


def young_and_sure(batch: Batch) -> Any:
    return (batch.column("outputs.score") > 0.9) & (batch.column("inputs.age") < 18)


RULES: list[tuple[Callable[[Any, Any], bool], Callable[[Batch], Any]]] = [
    (lambda i, _: abs(i["age"] - 60) > 60, lambda b: np.abs(b.column("inputs.age") - 60) > 60),
    (lambda _, o: o["score"] < 0.6, lambda b: b.column("outputs.score") < 0.6),
    (lambda i, o: o["score"] > 0.9 and i["age"] < 18, young_and_sure),
]


@given(st.lists(st.tuples(st.integers(-5, 130), st.floats(0, 1)), max_size=20))
def test_assertions_of_one_row_agree(records: list[tuple[int, float]]) -> None:
    inputs = pd.DataFrame({"age": [age for age, _ in records]}, dtype="int64")
    outputs = pd.DataFrame({"score": [score for _, score in records]}, dtype="float64")
    frame = pd.concat([inputs, outputs], axis=1)
    batch = Batch.from_pandas(frame, model="m", inputs=["age"], outputs=["score"])
    for theirs, ours in RULES:
        expected = PerRowAssertion(theirs).check_errors(inputs, outputs)

        def judge_one(record: Any, rule: Any = theirs) -> Any:
            return rule({"age": record["inputs.age"]}, {"score": record["outputs.score"]})

        by_record = assertion(per_record=True)(judge_one)
        for judge in (assertion(ours), by_record):
            assert Checker([judge]).check(batch).row.tolist() == expected


@pytest.mark.parametrize("data", ["mot15_pedestrians", "kitti_tracks"])
def test_real_tracks_agree(data: str) -> None:
    truth = pd.read_parquet(require_data(data) / "truth.parquet")
    truth = truth[truth["id"] >= 0].reset_index(drop=True)
    truth["track"] = pd.factorize(truth["sequence"] + "/" + truth["id"].astype(str))[0]
    # Errors as a detector makes them: some boxes are missing, some are called something else.
    rng = np.random.default_rng(0)
    names = truth["class_name"].unique()
    other = rng.random(len(truth)) < 0.01
    truth.loc[other, "class_name"] = rng.choice(np.append(names, "Tram"), int(other.sum()))
    frame = truth[rng.random(len(truth)) < 0.97].reset_index(drop=True)[["track", "class_name", "frame"]]
    same = OMG["IdentifierConsistencyAssertion"]("track", "class_name").check_errors(frame, frame.iloc[:, :0])
    found = flagged(identifier_consistency("inputs.track", "inputs.class_name"), frame)
    assert found == rows(same)
    assert len(found) > 20
    for window, allowed in ((3, 1), (6, 2)):
        steady = OMG["TimeConsistencyAssertion"]("track", "frame", window=window, allowed_transitions=allowed)
        judge = time_consistency("inputs.track", "inputs.frame", window=window, allowed_transitions=allowed)
        expected = rows(steady.check_errors(by_time(frame, "frame"), None))
        assert flagged(judge, frame) == expected
        assert expected


def test_records_without_identifier_or_value_say_nothing() -> None:
    frame = pd.DataFrame(
        {"car": ["a", None, "a", "b"], "label": ["x", "y", None, "x"], "frame": [1, 2, 3, 4]}
    )
    assert flagged(identifier_consistency("inputs.car", "inputs.label"), frame) == []
    assert flagged(time_consistency("inputs.car", "inputs.frame"), frame) == [0, 2]


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match=r"no column 'inputs\.track'"):
        flagged(identifier_consistency("inputs.track", "inputs.car"), pd.DataFrame({"car": [1]}))


def test_a_record_without_a_time_says_nothing_of_time() -> None:
    batch = Batch.from_columns({"inputs.a": ["x", "x", "x"], "inputs.t": [1, None, 3]}, model="m")
    assert time_consistency("inputs.a", "inputs.t").severities(batch).tolist() == [1.0, 0.0, 1.0]
