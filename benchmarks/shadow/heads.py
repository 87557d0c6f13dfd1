"""Eight versions of one base through the engine, against the arithmetic ideal: each part once.

The ideal is a loop written by hand over tensors that are encoded already, in the static batches that were
fastest just before: trunk once, then the eight heads, or upper blocks, on what it says. The trunk executor is
given the versions as whole modules, finds what is equal, and runs the same batches; the engine (``.engine``)
is given records as Arrow batches, and also encodes, joins, takes apart, decodes and checks four outputs of
each version. One thread; seconds of the thread's own processor time; ideal and path in turn, medians of the
ratios of pairs. Eight separate modules in the same static batches beside it say what sharing saves.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.asks import Ask
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion, Segment
from outrider.monitor.engine.trunks.trunk import Trunk

ROUNDS = 9
VERSIONS = 8
STATIC_ROWS = (4, 8, 16, 32, 64, 256, 1024)
WIDTH = 384


class Transformer(nn.Module):
    """Six layers of width 384 over vectors of 64 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, WIDTH)
        self.layers = nn.ModuleList(_layer() for _ in range(6))
        self.head = nn.Linear(WIDTH, 10)

    def lower(self, x: torch.Tensor, layers: int) -> torch.Tensor:
        """States behind some layers, (rows, positions, width)."""
        hidden: torch.Tensor = self.embed(x)
        for layer in self.layers[:layers]:
            hidden = layer(hidden)
        return hidden

    def upper(self, hidden: torch.Tensor, layers: int) -> torch.Tensor:
        """Logits of states behind some layers."""
        for layer in self.layers[layers:]:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(hidden.mean(1))
        return logits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (rows, 10) of (rows, positions, 64)."""
        return self.upper(self.lower(x, 3), 3)


class Contained(Transformer):
    """The same in torch's own container, whose code fx cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        del self.layers
        self.encoder = nn.TransformerEncoder(_layer(), 6, enable_nested_tensor=False)

    def lower(self, x: torch.Tensor, layers: int) -> torch.Tensor:
        """States behind some layers."""
        hidden: torch.Tensor = self.embed(x)
        for layer in self.encoder.layers[:layers]:
            hidden = layer(hidden)
        return hidden

    def upper(self, hidden: torch.Tensor, layers: int) -> torch.Tensor:
        """Logits of states behind some layers."""
        for layer in self.encoder.layers[layers:]:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(hidden.mean(1))
        return logits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (rows, 10) of (rows, positions, 64)."""
        logits: torch.Tensor = self.head(self.encoder(self.embed(x)).mean(1))
        return logits


def _layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, batch_first=True, norm_first=True)


class Stack(nn.Sequential):
    """Layers one behind the other."""

    def lower(self, x: torch.Tensor, layers: int) -> torch.Tensor:
        """What comes out of the first layers."""
        for layer in list(self)[:layers]:
            x = layer(x)
        return x

    def upper(self, hidden: torch.Tensor, layers: int) -> torch.Tensor:
        """What the others make of it."""
        for layer in list(self)[layers:]:
            hidden = layer(hidden)
        return hidden


def cnn() -> Stack:
    """A CNN of the size that watches a 28 x 28 stream."""
    return Stack(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp() -> Stack:
    """64-256-256-10."""
    sizes = (nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return Stack(*sizes)


@dataclass(frozen=True, slots=True)
class Case:
    """A base, how many of its layers are shared, and the parameters that each version has of its own."""

    name: str
    base: Transformer | Stack
    shared: int
    own: tuple[str, ...]
    values: np.ndarray
    ask_rows: int
    shown: str

    def versions(self) -> list[Transformer | Stack]:
        """Whole modules, in memory of their own."""
        draw = torch.Generator().manual_seed(1)
        made = []
        for _ in range(VERSIONS):
            module = copy.deepcopy(self.base).eval()
            for name, parameter in module.named_parameters():
                if name.startswith(self.own):
                    parameter.data += torch.randn(parameter.shape, generator=draw) * 0.02
            made.append(module)
        return made


def cases() -> list[Case]:
    """What is measured."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    sequences = rng.random((32, 32, 64), dtype=np.float32)
    images = rng.random((2048, 28, 28), dtype=np.float32)
    vectors = rng.random((16_384, 64), dtype=np.float32)
    plain, contained = Transformer(), Contained()
    return [
        Case("transformer.heads", plain, 6, ("head",), sequences, 16, "six layers of width 384, a head each"),
        Case(
            "transformer.upper_blocks",
            plain,
            5,
            ("layers.5", "head"),
            sequences,
            16,
            "the same, the sixth layer and a head each",
        ),
        Case(
            "contained.upper_blocks",
            contained,
            5,
            ("encoder.layers.5", "head"),
            sequences,
            16,
            "the same in `nn.TransformerEncoder`, which cannot be traced",
        ),
        Case("cnn.heads", cnn(), 8, ("8", "10"), images, 256, "CNN over 28 x 28, two linear layers each"),
        Case("mlp.heads", mlp(), 4, ("4",), vectors, 1024, "64-256-256-10, the last layer each"),
    ]


