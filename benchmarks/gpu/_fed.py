"""Rows per second of a transformer through the whole engine, fed from the CPU."""

import time

import torch

from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.asks import Ask, AskAnswer
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion

from ._figures import GpuFigure
from ._floor import in_turn, median_ratio, noise, seconds_each, static_pass
from ._models import TextModel, texts, token_rows
from ._setup import NAME, Bench, adopted

BLOCKS_A_BATCH = 2
QUEUED_BATCHES = 4


def measure(bench: Bench) -> list[GpuFigure]:
    """Texts of one length, against a loop over the same batch that lies on the device."""
    scale, kind = bench.scale, bench.kind
    torch.manual_seed(0)
    module = TextModel(scale)
    rows = token_rows(scale, scale.rows)
    reference = bench.reference(module, rows.tensors["ids"])
    device = bench.device()
    runner = adopted(device, module)
    engine = Engine(device, batch_rows=scale.rows)
    engine.add(LoadedVersion(NAME, Source("torch", "benchmark"), runner))
    blocks = [texts(scale, scale.rows // BLOCKS_A_BATCH, seed=seed) for seed in range(8)]
    (ids,) = bench.fed(module, rows.tensors["ids"])
    still = static_pass(lambda: module(ids), kind)
    numbers = iter(range(1 << 40))

    def ask(seed: int) -> None:
        engine.submit(Ask(next(numbers), NAME[0], (NAME[1],), blocks[seed % len(blocks)]))

    def path() -> float:
        clock = time.perf_counter if kind == "cuda" else time.process_time
        began, answered = clock(), 0
        while clock() - began < scale.seconds:
            while engine.waiting < QUEUED_BATCHES * BLOCKS_A_BATCH:
                ask(answered)
            answered += len(checked(engine.step()))
        while engine.waiting:
            answered += len(checked(engine.step()))
        return answered * (scale.rows // BLOCKS_A_BATCH) / (clock() - began)

    def floor() -> float:
        return scale.rows / seconds_each(still, kind, scale.seconds)

    ours, theirs = in_turn([path, floor], scale.rounds)
    engine.submit(Ask(next(numbers), NAME[0], (NAME[1],), texts(scale, scale.rows)))
    answers: list[AskAnswer] = []
    while engine.waiting:
        answers += checked(engine.step())
    outputs = answers[0].outputs
    assert outputs is not None
    said = torch.from_numpy(outputs["probs"]).clamp(min=1e-12).log()
    largest, flips = noise(said, reference)
    return [
        GpuFigure(
            "gpu.fed", sorted(ours)[len(ours) // 2], "rows/s", "static loop",
            median_ratio(ours, theirs), 0.95, largest, flips,
        )
    ]  # fmt: skip


def checked(answers: list[AskAnswer]) -> list[AskAnswer]:
    """The answers, all of which are there."""
    for answer in answers:
        if answer.failure:
            raise RuntimeError(f"ask {answer.number}: {answer.failure}")
    return answers
