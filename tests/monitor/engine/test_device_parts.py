"""The small parts of a device: shapes, blocks of bytes, weights in bfloat16, pauses, faults, options."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import ConfigError
from outrider.monitor.engine.cuda.device import wanted_card
from outrider.monitor.engine.cuda.shapes import padded_rows, padded_width
from outrider.monitor.engine.cuda.staging import ALIGNMENT, Arena, bytes_of, fill, grown, specs_of, views
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.faults import Fault, fault_of
from outrider.monitor.engine.open_device import open_device
from outrider.monitor.engine.pacing import Pacer
from outrider.monitor.engine.precision import narrow_weights


@given(st.integers(1, 5000))
def test_rows_are_padded_by_at_most_half_and_to_few_sizes(rows: int) -> None:
    assert rows <= padded_rows(rows) <= max(2, rows * 1.5)
    assert padded_rows(padded_rows(rows)) == padded_rows(rows)


def test_sizes_of_batches_are_few() -> None:
    assert len({padded_rows(rows) for rows in range(1, 1025)}) == 20


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_widths_grow_by_less_than_a_step_and_never_beyond_what_was_met(width: int, wider: int) -> None:
    widest = width + wider
    padded = padded_width(width, widest)
    assert width <= padded <= widest
    assert padded == widest or padded - width < 128
    assert padded_width(padded, widest) == padded


@given(st.lists(st.sampled_from(["i8", "f4", "b1", "f2"]), min_size=1, max_size=5), st.integers(1, 7))
def test_tensors_of_a_block_do_not_touch(kinds: list[str], rows: int) -> None:
    types = {"i8": torch.int64, "f4": torch.float32, "b1": torch.bool, "f2": torch.bfloat16}
    tensors = {f"t{at}": torch.ones((rows, at + 1), dtype=types[kind]) for at, kind in enumerate(kinds)}
    specs = specs_of(tensors)
    block = torch.zeros(bytes_of(specs), dtype=torch.uint8)
    held = views(block, specs)
    for name, tensor in tensors.items():
        held[name].copy_(tensor)
        assert held[name].storage_offset() * held[name].itemsize % ALIGNMENT == 0
    for name, tensor in tensors.items():
        assert torch.equal(held[name], tensor)


def test_memory_of_a_slot_grows_and_is_kept() -> None:
    sizes: list[int] = []

    def allocate(nbytes: int) -> torch.Tensor:
        sizes.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    arena = Arena(allocate)
    for nbytes in (10, 4096, 4097, 100, 8192):
        assert len(arena.block(nbytes)) == nbytes
    assert sizes == [4096, 8192]


def test_rows_are_padded_with_their_padding_and_repeat_the_first() -> None:
    source = torch.tensor([[1, 2], [3, 4]])
    target = torch.full((4, 3), -7)
    fill(target, source, padding=9)
    assert target.tolist() == [[1, 2, 9], [3, 4, 9], [1, 2, 9], [1, 2, 9]]


def test_only_float32_is_fed_narrow_and_only_the_second_dimension_grows() -> None:
    tensors = {"ids": torch.ones((3, 5), dtype=torch.int64), "x": torch.ones((3, 5, 2)), "n": torch.ones(3)}
    specs = dict(grown(tensors, rows=4, width=8, narrow={torch.float32: torch.bfloat16}))
    assert {n: s.shape for n, s in specs.items()} == {"ids": (4, 8), "x": (4, 8, 2), "n": (4,)}
    assert [specs[n].dtype for n in tensors] == [torch.int64, torch.bfloat16, torch.bfloat16]


class Rotary(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(4, 2)
        self.out = torch.nn.Linear(2, 4, bias=False)
        self.out.weight = self.embed.weight
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("frequencies", torch.ones(2), persistent=False)


def test_saved_weights_become_narrow_and_what_is_derived_stays() -> None:
    module = Rotary()
    narrow_weights(module)
    assert module.out.weight is module.embed.weight
    assert module.norm.running_mean is not None
    assert module.out.weight.dtype == module.norm.running_mean.dtype == torch.bfloat16
    assert module.frequencies.dtype == torch.float32
    assert module.norm.num_batches_tracked is not None
    assert module.norm.num_batches_tracked.dtype == torch.int64


def test_pauses_keep_passes_to_their_share_and_save_nothing_up() -> None:
    now = 0.0
    pacer = Pacer(0.2, clock=lambda: now)
    busy = 0.0
    for _ in range(50):
        now += pacer.pause_s()
        now += 0.01
        busy += 0.01
        pacer.ran(0.01)
    now += pacer.pause_s()
    assert busy / now == pytest.approx(0.2)
    now += 3600
    assert pacer.pause_s() == 0.0
    pacer.ran(0.01)
    assert pacer.pause_s() == pytest.approx(0.04)


def test_whole_devices_never_pause() -> None:
    pacer = Pacer(1.0)
    pacer.ran(5.0)
    assert pacer.pause_s() == 0.0


@pytest.mark.parametrize("duty", [0.0, -0.1, 1.01, float("nan")])
def test_a_duty_outside_its_range_is_refused(duty: float) -> None:
    with pytest.raises(ValueError, match=r"duty: a share of the time in \(0, 1\] expected"):
        Pacer(duty)


MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    MemoryError(),
]
DEVICE = [
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
    torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
]
MODEL = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"),
    ValueError("CUDA error is a word in a record"),
    KeyError("x"),
]


@pytest.mark.parametrize(("errors", "fault"), [(MEMORY, "memory"), (DEVICE, "device"), (MODEL, "model")])
def test_faults_are_told_apart(errors: list[Exception], fault: str) -> None:
    assert {fault_of(error) for error in errors} == {Fault(fault)}


def test_options_cross_as_text() -> None:
    options = DeviceOptions(device="cuda:1", dtype="bfloat16", duty=0.5)
    assert DeviceOptions.from_json(options.to_json()) == options


def test_the_processor_is_opened_where_it_is_named() -> None:
    before = torch.get_num_threads()
    try:
        assert isinstance(open_device(DeviceOptions(device="cpu")), CpuDevice)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_device_that_is_not_there_is_named_in_the_error() -> None:
    with pytest.raises(
        ConfigError, match=r"device: 'cuda:99' is asked for, but torch .* sees \d+ CUDA devices"
    ):
        wanted_card(DeviceOptions(device="cuda:99"))
    with pytest.raises(ConfigError, match=r"device: auto, cpu, cuda or cuda:N expected, got 'meta'"):
        wanted_card(DeviceOptions(device="meta"))