def seconds(run: Callable[[], object]) -> float:
    """Processor time of this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


def static_batches(case: Case, rows: int) -> list[torch.Tensor]:
    """Tensors of all records in batches."""
    return list(torch.split(torch.from_numpy(case.values), rows))


@torch.inference_mode()
def ideal(case: Case, versions: Sequence[Transformer | Stack], batches: Sequence[torch.Tensor]) -> None:
    """The shared part once, the own part of every version once."""
    for batch in batches:
        hidden = versions[0].lower(batch, case.shared)
        for version in versions:
            version.upper(hidden, case.shared)


@torch.inference_mode()
def separate(versions: Sequence[Transformer | Stack], batches: Sequence[torch.Tensor]) -> None:
    """Every version whole, one behind the other."""
    for batch in batches:
        for version in versions:
            version(batch)


def fastest(case: Case, versions: Sequence[Transformer | Stack]) -> list[torch.Tensor]:
    """The batches in which the ideal is fastest."""
    tried = {rows: static_batches(case, rows) for rows in STATIC_ROWS if rows <= len(case.values)}
    took: dict[int, float] = dict.fromkeys(tried, float("inf"))
    for _ in range(3):
        for rows, batches in tried.items():
            took[rows] = min(took[rows], seconds(lambda b=batches: ideal(case, versions, b)))  # type: ignore[misc]  # bound
    return tried[min(took, key=lambda rows: took[rows])]


def engine_of(case: Case, versions: Sequence[Transformer | Stack]) -> Callable[[], None]:
    """What lets an engine with all versions, which is warm, answer all records."""
    engine = Engine()
    source = Source("torch", "model.py:build", inputs=("x",))
    for number, module in enumerate(versions):
        runner = TorchRunner(module, inputs=["x"], classes=list(range(10)))
        engine.add(LoadedVersion(("m", str(number)), source, runner))
    names = tuple(str(number) for number in range(len(versions)))
    batches = [
        Batch.from_columns({"inputs.x": case.values[at : at + case.ask_rows]}, model="m")
        for at in range(0, len(case.values), case.ask_rows)
    ]
    engine.warm_up(("m", "0"), batches[0])

    def answer() -> None:
        for number, batch in enumerate(batches):
            engine.submit(Ask(number, "m", names, batch))
        answers = 0
        while engine.waiting:
            for found in engine.step():
                assert not found.failure, found.failure
                answers += 1
        assert answers == len(batches) * len(names)

    answer()
    return answer


def measure(case: Case) -> str:
    """Print the figures of one case; its row of the table."""
    mine = case.versions()
    batches, answer = fastest(case, mine), engine_of(case, case.versions())
    trunk = Trunk({("m", str(n)): TorchRunner(m, inputs=["x"]) for n, m in enumerate(case.versions())})
    run(trunk, batches[:1])
    rounds = [
        (
            seconds(lambda: ideal(case, mine, batches)),
            seconds(lambda: run(trunk, batches)),
            seconds(answer),
        )
        for _ in range(ROUNDS)
    ]
    answers = len(case.values) * VERSIONS
    whole = [seconds(lambda: separate(mine, batches)) for _ in range(3)]
    floor, passes, took = (statistics.median(column) for column in zip(*rounds, strict=True))
    data = (
        f"{VERSIONS} versions of one base, {len(case.values)} records, 1 thread, CPU seconds of it, in turn"
    )
    against = f"trunk once, own parts by hand, batches of {len(batches[0])}, {answers / floor:.0f} answers/s"
    made = []
    for name, at, spent in (("", 1, passes), (".engine", 2, took)):
        ratios = [found[0] / found[at] for found in rounds]
        stem = f"shadow.heads.{case.name}{name}"
        made.append(Figure.of_pairs(stem, answers / spent, "answers/s", against, ratios, 0.85, data=data))
    made.append(
        Figure(
            f"shadow.heads.{case.name}.separate", took, "s",
            f"{VERSIONS} separate modules in the same static batches, {statistics.median(whole):.3g} s",
            statistics.median(whole) / took, n=len(whole), data=data,
        )
    )  # fmt: skip
    made.append(
        Figure(
            f"shadow.heads.{case.name}.memory", trunk.held_bytes / 1e6, "MB of weights",
            f"{VERSIONS} separate modules, {trunk.separate_bytes / 1e6:.1f} MB",
            trunk.held_bytes / trunk.separate_bytes, data=data,
        )
    )  # fmt: skip
    for figure in made:
        figure.show()
    alone, engine, apart, memory = made
    shown = [f"{one.ratio:.2f} ({one.low:.2f} to {one.high:.2f})" for one in (alone, engine)]
    return f"| {case.shown} | {shown[0]} | {shown[1]} | {apart.ratio:.1f} | {memory.ratio:.2f} |"


@torch.inference_mode()
def run(trunk: Trunk, batches: Sequence[torch.Tensor]) -> None:
    """Raw answers of all versions."""
    for batch in batches:
        trunk.run({"x": batch}, [Segment(name, 0, len(batch)) for name in trunk.names])


def main() -> None:
    """Measure all cases, or those whose names begin as the arguments say."""
    torch.set_num_threads(1)
    rows = [measure(case) for case in cases() if case.name.startswith(tuple(sys.argv[1:]) or "")]
    lines = [
        f"| eight versions, {ROUNDS} pairs | passes, of the ideal | whole engine, of the ideal "
        "| times as fast as separate modules | of their memory |",
        "|---|---|---|---|---|",
        *rows,
    ]
    show_table("cases", "\n".join(lines))


if __name__ == "__main__":
    main()
