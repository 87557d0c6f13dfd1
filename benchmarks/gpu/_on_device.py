"""What assertions on the device add to a pass."""

import torch

from outrider.dataops.model_kinds.runner import Tensors
from outrider.monitor.engine.executor import Alone
from outrider.monitor.engine.on_device import Watched

from ._figures import GpuFigure
from ._floor import Fed, answered, in_turn, median_ratio, noise
from ._models import TextModel, token_rows
from ._setup import NAME, Bench, adopted, whole

MARGIN = 0.1


def doubtful(inputs: Tensors, answers: Tensors) -> torch.Tensor:  # noqa: ARG001 - reads answers only
    """How far the two best classes are from being apart."""
    best = answers["out"].float().softmax(1).topk(2, 1).values
    return (MARGIN - (best[:, 0] - best[:, 1])).clamp(min=0)


def undecided(inputs: Tensors, answers: Tensors) -> torch.Tensor:  # noqa: ARG001 - reads answers only
    """Entropy of the classes."""
    logs = answers["out"].float().log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def repeated(inputs: Tensors, answers: Tensors) -> torch.Tensor:  # noqa: ARG001 - reads inputs only
    """Share of words that are the one before."""
    ids = inputs["ids"]
    return ((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] != 0)).float().mean(1)


def measure(bench: Bench) -> list[GpuFigure]:
    """Three assertions of logits and words, against the same device without them."""
    scale = bench.scale
    torch.manual_seed(0)
    module = TextModel(scale)
    rows = token_rows(scale, scale.rows)
    reference = bench.reference(module, rows.tensors["ids"])
    device = bench.device()
    alone = Alone(NAME, adopted(device, module))
    checks = {"doubtful": doubtful, "undecided": undecided, "repeated": repeated}
    watched = Watched(alone, {NAME: checks})
    paths = [Fed(device, [(executor, rows, whole(rows))]) for executor in (watched, alone)]
    ours, theirs = in_turn(
        [lambda path=path: path.seconds(scale.seconds) for path in paths],  # type: ignore[misc]  # bound now
        scale.rounds,
    )
    largest, flips = noise(answered(device, watched, rows, whole(rows))[0]["out"], reference)
    return [
        GpuFigure(
            "gpu.on_device", 1e3 * sorted(ours)[len(ours) // 2], "ms a batch", "without assertions",
            median_ratio(theirs, ours), 0.95, largest, flips,
        )
    ]  # fmt: skip
