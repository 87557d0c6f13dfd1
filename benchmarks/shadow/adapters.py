"""Adapters of one base, mixed at random in a batch, beside the base alone and beside PEFT.

One thread, CPU seconds of it, base and mixture in turn: ratios are medians over pairs. The base is a
transformer of six layers, 384 wide, as `transformers` runs it; adapters are made and saved by PEFT and read
from their folders. Arithmetic is what torch counts of the base, and the two products of every adapted layer.
"""

import argparse
import copy
import gc
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.figure import Figure, show_table
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter import read_adapter
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.adapters.mixed import Mixed, mixed
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import Segment

WIDTH, LAYERS, WORDS = 384, 6, 8192
ADAPTERS, RANK, PREFIX = 8, 16, 16
ALL, QUERY_VALUE = "all-linear", ["query", "value"]
CLOSE = 1e-5
DATA = (
    f"BERT of {LAYERS} x {WIDTH}, {ADAPTERS} adapters at random over 64 records, one thread, "
    "CPU seconds of it, in turn"
)


@dataclass(frozen=True)
class Shape:
    """Records of a batch, and tokens of each."""

    rows: int
    tokens: int

    @property
    def name(self) -> str:
        """As it stands in names of figures."""
        return f"{self.rows}x{self.tokens}"


SHAPES = (Shape(64, 64), Shape(64, 16))


class TextRunner(TorchRunner):
    """A Hugging Face classifier fed with tokens that are at hand."""

    def run(self, tensors: Mapping[str, torch.Tensor], /) -> dict[str, torch.Tensor]:
        """Logits."""
        return {"out": self.module(**tensors).logits}


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # PEFT uses what transformers has deprecated
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        home = Path(folder)
        rows = {
            f"LoRA of rank {RANK}, all linear layers": low_rank("all_linears", ALL, home / "all", rounds),
            f"LoRA of rank {RANK}, query and value": low_rank(
                "query_value", QUERY_VALUE, home / "some", rounds
            ),
            f"prefixes of {PREFIX} tokens": prefixes(home / "prefixes", rounds),
        }
    lengths = " · ".join(str(shape.tokens) for shape in SHAPES)
    lines = [
        f"| | of the base's rows/s, {lengths} tokens | of the arithmetic | PEFT beside it "
        "| memory, of base and adapters |",
        "|---|---|---|---|---|",
        *(f"| {kind} | {row} |" for kind, row in rows.items()),
    ]
    show_table("ratios", "\n".join(lines))


def low_rank(name: str, targets: Any, home: Path, rounds: int) -> str:
    """Figures of LoRA adapters; cells of their row."""
    from peft import LoraConfig

    base = bert()
    config = LoraConfig(task_type="SEQ_CLS", target_modules=targets, r=RANK)
    folders = save(base, config, home)
    executor, most = build(base, folders)
    least = 0.85 if targets == ALL else 0.90
    rival = peft_mixture(base, folders)
    found = []
    for shape in SHAPES:
        fed, cuts = batch(shape, executor.names)
        of_rows = [cut.name[1] for cut in cuts for _ in range(cut.stop - cut.start)]
        executor.run(fed, cuts)  # the first batch is also answered one by one
        times = in_turn(
            {
                "base": partial(base, **fed),
                "mixed": partial(executor.run, fed, cuts),
                "peft": partial(rival, **fed, adapter_names=of_rows),
            },
            rounds if shape.tokens > 32 else 3 * rounds,
        )
        ideal = base_flops(base, fed) / (base_flops(base, fed) + adapter_flops(folders, shape))
        found.append(report(f"{name}.{shape.name}", shape, times, least=least, ideal=ideal))
    fed, cuts = batch(SHAPES[0], executor.names)
    memory = show_memory(name, most, 1.05)
    show_difference(name, executor, fed, cuts, peft_one_by_one(base, folders))
    return cells(found, "`adapter_names`", memory)


