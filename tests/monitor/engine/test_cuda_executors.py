"""Adapters and trunks behind a GPU's double buffers and captured passes; on a GPU too where there is one."""

import copy

import pytest
import torch

from benchmarks.gpu._adapters import random_adapter, segments_of
from benchmarks.gpu._models import OneInput, TextModel, Top, token_rows
from benchmarks.gpu._scale import SCALES
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter_mixing import Mixing, VariantSpan
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.monitor.engine.adapters.mixed import IndexedMixed
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Segment
from outrider.monitor.engine.on_device import Watched
from outrider.monitor.engine.open_device import open_device
from outrider.monitor.engine.trunks.trunk import Trunk

from .scripted_card import ScriptedCard

SCALE = SCALES["cpu"]
ON_CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)


@pytest.fixture(params=["scripted", ON_CUDA])
def device(request: pytest.FixtureRequest) -> CudaDevice:
    if request.param == "cuda":
        opened = open_device(DeviceOptions(device="cuda"))
        assert isinstance(opened, CudaDevice)
        return opened
    return CudaDevice(ScriptedCard(3), DeviceOptions())


def close(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left.cpu(), right.cpu(), rtol=1e-3, atol=1e-4)


def alone(module: torch.nn.Module, rows: EncodedRows) -> torch.Tensor:
    with torch.inference_mode():
        out: torch.Tensor = module(rows.tensors["ids"])
    return out


def doubtful(inputs: Tensors, answers: Tensors) -> torch.Tensor:
    best = answers["out"].softmax(1).topk(2, 1).values
    return (0.5 - (best[:, 0] - best[:, 1])).clamp(min=0)


def test_mixtures_of_adapters_are_one_captured_pass_and_answer_as_each_alone(device: CudaDevice) -> None:
    torch.manual_seed(0)
    module = TextModel(SCALE).eval()
    adapters = [random_adapter(module, SCALE, number) for number in range(SCALE.adapters)]
    rows = token_rows(SCALE, 13)
    here = OneInput(copy.deepcopy(module))
    with torch.inference_mode():
        expected = [AdaptedRunner(here, adapter).run(rows.tensors)["out"] for adapter in adapters]
    base = OneInput(module)
    device.adopt(base)
    names = [("text", f"a{number}") for number in range(SCALE.adapters)]
    runners = {name: AdaptedRunner(base, adapter) for name, adapter in zip(names, adapters, strict=True)}
    executor = IndexedMixed(runners, is_stacked=True)
    for seed in range(6):
        drawn = segments_of(SCALE, seed)  # of more rows than there are here
        segments = [Segment(s.name, s.start, min(s.stop, 13)) for s in drawn if s.start < 13]
        landed = device.fly(executor, rows, segments).land()
        for segment, answers in zip(segments, landed, strict=True):
            own = expected[int(segment.name[1][1:])][segment.start : segment.stop]
            close(answers["out"], own)
    assert (device.launched, device.replayed) == (2, 4)  # the first is compared, the second is seen


def test_severities_of_mixed_rows_come_out_of_the_captured_pass(device: CudaDevice) -> None:
    torch.manual_seed(0)
    base = OneInput(TextModel(SCALE))
    device.adopt(base)
    names = [("text", f"a{number}") for number in range(2)]
    runners = {n: AdaptedRunner(base, random_adapter(base.module, SCALE, at)) for at, n in enumerate(names)}
    executor = Watched(
        IndexedMixed(runners, is_stacked=True), {name: {"doubtful": doubtful} for name in names}
    )
    rows = token_rows(SCALE, 8)
    for cut in (3, 4, 5, 2):
        segments = [Segment(names[0], 0, cut), Segment(names[1], cut, 8)]
        for segment, answers in zip(segments, device.fly(executor, rows, segments).land(), strict=True):
            outputs = executor.decode(segment.name, answers)
            close(
                torch.from_numpy(outputs["doubtful"]),
                (0.5 - torch.from_numpy(outputs["margin"])).clamp(min=0),
            )
    assert device.replayed > 0


def test_a_trunk_is_captured_and_its_forwards_are_counted_in_replays(device: CudaDevice) -> None:
    torch.manual_seed(0)
    first = TextModel(SCALE, top_layers=1).eval()
    modules = [first]
    for _ in range(2):
        module = copy.deepcopy(first)
        module.top = Top(SCALE, 1)
        modules.append(module.eval())
    rows = token_rows(SCALE, 6)
    expected = [alone(module, rows) for module in modules]
    names = [("text", f"t{number}") for number in range(3)]
    runners = {}
    for name, module in zip(names, modules, strict=True):
        runners[name] = OneInput(module)
        device.adopt(runners[name])
    executor = Trunk(runners)
    segments = [Segment(name, 0, 6) for name in names]
    for passes in range(1, 6):
        for answers, own in zip(device.fly(executor, rows, segments).land(), expected, strict=True):
            close(answers["out"], own)
        if device.device.type == "cuda":  # the other machine replays by running it
            assert executor.head_forwards == 3 * passes
    assert device.replayed == 4
    assert executor.trunk_forwards < executor.head_forwards


def test_a_replayed_pass_counts_as_one_that_was_run() -> None:
    torch.manual_seed(0)
    first = TextModel(SCALE, top_layers=1).eval()
    second = copy.deepcopy(first)
    second.top = Top(SCALE, 1)
    names = [("text", "1"), ("text", "2")]
    runners = {n: OneInput(m) for n, m in zip(names, (first, second.eval()), strict=True)}
    executor = Trunk(runners)
    rows = token_rows(SCALE, 4)
    with torch.inference_mode():
        for _ in range(2):
            executor.run(rows.tensors, [Segment(name, 0, 4) for name in names])
    before = executor.trunk_forwards, executor.head_forwards
    executor.replayed(names)
    executor.replayed(names[:1])
    assert (executor.trunk_forwards, executor.head_forwards) == (before[0] + 2, before[1] + 3)


def test_one_adapter_alone_moves_nothing_to_the_device_once_its_size_is_known() -> None:
    """A copy from the CPU cannot be captured."""
    mixing = Mixing(2)
    seen = []
    for rows in (4, 6, 4):
        mixing.begin(rows, [VariantSpan(0, 0, rows)])
        seen.append((mixing.of_rows(torch.device("cpu")), mixing.ends(3 * rows, torch.device("cpu"))))
    assert seen[0][0] is seen[2][0]
    assert seen[0][1] is seen[2][1]
    assert seen[1][1].tolist() == [18, 18, 18]
