"""What surrounds a GPU, run on a machine that does its work late and in any legal order."""

from collections import deque
from collections.abc import Sequence

import pytest
import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.asks import Name, Outputs
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.cuda.graphs import Graphs
from outrider.monitor.engine.device import CpuDevice, Device, InFlightBatch
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Alone, Executor, Segment
from outrider.monitor.engine.faults import Fault, fault_of

from .scripted_card import ScriptedCard
from .small_models import Reader, TextRunner, same, texts

NAME: Name = ("m", "1")


def reader(seed: int = 0, longest: int = 64) -> Alone:
    torch.manual_seed(seed)
    return Alone(NAME, TextRunner(Reader(longest)))


def whole(rows: EncodedRows, name: Name = NAME) -> list[Segment]:
    return [Segment(name, 0, rows.count)]


def answers(
    device: Device, jobs: Sequence[tuple[Executor, EncodedRows, list[Segment]]]
) -> list[list[Tensors]]:
    """Answers of many batches, with as many under way as the device likes."""
    flights: deque[InFlightBatch] = deque()
    landed = []
    for executor, rows, segments in jobs:
        if len(flights) == device.depth:
            landed.append(flights.popleft().land())
        flights.append(device.fly(executor, rows, segments))
    return landed + [flight.land() for flight in flights]


def expected(jobs: Sequence[tuple[Executor, EncodedRows, list[Segment]]]) -> list[list[Tensors]]:
    return answers(CpuDevice(), jobs)


def agree(left: Sequence[Sequence[Tensors]], right: Sequence[Sequence[Tensors]]) -> None:
    for ours, theirs in zip(left, right, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_batches_of_any_shape_are_answered_as_on_the_processor(seed: int, graphs: bool) -> None:
    card = ScriptedCard(seed)
    device = CudaDevice(card, DeviceOptions(graphs=graphs))
    one, two = reader(1), reader(2)
    sizes = [1, 2, 3, 5, 5, 7, 12, 5, 3, 1, 5, 7] * 3
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = []
    for number, size in enumerate(sizes):
        rows = texts(size, longest=20, seed=number % 7)
        jobs.append((one if number % 3 else two, rows, whole(rows)))
    agree(answers(device, jobs), expected(jobs))
    assert device.replayed + device.launched == len(jobs)
    assert (device.replayed > 0) == graphs


def test_the_next_batch_is_copied_while_one_computes() -> None:
    orders = []
    for seed in range(20):
        card = ScriptedCard(seed)
        device = CudaDevice(card, DeviceOptions(graphs=False))
        executor = reader()
        jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = []
        for number in range(6):
            rows = texts(4, seed=number)
            jobs.append((executor, rows, whole(rows)))
        agree(answers(device, jobs), expected(jobs))
        orders.append("".join(lane[0] for lane in card.order))
    assert any("iic" in order or "iio" in order for order in orders)


def test_a_batch_may_be_overwritten_once_it_has_taken_off() -> None:
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    executor, rows = reader(), texts(3)
    before = expected([(executor, rows, whole(rows))])
    flight = device.fly(executor, rows, whole(rows))
    rows.tensors["ids"].zero_()
    agree([flight.land()], before)


def test_answers_outlive_the_memory_they_came_in() -> None:
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    executor = reader()
    rows = [texts(4, seed=seed) for seed in range(6)]
    first = device.fly(executor, rows[0], whole(rows[0])).land()
    kept = [{name: tensor.clone() for name, tensor in answers.items()} for answers in first]
    for other in rows[1:]:
        device.fly(executor, other, whole(other)).land()
    agree([first], [kept])


def test_a_slot_is_not_used_before_its_flight_has_landed() -> None:
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    executor, rows = reader(), texts(3)
    flights = [device.fly(executor, rows, whole(rows)) for _ in range(device.depth)]
    with pytest.raises(RuntimeError, match="land the oldest"):
        device.fly(executor, rows, whole(rows))
    for flight in flights:
        flight.land()
    device.fly(executor, rows, whole(rows)).land()


def test_a_shape_is_captured_when_it_comes_again_and_then_replayed() -> None:
    card = ScriptedCard()
    device = CudaDevice(card, DeviceOptions())
    executor, rows = reader(), texts(4)
    for _ in range(4):
        device.fly(executor, rows, whole(rows)).land()
    assert (card.captures, device.launched, device.replayed) == (1, 1, 3)
    device.forget(executor)
    assert len(device.graphs) == 0


def test_no_batch_is_made_wider_than_the_model_has_met() -> None:
    """A model with 21 positions indexes beyond its table at 32: on a GPU the end of the process."""
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    executor = reader(longest=21)
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = []
    for number in range(8):
        rows = texts(3, longest=21, seed=number)
        jobs.append((executor, rows, whole(rows)))
    agree(answers(device, jobs), expected(jobs))


def test_a_pass_that_cannot_be_captured_runs_kernel_by_kernel() -> None:
    card = ScriptedCard()
    card.refusal = torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")
    device = CudaDevice(card, DeviceOptions())
    executor, rows = reader(), texts(4)
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = [(executor, rows, whole(rows))] * 5
    agree(answers(device, jobs), expected(jobs))
    assert card.captures == 1
    assert device.replayed == 0
    assert list(device.graphs.refused.values()) == [
        "AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    ]


class Trunk:
    """Two heads on what they share; every wanted version answers all rows."""

    is_mixed = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.device = torch.device("cpu")
        self.names: tuple[Name, ...] = (("m", "1"), ("m", "2"))
        self._heads = {name: torch.nn.Linear(4, 2) for name in self.names}

    def encode(self, name: Name, batch: object, /) -> EncodedRows:
        raise NotImplementedError

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        return [{"out": self._heads[s.name](tensors["x"][s.start : s.stop])} for s in segments]

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        raise NotImplementedError


def numbers(count: int, seed: int = 0) -> EncodedRows:
    return EncodedRows({"x": torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))})