def prefixes(home: Path, rounds: int) -> str:
    """Figures of prefix-tuned variants; cells of their row."""
    from peft import PrefixTuningConfig

    base = bert()
    folders = save(base, PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=PREFIX), home)
    executor, most = build(base, folders)
    alone = peft_one_by_one(base, folders)
    found = []
    for shape in SHAPES:
        fed, cuts = batch(shape, executor.names)
        parts = [(c.name, {n: t[c.start : c.stop] for n, t in fed.items()}) for c in cuts]
        executor.run(fed, cuts)
        times = in_turn(
            {
                "base": partial(base, **fed),
                "mixed": partial(executor.run, fed, cuts),
                "peft": partial(one_by_one, alone, parts),
            },
            rounds if shape.tokens > 32 else 3 * rounds,
        )
        found.append(report(f"prefixes.{shape.name}", shape, times, least=0.85, ideal=None))
    fed, cuts = batch(SHAPES[0], executor.names)
    memory = show_memory("prefixes", most, 1.1)
    show_difference("prefixes", executor, fed, cuts, alone)
    return cells(found, "a pass per adapter", memory)


# ---- models ------------------------------------------------------------------------------------------------


def bert() -> Any:
    """The base."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=WIDTH // 32,
        intermediate_size=4 * WIDTH,
    )  # fmt: skip
    module: Any = BertForSequenceClassification(config)
    return module.eval()


def save(base: Any, config: Any, home: Path) -> list[Path]:
    """Folders of adapters, every part random."""
    from peft import get_peft_model

    folders = []
    for number in range(ADAPTERS):
        torch.manual_seed(number + 1)
        made = get_peft_model(copy.deepcopy(base), copy.deepcopy(config))
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.data.add_(torch.randn_like(parameter) * 0.02)
        made.save_pretrained(home / str(number))
        folders.append(home / str(number))
    return folders


@dataclass(frozen=True)
class Held:
    """Bytes of tensors: what is held beyond the base, and what the adapters are."""

    held: int
    base: int
    adapters: int


def build(base: Any, folders: Sequence[Path]) -> tuple[Mixed, Held]:
    """The executor, with what it holds once it has run."""
    own = sum(storages().values())
    adapters = [read_adapter(folder) for folder in folders]
    runners: dict[Name, Runner] = {
        ("m", str(n)): AdaptedRunner(TextRunner(base, inputs=()), adapter)
        for n, adapter in enumerate(adapters)
    }
    executor = mixed(runners)
    fed, cuts = batch(SHAPES[0], executor.names)
    for _ in range(2):
        executor.run(fed, cuts)
    given = sum(t.nbytes for t in fed.values())
    brought = sum(t.nbytes for adapter in adapters for t in adapter.tensors)
    weights = sum(t.nbytes for t in base.state_dict().values())
    held = sum(storages().values()) - own - given
    return executor, Held(held, weights, brought)


def storages() -> dict[int, int]:
    """Bytes of every tensor of this process, by their place: each once."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if isinstance(found, torch.Tensor)]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


def peft_mixture(base: Any, folders: Sequence[Path]) -> Any:
    """PEFT's own way to mix LoRA adapters in a batch: ``adapter_names``."""
    from peft import PeftModel

    module = PeftModel.from_pretrained(copy.deepcopy(base), folders[0], adapter_name="0")
    for number, folder in enumerate(folders[1:], 1):
        module.load_adapter(folder, adapter_name=str(number))
    return module.eval()


def peft_one_by_one(base: Any, folders: Sequence[Path]) -> Callable[[Name], Any]:
    """PEFT's module of each adapter by itself."""
    from peft import PeftModel

    made = [PeftModel.from_pretrained(copy.deepcopy(base), folder).eval() for folder in folders]
    return lambda name: made[int(name[1])]


def one_by_one(
    alone: Callable[[Name], Any], parts: Sequence[tuple[Name, Mapping[str, torch.Tensor]]]
) -> None:
    """A pass for each adapter: PEFT cannot mix prefixes."""
    for name, part in parts:
        alone(name)(**part)


def batch(shape: Shape, names: Sequence[Name]) -> tuple[dict[str, torch.Tensor], list[Segment]]:
    """Tokens, and whose rows they are: drawn at random, those of an adapter side by side."""
    random = np.random.default_rng(3)
    shares = random.multinomial(shape.rows, [1 / len(names)] * len(names))
    ends = shares.cumsum().tolist()
    starts = [0, *ends[:-1]]
    ids = torch.from_numpy(random.integers(1, WORDS, (shape.rows, shape.tokens)))
    cuts = [Segment(n, a, z) for n, a, z in zip(names, starts, ends, strict=True) if z > a]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, cuts


