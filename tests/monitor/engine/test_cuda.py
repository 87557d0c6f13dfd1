"""The same on a GPU, where there is one."""

import numpy as np
import pytest
import torch

from outrider.dataops.model_kinds.runner import EncodedRows
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Alone, Segment
from outrider.monitor.engine.faults import Fault, fault_of
from outrider.monitor.engine.open_device import open_device

from .small_models import Reader, TextRunner, texts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NAME: Name = ("m", "1")


class CudaReader(Reader):
    """The reader with its positions on the device."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        at = torch.arange(ids.shape[1], device=ids.device)
        known = self.words(ids) + self.positions(at)
        weights = mask.unsqueeze(-1).to(known.dtype)
        out: torch.Tensor = self.head((known * weights).sum(1) / weights.sum(1).clamp(min=1))
        return out


def reader() -> TextRunner:
    torch.manual_seed(0)
    return TextRunner(CudaReader())


def segments(rows: EncodedRows) -> list[Segment]:
    return [Segment(NAME, 0, rows.count)]


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
def test_batches_are_answered_as_on_the_processor(graphs: bool, compile: bool) -> None:
    device = open_device(DeviceOptions(device="cuda", graphs=graphs, compile=compile))
    assert isinstance(device, CudaDevice)
    there = Alone(NAME, device.adopt(reader()))
    here = Alone(NAME, reader())
    cpu = CpuDevice()
    batches = [texts(size, longest=30, seed=seed) for seed, size in enumerate([4, 7, 1, 4, 7, 12] * 8)]
    pending = []
    for number, rows in enumerate(batches):
        pending.append((rows, device.fly(there, rows, segments(rows))))
        if len(pending) < device.depth and number + 1 < len(batches):
            continue
        landed, flight = pending.pop(0)
        expected = cpu.fly(here, landed, segments(landed)).land()[0]["out"]
        np.testing.assert_allclose(flight.land()[0]["out"], expected, atol=1e-4)
    for _, flight in pending:
        flight.land()
    assert (device.replayed > 0) == graphs
    assert device.busy_s > 0


class ReadsBack(torch.nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        longest = int(mask.sum(1).max().item())  # cannot be captured
        return ids[:, :longest].float().sum(1, keepdim=True)


def test_a_model_that_reads_a_value_back_runs_kernel_by_kernel() -> None:
    device = open_device(DeviceOptions(device="cuda"))
    assert isinstance(device, CudaDevice)
    executor = Alone(NAME, device.adopt(TextRunner(ReadsBack())))
    rows = texts(5)
    for _ in range(4):
        out = device.fly(executor, rows, segments(rows)).land()[0]["out"]
        assert torch.equal(out[:, 0], rows.tensors["ids"].float().sum(1))
    assert device.replayed == 0
    assert device.graphs.refused
    good = Alone(NAME, device.adopt(reader()))
    for _ in range(3):
        device.fly(good, rows, segments(rows)).land()
    assert device.replayed == 2


def test_a_batch_beyond_the_memory_is_told_and_a_smaller_one_runs() -> None:
    class Greedy(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if len(ids) > 4:
                torch.empty(1 << 50, device=ids.device)
            return ids.float().sum(1, keepdim=True)

    device = open_device(DeviceOptions(device="cuda"))
    executor = Alone(NAME, device.adopt(TextRunner(Greedy())))
    flight = device.fly(executor, texts(8), segments(texts(8)))
    with pytest.raises(torch.OutOfMemoryError) as raised:
        flight.land()
    assert fault_of(raised.value) is Fault.MEMORY
    rows = texts(4)
    assert device.fly(executor, rows, segments(rows)).land()[0]["out"].shape == (4, 1)