def test_versions_of_a_trunk_may_answer_different_rows_of_one_pass() -> None:
    card = ScriptedCard()
    device = CudaDevice(card, DeviceOptions())
    executor = Trunk()
    one, two = executor.names
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = [
        (executor, numbers(5, seed), [Segment(one, 0, 5), Segment(two, seed % 4, 5), Segment(one, 0, 2)])
        for seed in range(6)
    ]
    agree(answers(device, jobs), expected(jobs))
    assert card.captures == 1


class Mixed(Trunk):
    """Every row is answered by one of the two."""

    is_mixed = True


class IndexedMixed(Mixed):
    """The same with the mixture as data."""

    is_indexed = True

    def index(self, segments: Sequence[Segment], rows: int, /) -> dict[str, torch.Tensor]:
        owner = torch.zeros(rows, dtype=torch.int32)
        for segment in segments:
            owner[segment.start : segment.stop] = self.names.index(segment.name)
        return {"owner": owner}

    def run_indexed(self, tensors: Tensors, index: Tensors, /) -> Tensors:
        both = torch.stack([head(tensors["x"]) for head in self._heads.values()])  # (2, rows, 2)
        return {"out": both[index["owner"].long(), torch.arange(len(tensors["x"]))]}


@pytest.mark.parametrize(("executor", "captures"), [(Mixed(), 0), (IndexedMixed(), 1)])
def test_mixed_rows_are_captured_once_where_the_mixture_is_data(executor: Mixed, captures: int) -> None:
    card = ScriptedCard()
    device = CudaDevice(card, DeviceOptions())
    one, two = executor.names
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = [
        (executor, numbers(7, seed), [Segment(one, 0, cut), Segment(two, cut, 7)])
        for seed, cut in enumerate([1, 3, 6, 2])
    ]
    agree(answers(device, jobs), expected(jobs))
    assert card.captures == captures


