"""What a model may answer, and what it costs when it answers something else."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.monitor.engine.asks import Ask, Poison, again_of
from outrider.monitor.engine.asks import AskAnswer as EngineAnswer
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.predictors import PredictorEngine
from outrider.monitor.worker.inference import InferenceRequest, Predictions
from outrider.monitor.worker.shadow_versions import ShadowVersions

ROWS = Batch.from_columns({"inputs.x": np.arange(8.0)}, model="m")
Answer = Callable[[Batch], dict[str, Any]]


def answered(answer: Answer, batch: Batch = ROWS) -> EngineAnswer:
    engine = PredictorEngine()
    engine.add(("m", "1"), answer)
    engine.submit(Ask(1, "m", ("1",), batch))
    (found,) = engine.step()
    return found


def without_5(values: Callable[[float], Any]) -> Answer:
    def answer(batch: Batch) -> dict[str, Any]:
        x = batch.column("inputs.x")
        assert not (x == 5).any(), "five"
        return {"label": np.array([values(value) for value in x])}

    return answer


@pytest.mark.parametrize("values", [lambda x: "ham" if x < 4 else "spammy", lambda x: 0 if x < 4 else 0.5])
def test_answers_beside_a_poisoned_record_are_as_without_it(values: Callable[[float], Any]) -> None:
    found = answered(without_5(values))
    assert found.outputs is not None
    assert [record.row for record in found.poison] == [5]
    well = [0, 1, 2, 3, 4, 6, 7]
    assert found.outputs["label"][well].tolist() == [values(x) for x in well]


@pytest.mark.parametrize(
    "label",
    [
        np.array(["a", 1] * 4, dtype=object),
        np.zeros(8, dtype=complex),
        np.zeros((8, 0)),
        np.zeros(8, dtype=np.longdouble),
    ],
)
def test_answers_that_no_column_can_hold_are_the_models_failure(label: Any) -> None:
    found = answered(lambda batch: {"label": label[batch.column("inputs.x").astype(int)]}, ROWS.slice(0, 2))
    assert found.outputs is None
    versions = ShadowVersions("m", cast(EngineGroups, NoEngines()), clock=lambda: 0.0)
    versions.keep("1", [])
    versions.loaded("1", "")
    for _ in range(3):
        assert versions.versions == ["1"]
        versions.answered("1", found)
    assert versions.versions == []
    assert versions.failures == {"1": found.failure}


def test_parts_that_do_not_fit_together_are_the_models_failure() -> None:
    def answer(batch: Batch) -> dict[str, Any]:
        x = batch.column("inputs.x")
        assert not (x == 5).any(), "five"
        return {"label": x} if batch.rows > 1 else {"score": x}

    found = answered(answer)
    assert (found.outputs, found.poison) == (None, ())


class NoEngines:
    """Loads nothing, answers nothing."""

    def load(self, name: tuple[str, str]) -> None:
        """Nothing to do."""

    def unload(self, name: tuple[str, str]) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    ("failure", "is_out"),
    [("ServerError: http://far gave no answer within 2 s", False), ("ValueError: 3", True)],
)
def test_a_model_elsewhere_that_gives_no_answer_is_asked_again(failure: str, is_out: bool) -> None:
    versions = ShadowVersions("m", cast(EngineGroups, NoEngines()), clock=lambda: 0.0)
    versions.keep("1", ["far"])
    versions.loaded("far", "")
    for number in range(10):
        versions.answered("far", EngineAnswer(number, "far", None, failure=failure))
    assert versions.is_asked("far") is not is_out


def test_second_answers_keep_to_their_records_and_those_that_raise_have_none() -> None:
    flight = InferenceRequest(1, ("1",), (1, 4, 5))
    flight.answers["1"] = EngineAnswer(1, "1", {"label": np.arange(6)})
    assert not flight.has("1")
    twice = {"label": np.array([10, 40, 50])}
    flight.answers[again_of("1")] = EngineAnswer(1, again_of("1"), twice, (Poison(1, "in this shape"),))
    assert flight.has("1")
    said = Predictions.of(flight, "1")
    assert said.again is not None
    assert (said.again["label"].tolist(), said.again_rows.tolist()) == ([10, 50], [1, 5])
    part = said.take(np.array([2, 4, 5]))
    assert part.outputs is not None
    assert part.again is not None
    assert part.outputs["label"].tolist() == [2, 4, 5]
    assert (part.again["label"].tolist(), part.again_rows.tolist()) == ([50], [2])
    flight.answers[again_of("1")] = EngineAnswer(1, again_of("1"), None, failure="its process ended")
    assert Predictions.of(flight, "1").again is None


def test_a_version_that_cannot_be_loaded_leaves_no_process_behind() -> None:
    class Counted(NoEngines):
        def unload(self, name: tuple[str, str]) -> None:
            gone.append(name)

    gone: list[tuple[str, str]] = []
    versions = ShadowVersions("m", cast(EngineGroups, Counted()), clock=lambda: 0.0)
    versions.keep("1", [])
    versions.loaded("1", "no such file")
    assert gone == [("m", "1")]
    assert versions.failures == {"1": "no such file"}
