"""The engine: who is answered, in which order, in which batches, and what a bad model costs the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.asks import Ask, Priority, again_of
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.executor import LoadedVersion

from .exact import SOURCE, Sums, ask, drain, engine_with, records, together, values_of

ONES = np.ones((6, 3))


def counted(rows: int, start: int = 1) -> np.ndarray:
    return np.arange(start, start + rows, dtype=np.float32)[:, None]


def test_what_is_queued_goes_into_one_pass_up_to_the_best_batch() -> None:
    model = Sums()
    engine = engine_with(model)
    for number in range(5):
        engine.submit(ask(number, counted(3, number)))
    found = {answer.number: values_of(answer) for answer in drain(engine)}
    assert found == {n: [n, n + 1, n + 2] for n in range(5)}
    assert [shape[0] for shape in model.passes] == [8, 7]


def test_rows_of_like_length_meet_whoever_asked_and_come_back_in_order() -> None:
    model = Sums(is_ragged=True)
    engine = engine_with(model, batch_rows=4)
    short, long = [1, 2, *[0] * 30], [1] * 32
    engine.submit(ask(1, [long, short, long, short]))
    engine.submit(ask(2, [short, long, short, long]))
    assert {a.number: values_of(a) for a in drain(engine)} == {1: [32, 3, 32, 3], 2: [3, 32, 3, 32]}
    assert sorted(model.passes) == [(4, 2), (4, 32)]


def test_live_records_go_before_tests_and_those_before_a_backfill() -> None:
    engine = engine_with(Sums())
    engine.submit(ask(1, ONES, priority=Priority.BACKFILL))
    engine.submit(ask(2, np.ones((30, 3)), priority=Priority.TEST))
    assert engine.step() == []  # a pass of the test
    engine.submit(ask(3, ONES))
    engine.submit(ask(4, ONES))
    assert [answer.number for answer in drain(engine)] == [3, 4, 2, 1]


def test_a_backfill_is_taken_along_where_a_pass_has_room() -> None:
    model = Sums()
    engine = engine_with(model)
    engine.submit(ask(1, np.ones((2, 3)), priority=Priority.BACKFILL))
    engine.submit(ask(2, ONES))
    assert [answer.number for answer in engine.step()] == [2, 1]
    assert model.passes == [(8, 3)]


def test_several_versions_answer_one_ask_and_an_unknown_one_says_so() -> None:
    engine = engine_with(Sums(), Sums(2.0))
    engine.submit(ask(1, ONES, "1", "2", "3"))
    found = {answer.version: answer for answer in drain(engine)}
    assert values_of(found["1"]) == [3.0] * 6
    assert values_of(found["2"]) == [6.0] * 6
    assert found["3"].outputs is None
    assert found["3"].failure == "not_loaded: m 3"


@pytest.mark.parametrize(("rows", "beside"), [(1, 0), (2, 0), (5, 0), (8, 0), (20, 0), (5, 2)])
def test_the_second_answer_is_made_in_batches_of_another_shape(rows: int, beside: int) -> None:
    stood: list[dict[float, int]] = []
    model = Sums(fails=lambda x: stood.append(dict.fromkeys(x[:, 0].tolist(), len(x))))
    engine = engine_with(model)
    engine.submit(ask(1, counted(rows), again=range(rows)))
    if beside:
        engine.submit(ask(2, counted(beside, 100)))
    found = {answer.version: answer for answer in drain(engine) if answer.number == 1}
    assert values_of(found["1"]) == values_of(found[again_of("1")]) == counted(rows)[:, 0].tolist()
    for record in range(1, rows + 1):
        first, second = [shapes[record] for shapes in stood if record in shapes]
        assert first != second


@pytest.mark.parametrize("is_mixed", [False, True])
def test_versions_that_run_together_are_fed_as_their_executor_wants_them(is_mixed: bool) -> None:
    engine = engine_with(Sums(), Sums(2.0), Sums(3.0), plan=together(is_mixed), batch_rows=64)
    engine.submit(ask(1, ONES, "3", "1", again=(1, 4)))
    engine.submit(ask(2, 2 * ONES, "2"))
    engine.submit(ask(3, 3 * ONES, "1", "3"))
    found = {(a.number, a.version): values_of(a)[0] for a in drain(engine)}
    assert found == {
        (1, "3"): 9,
        (1, "1"): 3,
        (1, again_of("3")): 9,
        (1, again_of("1")): 3,
        (2, "2"): 12,
        (3, "1"): 9,
        (3, "3"): 27,
    }
    (stats,) = engine.stats
    assert stats.counts.trunk_forwards == 2
    assert stats.counts.head_forwards == 5
    assert stats.counts.again_rows == (4 if is_mixed else 2)
    assert stats.counts.rows == (34 if is_mixed else 20)
    assert stats.counts.head_rows >= 34


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_version_that_raises_costs_those_beside_it_nothing(is_mixed: bool) -> None:
    def broken(_x: torch.Tensor) -> None:
        raise ArithmeticError("broken")

    engine = engine_with(Sums(), Sums(fails=broken), plan=together(is_mixed))
    for number in range(4):
        engine.submit(ask(number, counted(40), "1", "2"))
    answers = drain(engine)
    good = [answer for answer in answers if answer.version == "1"]
    bad = [answer for answer in answers if answer.version == "2"]
    assert [values_of(answer) for answer in good] == [counted(40)[:, 0].tolist()] * 4
    assert {answer.failure for answer in bad} == {"ArithmeticError: broken"}
    assert all(answer.outputs is None and not answer.poison for answer in bad)


def test_a_poisoned_record_is_found_and_the_others_are_answered() -> None:
    engine = engine_with(Sums())
    values = counted(20)
    values[[7, 12]] = 66
    engine.submit(ask(1, values, again=range(20)))
    engine.submit(ask(2, counted(5)))
    found = {(answer.number, answer.version): answer for answer in drain(engine)}
    assert values_of(found[2, "1"]) == [1, 2, 3, 4, 5]
    for version in ("1", again_of("1")):
        answer = found[1, version]
        assert [poison.row for poison in answer.poison] == [7, 12]
        assert answer.poison[0].detail == "AssertionError: sixty-six"
        well = [row for row in range(20) if row not in (7, 12)]
        assert np.array(values_of(answer))[well].tolist() == (counted(20)[well, 0]).tolist()


def test_a_record_that_cannot_be_encoded_is_poisoned() -> None:
    engine = engine_with(Sums(is_ragged=True))
    engine.submit(ask(1, [[1, 1], [55, 1], [2, 0]], again=range(3)))
    for answer in drain(engine):
        assert [poison.row for poison in answer.poison] == [1]
        assert values_of(answer)[::2] == [2, 2]


def test_records_that_cannot_be_encoded_at_all_are_the_versions_failure() -> None:
    engine = engine_with(Sums())
    engine.submit(
        Ask(1, "m", ("1",), Batch.from_columns({"inputs.y": np.arange(3)}, model="m"), again=(0, 2))
    )
    assert {(a.version, a.failure.split(":")[0]) for a in drain(engine)} == {
        ("1", "KeyError"),
        (again_of("1"), "KeyError"),
    }


def test_a_model_that_raises_on_everything_is_told_after_few_passes() -> None:
    def broken(_x: torch.Tensor) -> None:
        raise ArithmeticError("broken")

    model = Sums(fails=broken)
    engine = engine_with(model, batch_rows=1024)
    engine.submit(ask(1, np.ones((1024, 1))))
    assert [answer.failure for answer in drain(engine)] == ["ArithmeticError: broken"]
    assert len(model.passes) < 160


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (lambda x: {"out": x[:-1, 0]}, "first dimension 6 expected"),
        (lambda x: {"out": x[:, 0].tolist()}, "first dimension 6 expected, got list"),
        (lambda x: {"out": x[:, 0] * torch.nan}, "outputs.value: no finite number for 6 records"),
        (lambda x: {"other": x[:, 0]}, "KeyError: 'out'"),
    ],
)
def test_answers_that_cannot_be_read_are_the_versions_failure(answers: Any, says: str) -> None:
    model = Sums()
    model.run = lambda tensors: answers(tensors["x"])  # type: ignore[method-assign]
    engine = engine_with(model, Sums())
    engine.submit(ask(1, ONES, "1", "2"))
    found = {answer.version: answer for answer in drain(engine)}
    assert says in found["1"].failure
    assert values_of(found["2"]) == [3.0] * 6


def test_no_number_where_none_was_given_is_not_the_models_failure() -> None:
    engine = engine_with(Sums())
    engine.submit(ask(1, [[np.nan, 1.0]]))
    engine.submit(ask(2, [[77.0, 1.0], [1.0, 1.0]]))
    found = {answer.number: answer for answer in drain(engine)}
    assert np.isnan(values_of(found[1])).all()
    assert np.isnan(values_of(found[2])).tolist() == [True, False]


def limited(rows: int) -> Any:
    def fails(x: torch.Tensor) -> None:
        if len(x) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return fails


def test_memory_that_is_not_enough_halves_the_batch_and_is_remembered() -> None:
    model = Sums(fails=limited(3))
    engine = engine_with(model)
    engine.submit(ask(1, counted(20)))
    assert [values_of(answer) for answer in drain(engine)] == [counted(20)[:, 0].tolist()]
    assert [shape[0] for shape in model.passes[:3]] == [8, 4, 2]
    model.passes.clear()
    engine.submit(ask(2, counted(20)))
    drain(engine)
    assert {shape[0] for shape in model.passes} == {2}


def test_more_is_tried_again_after_many_passes() -> None:
    model = Sums(fails=limited(4))
    engine = engine_with(model)
    engine.submit(ask(1, counted(8)))
    drain(engine)
    model.fails = lambda _x: None
    for number in range(300):
        engine.submit(ask(number, counted(8)))
    drain(engine)
    assert model.passes[-1][0] == 8


def test_a_record_that_does_not_fit_into_memory_is_poisoned() -> None:
    def fails(x: torch.Tensor) -> None:
        if (x == 5).any():
            raise MemoryError("too large")

    engine = engine_with(Sums(fails=fails))
    engine.submit(ask(1, counted(20)))
    (answer,) = drain(engine)
    assert [(p.row, p.detail) for p in answer.poison] == [(4, "MemoryError: too large")]


def test_a_broken_device_ends_the_step() -> None:
    def fails(_x: torch.Tensor) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    engine = engine_with(Sums(fails=fails))
    engine.submit(ask(1, ONES))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        engine.step()


def test_asks_of_a_function_are_joined_where_their_columns_are_alike() -> None:
    calls: list[int] = []

    def double(batch: Batch) -> dict[str, Any]:
        calls.append(batch.rows)
        x = batch.tensor("inputs.x")
        assert not (x == 66).any(), "sixty-six"
        return {"value": 2 * x[:, 0], "label": np.array([f"n{v:.0f}" for v in x[:, 0]], dtype=object)}

    engine = engine_with(double, batch_rows=64)
    engine.submit(ask(1, counted(3)))
    engine.submit(ask(2, [[1, 2]]))
    engine.submit(ask(3, counted(4), again=range(4)))
    found = {(answer.number, answer.version): answer for answer in drain(engine)}
    assert values_of(found[3, "1"]) == values_of(found[3, again_of("1")]) == [2, 4, 6, 8]
    assert found[1, "1"].outputs is not None
    assert found[1, "1"].outputs["label"].tolist() == ["n1", "n2", "n3"]
    assert calls == [7, 1, 4]
    engine.submit(ask(4, [[1], [66], [3]]))
    (answer,) = drain(engine)
    assert [poison.row for poison in answer.poison] == [1]
    assert values_of(answer)[::2] == [2, 6]


def test_a_swap_between_steps_answers_who_asked_before_by_the_old_one() -> None:
    engine = engine_with(Sums(), batch_rows=4)
    engine.submit(ask(1, counted(10)))
    engine.step()
    engine.add(LoadedVersion(("m", "1"), SOURCE, Sums(10.0)))
    engine.submit(ask(2, counted(2)))
    found = {answer.number: values_of(answer) for answer in drain(engine)}
    assert found == {1: counted(10)[:, 0].tolist(), 2: [10, 20]}
    assert len(engine.stats) == 1
    engine.submit(ask(3, counted(2)))
    engine.unload(("m", "1"))
    engine.submit(ask(4, counted(2)))
    answers = {answer.number: answer for answer in drain(engine)}
    assert values_of(answers[3]) == [10, 20]
    assert answers[4].failure.startswith("not_loaded")
    assert engine.stats == []


def test_loading_another_version_keeps_what_was_measured_of_the_first() -> None:
    engine = engine_with(Sums(), batch_rows=None)
    engine.warm_up(("m", "1"), records(counted(4)))
    measured = engine.stats[0].counts.measured
    assert measured > 0
    engine.add(LoadedVersion(("m", "2"), SOURCE, Sums()))
    engine.submit(ask(1, counted(4)))
    drain(engine)
    assert engine.stats[0].counts.measured == measured


def test_warming_up_says_what_is_wrong_with_a_model() -> None:
    def broken(_x: torch.Tensor) -> None:
        raise ArithmeticError("broken")

    engine = engine_with(Sums(fails=broken), lambda _batch: {"value": np.zeros(1)})
    for version, says in (("1", "broken"), ("2", "first dimension 4 expected")):
        with pytest.raises(Exception, match=says):
            engine.warm_up(("m", version), records(counted(4)))


def test_a_cancelled_ask_is_never_answered_nor_run() -> None:
    model = Sums()
    engine = engine_with(model)
    engine.submit(ask(1, counted(20), again=range(20)))
    engine.step()
    engine.cancel(1)
    engine.submit(ask(2, counted(3)))
    assert [answer.number for answer in drain(engine)] == [2]
    assert len(model.passes) == 2


def test_who_watches_is_told_before_every_pass() -> None:
    told: list[tuple[list[tuple[str, str]], int]] = []
    engine = engine_with(Sums(), Sums(), on_pass=lambda names, rows: told.append((list(names), rows)))
    engine.submit(ask(1, ONES, "1", "2"))
    drain(engine)
    assert told == [([("m", "1")], 6), ([("m", "2")], 6)]


def test_a_device_at_rest_is_left_alone() -> None:
    class Resting(CpuDevice):
        rest_s = 1.0

        def pause_s(self) -> float:
            return self.rest_s

    device = Resting()
    engine = engine_with(Sums(), device=device)
    engine.submit(ask(1, ONES))
    assert engine.step() == []
    assert engine.pause_s == 1.0
    device.rest_s = 0.0
    assert [answer.number for answer in engine.step()] == [1]


def test_a_torch_module_is_loaded_from_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("from torch import nn\n\ndef build():\n    return nn.Linear(2, 2)\n")
    module = torch.nn.Linear(2, 2)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    engine = engine_with()
    source = Source("torch", "model.py:build", inputs=("x",), classes=(0, 1))
    engine.load(("m", "1"), source, weights=tmp_path / "w.safetensors", folder=tmp_path)
    assert engine.names == [("m", "1")]
    engine.submit(ask(1, np.random.default_rng(0).normal(size=(20, 2))))
    (answer,) = drain(engine)
    assert answer.outputs is not None
    assert set(answer.outputs) == {"label", "score", "margin", "probs"}
