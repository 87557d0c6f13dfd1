"""The engine's batcher against the static-batch ceiling, beside it a design of one asyncio future per row.

The ceiling is the bare module over tensors that are encoded already, sorted by length, in static batches of
the two sizes that were fastest just before, whichever is faster in each round. The engine is given the same
records as Arrow batches and does the rest: encode them, sort, join, run, take apart, decode. One thread;
seconds of the thread's own processor time, so that other work beside it counts for nobody; ceiling and path
in turn, median of the ratios of pairs.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.asks import Ask
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion

ROUNDS = 11
OTHER_ROUNDS = 2
STATIC_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WIDTH = 384
WORDS = 8192


class Transformer(nn.Module):
    """Six layers of width 384 over token ids; 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (rows, 2) of ids (rows, positions)."""
        hidden = self.layers(self.embed(ids), src_key_padding_mask=ids == 0)  # (B, T, C)
        logits: torch.Tensor = self.head(hidden[:, 0])
        return logits


class TokenRunner(TorchRunner):
    """Ids in a tensor column, padded with 0 on the right."""

    def encode(self, batch: Batch, /) -> EncodedRows:
        """Ids and their lengths."""
        ids = np.array(batch.tensor("inputs.x"))
        return EncodedRows({"x": torch.from_numpy(ids)}, (ids != 0).sum(axis=1))


def cnn() -> nn.Module:
    """A CNN of the size that watches a 28 x 28 stream."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp() -> nn.Module:
    """64-256-256-10."""
    sizes = (nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(*sizes)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, its records, and how many of them come in one ask."""

    name: str
    runner: Runner
    values: np.ndarray
    ask_rows: int
    target: float | None


def cases() -> list[Case]:
    """What is measured."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    words = rng.integers(1, WORDS, (48, 64))
    even = words[:24, :32].copy()
    lengths = np.clip(np.rint(rng.lognormal(2.8, 0.6, len(words))), 2, 64)  # of sentences, mean 20
    uneven = np.where(np.arange(64) < lengths[:, None], words, 0)
    tokens = TokenRunner(Transformer(), inputs=["x"], classes=[0, 1])
    classes = list(range(10))
    images = rng.random((2048, 28, 28), dtype=np.float32)
    vectors = rng.random((32_768, 64), dtype=np.float32)
    network = TorchRunner(mlp(), inputs=["x"], classes=classes)
    return [
        Case("transformer", tokens, even, 8, 0.95),
        Case("transformer.lengths", tokens, uneven, 16, None),
        Case("cnn", TorchRunner(cnn(), inputs=["x"], classes=classes), images, 256, 0.95),
        Case("mlp", network, vectors, 1024, 0.9),
        Case("mlp.blocks_of_64", network, vectors[:8192], 64, None),
    ]


def seconds(run: Callable[[], object]) -> float:
    """Processor time of this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


# ---- the ceiling -------------------------------------------------------------------------------------------


def static_batches(case: Case, rows: int) -> list[torch.Tensor]:
    """Tensors of all records in batches, sorted by length, each as narrow as it can be."""
    encoded = case.runner.encode(Batch.from_columns({"inputs.x": case.values}, model="m"))
    if encoded.lengths is not None:
        encoded = encoded.take(np.argsort(encoded.lengths, kind="stable"))
    parts = [encoded.slice(at, min(at + rows, encoded.count)) for at in range(0, encoded.count, rows)]
    return [part.tensors["x"].contiguous() for part in parts]


def ceiling(case: Case) -> Callable[[], float]:
    """Seconds of the bare loop, in the faster of the two sizes of batches that were fastest."""

    def loop(batches: list[torch.Tensor]) -> None:
        with torch.inference_mode():
            for batch in batches:
                case.runner.module(batch)

    sizes = [rows for rows in STATIC_ROWS if len(case.values) // 1024 <= rows <= len(case.values)]
    tried = {rows: static_batches(case, rows) for rows in sizes}
    for batches in tried.values():
        loop(batches[:1])
    took = {rows: min(seconds(lambda b=b: loop(b)) for _ in range(3)) for rows, b in tried.items()}  # type: ignore[misc]  # b is bound
    fastest = [tried[rows] for rows in sorted(took, key=lambda rows: took[rows])[:2]]
    return lambda: min(seconds(lambda b=b: loop(b)) for b in fastest)  # type: ignore[misc]  # b is bound


# ---- the engine --------------------------------------------------------------------------------------------


def asks(case: Case) -> list[Batch]:
    """The records as the worker has them."""
    rows = case.ask_rows
    parts = [case.values[at : at + rows] for at in range(0, len(case.values), rows)]
    return [Batch.from_columns({"inputs.x": part}, model="m") for part in parts]


def engine_of(case: Case) -> tuple[Engine, Callable[[], None]]:
    """An engine that has the model, and a run of all asks through it."""
    engine = Engine()
    engine.add(LoadedVersion(("m", "1"), Source("torch", "m.py:m"), case.runner))
    batches = asks(case)
    whole = Batch.concat(batches).slice(0, min(len(case.values), 512))
    engine.warm_up(("m", "1"), whole)

    def run() -> None:
        fresh = [batch.own() for batch in batches]
        for number, batch in enumerate(fresh):
            engine.submit(Ask(number, "m", ("1",), batch))
        answered = 0
        while engine.waiting:
            for answer in engine.step():
                assert answer.outputs is not None, answer.failure
                answered += len(answer.outputs["label"])
        assert answered == len(case.values)

    return engine, run


# ---- a future per row --------------------------------------------------------------------------------------


class FuturePerRow:
    """The usual design: every row is a future, batches are cut by size or by a timer."""

    def __init__(self, runner: Runner, rows: int, wait_s: float = 0.002) -> None:
        self._runner, self._rows, self._wait_s = runner, rows, wait_s
        self._queue: asyncio.Queue[tuple[torch.Tensor, asyncio.Future[Any]]] = asyncio.Queue()

    async def predict(self, row: torch.Tensor) -> Any:
        """Outputs of one row."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((row, future))
        return await future

    async def serve(self) -> None:
        """Run batches for ever."""
        loop = asyncio.get_running_loop()
        while True:
            taken = [await self._queue.get()]
            ends = loop.time() + self._wait_s
            while len(taken) < self._rows and (self._queue.qsize() or loop.time() < ends):
                try:
                    taken.append(await asyncio.wait_for(self._queue.get(), ends - loop.time()))
                except TimeoutError:
                    break
            with torch.inference_mode():
                answers = self._runner.run({"x": torch.stack([row for row, _ in taken])})
            outputs = self._runner.decode(answers)
            for at, (_, future) in enumerate(taken):
                future.set_result({name: values[at] for name, values in outputs.items()})


def per_row(case: Case, rows: int) -> Callable[[], None]:
    """All records through a future each, 256 callers at a time."""
    tensors = torch.cat([case.runner.encode(batch).tensors["x"] for batch in asks(case)])

    async def everything() -> None:
        batcher = FuturePerRow(case.runner, rows)
        server = asyncio.create_task(batcher.serve())

        async def caller(own: torch.Tensor) -> None:
            for row in own:
                await batcher.predict(row)

        await asyncio.gather(*(caller(own) for own in torch.chunk(tensors, 256)))
        server.cancel()

    return lambda: asyncio.run(everything())


def measure(case: Case) -> None:
    """Print the figures of one case."""
    static = ceiling(case)
    engine, path = engine_of(case)
    futures = per_row(case, min(max(engine.best_rows(("m", "1")).values()), 256))
    for run in (static, path, futures):
        run()
    pairs = [(static(), seconds(path)) for _ in range(ROUNDS)]
    others = [(static(), seconds(futures)) for _ in range(OTHER_ROUNDS)]
    floor = statistics.median(bare for bare, _ in pairs)
    for name, timed, target in (("", pairs, case.target), (".future_per_row", others, None)):
        Figure.of_pairs(
            f"shadow.batcher.{case.name}{name}",
            len(case.values) / statistics.median(took for _, took in timed),
            "records/s",
            f"static batches, {len(case.values) / floor:.0f} records/s",
            [bare / took for bare, took in timed],
            target,
            data=f"{len(case.values)} records, 1 thread, CPU seconds of it, in turn",
        ).show()


def main(names: Sequence[str] = ()) -> None:
    """Measure all cases, or those named."""
    torch.set_num_threads(1)
    for case in cases():
        if not names or case.name in names:
            measure(case)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:] if __package__ and sys.argv[0].endswith("batcher.py") else ())
