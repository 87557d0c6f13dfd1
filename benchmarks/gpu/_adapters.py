"""LoRA adapters that are mixed by row in one batch, against the base, and against a pass for each adapter."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter import Adapter, LowRank
from outrider.dataops.model_kinds.runner import EncodedRows
from outrider.monitor.engine.adapters.mixed import mixed
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.device import Device
from outrider.monitor.engine.executor import Alone, Segment

from ._figures import GpuFigure
from ._floor import Fed, Job, in_turn, median_ratio, noise, seconds_each, static_pass
from ._models import OneInput, TextModel, token_rows
from ._scale import Scale
from ._setup import NAME, Bench, adopted, whole

LAYERS = ("q", "k", "v", "o", "up", "down")


def measure(bench: Bench) -> list[GpuFigure]:
    """As many rows as in a static pass of the base, each of an adapter drawn at random."""
    scale, kind = bench.scale, bench.kind
    torch.manual_seed(0)
    module = TextModel(scale)
    adapters = [random_adapter(module, scale, number) for number in range(scale.adapters)]
    rows = token_rows(scale, scale.rows)
    mixtures = [segments_of(scale, seed) for seed in range(8)]
    reference = _reference(bench, module, adapters, rows, mixtures[0])
    device = bench.device()
    base = adopted(device, module)
    names = [("text", f"a{number}") for number in range(scale.adapters)]
    runners = {name: AdaptedRunner(base, adapter) for name, adapter in zip(names, adapters, strict=True)}
    together = mixed(runners)
    device.fly(together, rows, mixtures[0]).land()  # the first batch is compared with separate passes
    (ids,) = bench.fed(module, rows.tensors["ids"])
    still = static_pass(lambda: module(ids), kind)
    path = Fed(device, [(together, rows, segments) for segments in mixtures])
    fed_base = Fed(device, [(Alone(NAME, base), rows, whole(rows))])
    jobs = [_apart(runners, rows, segment) for segment in mixtures[0]]
    apart = Fed(device, jobs)
    runs = [
        lambda: path.seconds(scale.seconds),
        lambda: fed_base.seconds(scale.seconds),
        lambda: seconds_each(still, kind, scale.seconds),
        lambda: apart.seconds(scale.seconds) * len(mixtures[0]),
    ]
    ours, base_s, static_s, apart_s = in_turn(runs, scale.rounds)
    said = device.fly(together, rows, mixtures[0]).land()
    largest, flips = noise(torch.cat([answers["out"] for answers in said]), reference)
    value = scale.rows / sorted(ours)[len(ours) // 2]
    count, rank = scale.adapters, scale.rank
    what = f"{count} adapters, r = {rank}, all linear layers"
    return [
        GpuFigure(
            "gpu.adapters_base", value, "rows/s", f"static loop of the base ({what})",
            median_ratio(static_s, ours), 0.75, largest, flips,
        ),
        GpuFigure(
            "gpu.adapters_fed_base", value, "rows/s", "the base fed in the same way",
            median_ratio(base_s, ours), 0.75, largest, flips,
        ),
        GpuFigure(
            "gpu.adapters_sequential", value, "rows/s", f"one pass per adapter, {_how(device, jobs)}",
            median_ratio(apart_s, ours), 4.0, largest, flips,
        ),
    ]  # fmt: skip


def random_adapter(module: nn.Module, scale: Scale, number: int) -> Adapter:
    """An adapter of all linear layers inside the blocks, small beside the base."""
    generator = torch.Generator().manual_seed(number)
    low = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in LAYERS:
            down = torch.randn(scale.rank, layer.in_features, generator=generator) / layer.in_features**0.5
            up = torch.randn(layer.out_features, scale.rank, generator=generator) / scale.rank**0.5
            low[name] = LowRank(down, 0.2 * up)
    return Adapter(f"a{number}", low_rank=low)


def segments_of(scale: Scale, seed: int) -> list[Segment]:
    """Rows of a batch by adapter, each row's drawn at random; rows of one lie side by side."""
    of_rows = np.sort(np.random.default_rng(seed).integers(0, scale.adapters, scale.rows))
    drawn, starts = np.unique(of_rows, return_index=True)
    stops = [*starts[1:].tolist(), scale.rows]
    return [
        Segment(("text", f"a{number}"), int(start), int(stop))
        for number, start, stop in zip(drawn, starts, stops, strict=True)
    ]


def _reference(
    bench: Bench, module: nn.Module, adapters: list[Adapter], rows: EncodedRows, segments: list[Segment]
) -> torch.Tensor:
    """What each row's adapter says by itself, in float32."""
    runner = OneInput(copy.deepcopy(module).to(bench.kind))
    runner.device = torch.device(bench.kind)
    found = []
    with torch.inference_mode():
        for segment in segments:
            alone = AdaptedRunner(runner, adapters[int(segment.name[1][1:])])
            ids = rows.tensors["ids"][segment.start : segment.stop].to(bench.kind)
            found.append(alone.run({"ids": ids})["out"].cpu())
    return torch.cat(found)


def _apart(runners: dict[tuple[str, str], AdaptedRunner], rows: EncodedRows, segment: Segment) -> Job:
    """The rows of one adapter as a batch of their own."""
    part = rows.slice(segment.start, segment.stop)
    return Alone(segment.name, runners[segment.name]), part, whole(part, segment.name)


def _how(device: Device, jobs: Sequence[Job]) -> str:
    """Whether what is held against was as fast as it can be."""
    if not isinstance(device, CudaDevice):
        return "on the CPU"
    refused = sum(id(executor) in device.graphs.refused for executor, _, _ in jobs)
    return "each captured" if not refused else f"{refused} of {len(jobs)} not captured"
