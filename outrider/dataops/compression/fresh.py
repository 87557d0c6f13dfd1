"""Measurement of a variant in a process of its own, which nothing made here helps or harms.

``python -m outrider.dataops.compression.fresh`` reads a pickled :class:`Fresh`, loads the version as the
service would, and ends its output with a line of figures.
"""

import gc
import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.dataops.model_kinds.source import Source
from outrider.errors import OutriderError

from .likeness import Answers, Likeness, answers_of, likeness
from .timing import Cost, Effort, measure

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Fresh:
    """Version to load, and the answers to compare with."""

    source: Source
    weights: bytes | None
    folder: Path
    champion: bytes
    again: bytes
    """``champion`` and ``again``: the champion's answers, computed twice, as Arrow IPC."""
    ruler: Ruler
    effort: Effort
    device: str
    threads: int


def measured_afresh(asked: Fresh, *, timeout_s: float = TIMEOUT_S) -> tuple[Cost, Likeness, float | None]:
    """Cost and likeness of a version, and the megabytes that loading it took (None if unknown).

    Raises
    ------
    OutriderError
        If the process fails or takes longer than ``timeout_s``; the message ends with its errors.
    """
    command = [sys.executable, "-m", "outrider.dataops.compression.fresh"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps(asked), capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise OutriderError(f"the fresh process gave no result within {timeout_s:g} s") from None
    if done.returncode:
        end = done.stderr.decode(errors="replace")[-500:].strip()
        raise OutriderError(f"the fresh process ended with {done.returncode}: {end}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Cost(**found["cost"]), Likeness(**found["likeness"]), found["resident_mb"]


def main(asked: Fresh) -> dict[str, Any]:
    """Measure a version in this process."""
    import torch

    from outrider.dataops.model_kinds.loading import is_runner, load_model

    torch.set_num_threads(asked.threads)
    champion = Answers(Batch.from_ipc(asked.champion), Batch.from_ipc(asked.again))
    before = _resident_mb()
    runner = load_model(asked.source, folder=asked.folder, weights=asked.weights, device=asked.device)
    if not is_runner(runner):
        raise OutriderError("a runner of tensors expected")
    rows = runner.encode(champion.first)
    answers = answers_of(runner, champion.first, rows)
    gc.collect()
    after = _resident_mb()
    return {
        "cost": asdict(measure(runner, champion.first, rows, asked.effort)),
        "likeness": asdict(likeness(champion, answers, asked.ruler)),
        "resident_mb": None if before is None or after is None else after - before,
    }


def _resident_mb() -> float | None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    print(json.dumps(main(pickle.load(sys.stdin.buffer))))  # noqa: T201 - its result
