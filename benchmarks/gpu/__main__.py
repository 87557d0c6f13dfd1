"""All figures of a GPU: ``python -m benchmarks.gpu``; ``--device cpu`` runs the same code on small models."""

import argparse
import sys
import time
from pathlib import Path

import torch

from . import _adapters, _fed, _neighbour, _on_device, _overlap, _trunk
from ._figures import Device, GpuFigure, table
from ._models import SCALES
from ._setup import Bench

PARTS = {
    "fed": _fed,
    "overlap": _overlap,
    "adapters": _adapters,
    "trunk": _trunk,
    "on_device": _on_device,
    "neighbour": _neighbour,
}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", choices=tuple(SCALES), default="cuda")
    parser.add_argument("--table", type=Path, help="Markdown file to write")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="some figures instead of all")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.exit(
            1,
            f"benchmarks.gpu: no CUDA device: torch {torch.__version__} sees {torch.cuda.device_count()}. "
            "Figures of a GPU come from a GPU only; --device cpu runs the same code, without targets.\n",
        )
    if options.device == "cpu":
        torch.set_num_threads(1)
    bench, device = Bench(options.device, SCALES[options.device]), Device.of(options.device)
    figures: list[GpuFigure] = []
    for name in options.only or PARTS:
        began = time.perf_counter()
        for figure in PARTS[name].measure(bench):
            figure.show(device)
            figures.append(figure)
        print(f"# {name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    if options.table is not None:
        options.table.write_text(table(figures, device), encoding="utf-8")


if __name__ == "__main__":
    main()
