"""Whether writing, copying and computing go on at the same time, where all take about as long."""

import torch

from outrider.monitor.engine.cuda.staging import fill
from outrider.monitor.engine.executor import Alone

from ._figures import GpuFigure
from ._floor import Fed, answered, in_turn, median_ratio, noise, seconds_each, static_pass
from ._models import ImageModel, image_rows
from ._setup import NAME, Bench, adopted, whole

DEEPEST = 64


def measure(bench: Bench) -> list[GpuFigure]:
    """The longest of the three alone, over what a batch takes when all are under way."""
    scale, kind = bench.scale, bench.kind
    rows = image_rows(scale, scale.image_rows)
    image = rows.tensors["image"]
    device = bench.device()
    staged = torch.empty(image.shape, dtype=torch.bfloat16 if kind == "cuda" else torch.float32)
    staged = staged.pin_memory() if kind == "cuda" else staged
    fed = torch.empty_like(staged, device=kind)

    def write() -> None:
        fill(staged, image, 0)

    def copy() -> None:
        fed.copy_(staged, non_blocking=True)

    probe_s = scale.seconds / 10
    alone = max(seconds_each(write, kind, probe_s), seconds_each(copy, kind, probe_s))
    depth = 1
    while True:  # the hardest case: a pass that takes about as long as bringing the batch there
        torch.manual_seed(0)
        module = ImageModel(scale, depth)
        reference = bench.reference(module, image)
        executor = Alone(NAME, adopted(device, module, "image"))
        (there,) = bench.fed(module, image)
        still = static_pass(lambda m=module, x=there: m(x), kind)  # type: ignore[misc]  # bound now
        if depth >= DEEPEST or seconds_each(still, kind, probe_s) >= alone or kind == "cpu":
            break
        depth *= 2
    path = Fed(device, [(executor, rows, whole(rows))])
    ours, writing, copying, computing = in_turn(
        [
            lambda: path.seconds(scale.seconds),
            lambda: seconds_each(write, kind, scale.seconds / 2),
            lambda: seconds_each(copy, kind, scale.seconds / 2),
            lambda: seconds_each(still, kind, scale.seconds),
        ],
        scale.rounds,
    )
    longest = [max(three) for three in zip(writing, copying, computing, strict=True)]
    largest, flips = noise(answered(device, executor, rows, whole(rows))[0]["out"], reference)
    middle = scale.rounds // 2
    parts = zip(("writing", "copying", "computing"), (writing, copying, computing), strict=True)
    each = ", ".join(f"{name} {1e3 * sorted(took)[middle]:.2g}" for name, took in parts)
    against = f"the longest of {each} ms, each alone"
    return [
        GpuFigure(
            "gpu.overlap", 1e3 * sorted(ours)[middle], "ms a batch", against,
            median_ratio(longest, ours), 0.95, largest, flips,
        )
    ]  # fmt: skip