class Counted(Trunk):
    """Says what was replayed of it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Name, ...]] = []

    def replayed(self, names: Sequence[Name], /) -> None:
        self.told.append(tuple(names))


def test_an_executor_is_told_of_passes_that_ran_without_it() -> None:
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    executor, rows = Counted(), numbers(4)
    for _ in range(5):
        device.fly(executor, rows, whole(rows, executor.names[1])).land()
    assert executor.told == [executor.names[1:]] * 3  # one was launched, one was run to be captured


class Broken(Trunk):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        raise self.error


def test_errors_of_the_model_come_on_landing_and_leave_the_device_usable() -> None:
    for device in (CpuDevice(), CudaDevice(ImmediateCard(), DeviceOptions())):
        bad, good, rows = Broken(ValueError("shapes")), Trunk(), numbers(3)
        segments = whole(rows, good.names[0])
        with pytest.raises(ValueError, match="shapes"):
            device.fly(bad, rows, segments).land()
        agree([device.fly(good, rows, segments).land()], expected([(good, rows, segments)]))


def test_a_batch_too_large_gives_up_the_captured_passes_and_says_so() -> None:
    device = CudaDevice(ImmediateCard(), DeviceOptions())
    good, rows = Trunk(), numbers(3)
    segments = whole(rows, good.names[0])
    for _ in range(2):
        device.fly(good, rows, segments).land()
    assert len(device.graphs) == 1
    flight = device.fly(Broken(torch.OutOfMemoryError("CUDA out of memory")), rows, segments)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        flight.land()
    assert fault_of(raised.value) is Fault.MEMORY
    assert len(device.graphs) == 0


def test_a_broken_device_is_told_from_a_broken_model() -> None:
    card = ScriptedCard()
    device = CudaDevice(card, DeviceOptions())
    executor, rows = reader(), texts(2)
    flight = device.fly(executor, rows, whole(rows))
    card.broken = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(torch.AcceleratorError) as raised:
        flight.land()
    assert fault_of(raised.value) is Fault.DEVICE


class ImmediateCard(ScriptedCard):
    """Issues work when it is launched, as CUDA does: what a model raises comes out of ``launch``."""

    def launch(self, lane, work, /, *, after=()):  # type: ignore[no-untyped-def]  # as the base
        mark = super().launch(lane, work, after=after)
        self._lanes[lane].pop()
        work()
        mark.is_done = True  # type: ignore[attr-defined]  # a ScriptedMark
        return mark


def test_weights_and_numbers_are_narrow_and_answers_are_wide() -> None:
    torch.manual_seed(0)
    runner = TorchRunner(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)), inputs=["x"])
    wide = Alone(NAME, TorchRunner(runner.module, inputs=["x"]))
    rows = numbers(6)
    before = expected([(wide, rows, whole(rows))])[0][0]["out"]
    device = CudaDevice(ScriptedCard(), DeviceOptions(dtype="bfloat16"))
    executor = Alone(NAME, device.adopt(runner))
    assert {p.dtype for p in runner.module.parameters()} == {torch.bfloat16}
    for _ in range(3):
        after = device.fly(executor, rows, whole(rows)).land()[0]["out"]
        assert after.dtype == torch.float32
        torch.testing.assert_close(after, before, rtol=0.05, atol=0.05)
    assert not torch.equal(after, before)


def test_a_shared_device_is_left_alone_after_each_pass() -> None:
    device = CudaDevice(ScriptedCard(), DeviceOptions(duty=0.001))
    assert device.depth == 1
    assert device.pause_s() == 0.0
    rows = texts(2)
    device.fly(reader(), rows, whole(rows)).land()
    assert device.busy_s == pytest.approx(0.001)
    assert 0.5 < device.pause_s() <= 0.999  # after a millisecond of a thousandth of the time


def test_only_so_many_passes_are_kept_and_the_oldest_goes() -> None:
    card = ScriptedCard()
    device = CudaDevice(card, DeviceOptions())
    device.graphs = Graphs(card, limit=2)
    executor = Trunk()
    jobs: list[tuple[Executor, EncodedRows, list[Segment]]] = []
    for size in (1, 2, 3, 1):
        rows = numbers(size, size)
        jobs += [(executor, rows, whole(rows, executor.names[0]))] * 3
    agree(answers(device, jobs), expected(jobs))
    assert len(device.graphs) == 2
    assert card.captures == 4  # the first shape once more
