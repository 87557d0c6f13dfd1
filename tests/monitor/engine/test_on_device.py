from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner, dump_weights, load_architecture
from outrider.errors import ConfigError
from outrider.monitor.engine.asks import Ask, Name
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import Alone, LoadedVersion, Segment
from outrider.monitor.engine.on_device import Watched, checks_of, watched

from .scripted_card import ScriptedCard

NAME: Name = ("m", "1")
CODE = """
def doubtful(inputs, answers):
    top = answers["out"].softmax(1).topk(2, dim=1).values
    return (0.2 - (top[:, 0] - top[:, 1])).clamp(min=0)
"""


def runner() -> TorchRunner:
    torch.manual_seed(0)
    return TorchRunner(torch.nn.Linear(2, 3), inputs=["a", "b"], classes=[0, 1, 2])


def batch(rows: int = 9) -> Batch:
    random = np.random.default_rng(0)
    records = [
        {"id": f"r{n}", "inputs": {"a": float(random.normal()), "b": float(random.normal())}}
        for n in range(rows)
    ]
    return Batch.from_records(records, model="m")


def test_severities_are_outputs_and_equal_those_computed_from_the_outputs(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    source = Source("torch", "model.py:build", options={"on_device": ["checks.py:doubtful"]})
    alone = Alone(NAME, runner())
    executor = watched(
        alone, {NAME: LoadedVersion(NAME, source, runner(), checks=checks_of(source, tmp_path))}
    )
    records = batch()
    rows = executor.encode(NAME, records)
    for device in (CpuDevice(), CudaDevice(ScriptedCard(), DeviceOptions())):
        for _ in range(3):  # kernel by kernel, captured, replayed
            flight = device.fly(executor, rows, [Segment(NAME, 0, rows.count)])
            outputs = executor.decode(NAME, flight.land()[0])
            expected = np.clip(0.2 - outputs["margin"], 0, None)
            np.testing.assert_allclose(outputs["doubtful"], expected, atol=1e-6)
    assert 0 < (outputs["doubtful"] > 0).sum() < rows.count


def test_a_version_without_checks_runs_as_it_is() -> None:
    alone = Alone(NAME, runner())
    loaded = {NAME: LoadedVersion(NAME, Source("torch", "model.py:build"), runner())}
    assert watched(alone, loaded) is alone


def test_two_checks_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(CODE)
    (tmp_path / "two.py").write_text(CODE)
    source = Source("torch", "m.py:f", options={"on_device": ["one.py:doubtful", "two.py:doubtful"]})
    with pytest.raises(ConfigError, match=r"two functions are called 'doubtful'"):
        checks_of(source, tmp_path)


def test_a_check_of_another_shape_says_what_it_must_return() -> None:
    def whole(inputs: Tensors, answers: Tensors) -> torch.Tensor:
        return answers["out"].mean()

    executor = Watched(Alone(NAME, runner()), {NAME: {"whole": whole}})
    rows = executor.encode(NAME, batch())
    with pytest.raises(TypeError, match=r"on_device: whole must return a tensor of shape \(9,\).*got \(\)"):
        executor.run(rows.tensors, [Segment(NAME, 0, 9)])


def test_a_check_that_is_called_like_an_output_is_refused() -> None:
    def score(inputs: Tensors, answers: Tensors) -> torch.Tensor:
        return answers["out"][:, 0]

    executor = Watched(Alone(NAME, runner()), {NAME: {"score": score}})
    rows = executor.encode(NAME, batch())
    answers = executor.run(rows.tensors, [Segment(NAME, 0, 9)])[0]
    with pytest.raises(ConfigError, match=r"'score' is an output of the model"):
        executor.decode(NAME, {n: t.detach() for n, t in answers.items()})


MODEL = """
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Linear(2, 3)
"""


def test_the_engine_answers_with_severities_and_swaps_them_with_the_version(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "checks.py").write_text(CODE)
    plain = Source("torch", "model.py:build", inputs=("a", "b"), classes=(0, 1, 2))
    checked = replace(plain, options={"on_device": ["checks.py:doubtful"]})
    weights = dump_weights(load_architecture("model.py:build", tmp_path)().state_dict())
    engine = Engine(batch_rows=4)
    said = []
    for number, source in enumerate([checked, plain]):
        engine.load(NAME, source, weights=weights, folder=tmp_path)
        engine.submit(Ask(number, "m", ("1",), batch()))
        while engine.waiting:
            said += [answer.outputs for answer in engine.step()]
    first, second = said
    assert first is not None
    assert second is not None
    assert set(first) - set(second) == {"doubtful"}
    np.testing.assert_allclose(first["doubtful"], np.clip(0.2 - first["margin"], 0, None), atol=1e-6)


def test_a_function_has_no_tensors_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    source = Source("function", "checks.py:doubtful", options={"on_device": ["checks.py:doubtful"]})
    with pytest.raises(ConfigError, match=r"on_device is for models of tensors; one of kind function"):
        Engine().load(NAME, source, weights=None, folder=tmp_path)
