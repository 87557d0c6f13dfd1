"""Fresh measurement of a variant in a process of its own.

Nothing that the search left behind helps or harms it.

``python -m outrider.dataops.compression.fresh_measurement FOLDER`` reads what :func:`ask_fresh` wrote there,
loads the version as the service would, and prints its figures as JSON.
"""

import dataclasses
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.dataops.model_kinds.source import Source
from outrider.errors import OutriderError

from .likeness import Likeness, likeness
from .timing import Cost, Effort

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Figures from a fresh process, on records unseen by the search."""

    cost: Cost
    likeness: Likeness
    resident_mb: float
    """Memory that the process gained by loading the version and answering once; nan where nobody says."""

    @property
    def figures(self) -> dict[str, float | None]:
        """Figures measured here that an objective may bound, by name."""
        return {
            "p50_ms": self.cost.p50_ms,
            "p99_ms": self.cost.p99_ms,
            "rows_per_s": self.cost.rows_per_s,
            "memory_mb": self.cost.memory_bytes / 1e6,
            "agreement": self.likeness.agreement,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        known = self.resident_mb if self.resident_mb == self.resident_mb else None
        like = self.likeness
        return {
            **self.figures,
            "agreement_low": like.low,
            "noise": like.noise,
            "rows": like.rows,
            "calls": self.cost.calls,
            "resident_mb": known,
        }


def ask_fresh(
    source: Source,
    weights: bytes | None,
    *,
    folder: Path,
    champion: Batch,
    again: Batch,
    ruler: Ruler,
    again_rows: int,
    effort: Effort,
    device: str = "cpu",
    timeout_s: float = TIMEOUT_S,
) -> Confirmed:
    """Figures of a version from a process of its own.

    Parameters
    ----------
    champion, again
        Records with the champion's answers, computed twice in batches of different sizes.
    ruler
        What counts as different.
    again_rows
        Rows of a batch in which the version answers a second time.

    Raises
    ------
    OutriderError
        If the process fails or takes longer than ``timeout_s``; the message ends with what it said.
    """
    import torch

    with TemporaryDirectory(prefix="outrider-fresh-") as name:
        place = Path(name)
        request = {
            "source": source.to_json(),
            "folder": str(folder.resolve()),
            "has_weights": weights is not None,
            "effort": dataclasses.asdict(effort),
            "device": device,
            "ruler": dataclasses.asdict(ruler),
            "again_rows": again_rows,
            "threads": torch.get_num_threads(),
        }
        (place / "request.json").write_text(json.dumps(request))
        if weights is not None:
            (place / "weights.safetensors").write_bytes(weights)
        (place / "champion.arrow").write_bytes(champion.to_ipc())
        (place / "again.arrow").write_bytes(again.to_ipc())
        command = [sys.executable, "-m", "outrider.dataops.compression.fresh_measurement", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise OutriderError(f"the fresh process gave no result within {timeout_s:g} s") from None
        if done.returncode:
            raise OutriderError(
                f"the fresh process ended with {done.returncode}: {done.stderr[-500:].strip()}"
            )
        told = json.loads(done.stdout.splitlines()[-1])
    resident_mb = float("nan") if told["resident_mb"] is None else told["resident_mb"]
    return Confirmed(Cost(**told["cost"]), Likeness(**told["likeness"]), resident_mb)


def main(place: Path) -> dict[str, Any]:
    """Measure the version that a folder describes."""
    import torch

    from outrider.dataops.model_kinds.loading import is_runner, load_model

    from .answering import answer
    from .timing import measure

    request = json.loads((place / "request.json").read_text())
    torch.set_num_threads(request["threads"])
    champion = Batch.from_ipc((place / "champion.arrow").read_bytes())
    again = Batch.from_ipc((place / "again.arrow").read_bytes())
    weights = place / "weights.safetensors" if request["has_weights"] else None
    before = _resident_mb()
    runner = load_model(
        Source.from_json(request["source"]),
        folder=Path(request["folder"]),
        weights=weights,
        device=request["device"],
    )
    if not is_runner(runner):
        raise OutriderError("a runner of tensors expected")
    rows = runner.encode(champion)
    answers = answer(runner, rows)
    gc.collect()
    resident = _resident_mb() - before
    cost = measure(runner, None, champion, rows, Effort(**request["effort"]), beside_rows=None)
    twice = answer(runner, rows, batch_rows=request["again_rows"], by_length=False)
    like = likeness(
        champion,
        again,
        champion.with_outputs(answers),
        champion.with_outputs(twice),
        Ruler(**request["ruler"]),
    )
    return {
        "cost": dataclasses.asdict(cost),
        "likeness": dataclasses.asdict(like),
        "resident_mb": None if np.isnan(resident) else resident,
    }


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201 - its result