# ---- measuring ---------------------------------------------------------------------------------------------


def in_turn(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each way in each round."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for at in range(rounds + 2):
        for name, way in ways.items():
            began = time.thread_time()
            way()
            if at > 1:
                found[name].append(time.thread_time() - began)
    return found


def report(
    name: str, shape: Shape, times: Mapping[str, Sequence[float]], *, least: float, ideal: float | None
) -> tuple[Figure, Figure | None, Figure]:
    """Rates against the base, against the arithmetic, and those of PEFT."""
    stem = f"shadow.adapters.{name}"
    rate, ratios = shape.rows / statistics.median(times["mixed"]), ratios_of(times["base"], times["mixed"])
    own = Figure.of_pairs(stem, rate, "rows/s", "base alone", ratios, least, data=DATA)
    bare = None
    if ideal is not None:
        against = [ratio / ideal for ratio in ratios]
        bare = Figure.of_pairs(f"{stem}.ideal", rate, "rows/s", "arithmetic", against, 0.92, data=DATA)
    rate, ratios = shape.rows / statistics.median(times["peft"]), ratios_of(times["base"], times["peft"])
    peft = Figure.of_pairs(f"{stem}.peft", rate, "rows/s", "base alone", ratios, data=DATA)
    for figure in filter(None, (own, bare, peft)):
        figure.show()
    return own, bare, peft


def cells(found: Sequence[tuple[Figure, Figure | None, Figure]], peft: str, memory: float) -> str:
    """Ratios of both shapes, the interval of the first column beside them."""
    own = " · ".join(f"{one.ratio:.2f} ({one.low:.2f} to {one.high:.2f}) of {one.n}" for one, _, _ in found)
    bare = " · ".join(f"{one.ratio:.2f}" for _, one, _ in found if one)
    beside = " · ".join(f"{one.ratio:.2f}" for _, _, one in found)
    return f"{own} | {bare} | {beside} ({peft}) | {memory:.2f}"


def ratios_of(floor: Sequence[float], own: Sequence[float]) -> list[float]:
    """How much of the floor's rate each round reached."""
    return [f / o for f, o in zip(floor, own, strict=True)]


def base_flops(base: Any, fed: Mapping[str, torch.Tensor]) -> int:
    """Operations of a pass of the base."""
    slow = copy.deepcopy(base)
    slow.config._attn_implementation = "eager"  # torch counts no fused attention on the CPU
    with FlopCounterMode(display=False) as counter:
        slow(**fed)
    return int(counter.get_total_flops())


def adapter_flops(folders: Sequence[Path], shape: Shape) -> int:
    """Operations of one adapter over all rows."""
    numbers = {"pooler": 0, "others": 0}
    for name, pair in read_adapter(folders[0]).low_rank.items():
        numbers["pooler" if "pooler" in name else "others"] += pair.down.numel() + pair.up.numel()
    # the pooler reads one token of each text
    return 2 * shape.rows * (shape.tokens * numbers["others"] + numbers["pooler"])


def show_memory(name: str, most: Held, limit: float) -> float:
    """What the weights take, against base and adapters one by one; their ratio."""
    whole = most.base + most.held
    allowed = limit * (most.base + most.adapters)
    Figure(
        f"shadow.adapters.{name}.memory",
        whole / 1e6,
        "MB",
        f"{limit} of base and adapters",
        allowed / whole,
        1.0,
    ).show()
    return whole / (most.base + most.adapters)


def show_difference(
    name: str,
    executor: Mixed,
    fed: Mapping[str, torch.Tensor],
    cuts: Sequence[Segment],
    alone: Callable[[Name], Any],
) -> None:
    """Largest difference to PEFT's answers of each adapter alone."""
    worst = 0.0
    for cut, found in zip(cuts, executor.run(dict(fed), cuts), strict=True):
        expected = alone(cut.name)(**{n: t[cut.start : cut.stop] for n, t in fed.items()}).logits
        worst = max(worst, float((found["out"] - expected).abs().max()))
    Figure(
        f"shadow.adapters.{name}.difference", worst, "logit", "1e-5", CLOSE / max(worst, 1e-12), 1.0
    ).show()


if __name__ == "__main__":
    main()
