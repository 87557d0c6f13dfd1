"""Several tops on one stem: what the arithmetic says, over what a batch takes."""

import copy

import torch

from outrider.monitor.engine.trunks.trunk import Trunk

from ._figures import GpuFigure
from ._floor import Fed, answered, in_turn, median_ratio, noise, seconds_each, static_pass
from ._models import TextModel, Top, token_rows
from ._setup import Bench, adopted, whole


def measure(bench: Bench) -> list[GpuFigure]:
    """The stem once and every top once, as static passes, against the engine that is fed."""
    scale, kind = bench.scale, bench.kind
    torch.manual_seed(0)
    base = TextModel(scale, top_layers=scale.top_layers)
    modules = []
    for _ in range(scale.tops):
        module = copy.deepcopy(base)
        module.top = Top(scale, scale.top_layers)
        modules.append(module)
    rows = token_rows(scale, scale.rows)
    references = [bench.reference(module, rows.tensors["ids"]) for module in modules]
    device = bench.device()
    names = [("text", f"t{number}") for number in range(scale.tops)]
    trunk = Trunk({name: adopted(device, module) for name, module in zip(names, modules, strict=True)})
    first = modules[0]
    (ids,) = bench.fed(first, rows.tensors["ids"])
    mask = (ids != 0)[:, None, None, :]
    with torch.inference_mode():
        x = first.stem(ids, mask)
    stem = static_pass(lambda: first.stem(ids, (ids != 0)[:, None, None, :]), kind)
    tops = static_pass(lambda: [module.top(x, mask) for module in modules], kind)
    one = static_pass(lambda: first(ids), kind)
    path = Fed(device, [(trunk, rows, whole(rows, *names))])
    runs = [
        lambda: path.seconds(scale.seconds),
        lambda: seconds_each(stem, kind, scale.seconds),
        lambda: seconds_each(tops, kind, scale.seconds),
        lambda: seconds_each(one, kind, scale.seconds),
    ]
    ours, stem_s, tops_s, one_s = in_turn(runs, scale.rounds)
    ideal = [a + b for a, b in zip(stem_s, tops_s, strict=True)]
    said = answered(device, trunk, rows, whole(rows, *names))
    found = [noise(a["out"], b) for a, b in zip(said, references, strict=True)]
    against = (
        f"stem and {scale.tops} tops alone; as {scale.tops} models it would be "
        f"{scale.tops * median_ratio(one_s, ours):.2g} times as much"
    )
    return [
        GpuFigure(
            "gpu.trunk", 1e3 * sorted(ours)[len(ours) // 2], "ms a batch", against,
            median_ratio(ideal, ours), 0.85, max(n for n, _ in found), max(f for _, f in found),
        )
    ]  # fmt: skip
