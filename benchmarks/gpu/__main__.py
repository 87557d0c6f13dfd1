"""All figures of a GPU: ``python -m benchmarks.gpu``; ``--device cpu`` runs the same code on small models."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch

from ._figures import Device, GpuFigure, table
from ._scale import SCALES

PARTS = ("fed", "overlap", "adapters", "trunk", "on_device", "neighbour")


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", choices=tuple(SCALES), default="cuda")
    parser.add_argument("--table", type=Path, help="Markdown file to write")
    parser.add_argument("--only", choices=PARTS, action="append", help="some figures instead of all")
    options = parser.parse_args()
    os.environ.setdefault("CUDA_MPS_CLIENT_PRIORITY", "1")  # read when it first turns to the driver
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.exit(
            1,
            f"benchmarks.gpu: no CUDA device: torch {torch.__version__} sees {torch.cuda.device_count()}. "
            "Figures of a GPU come from a GPU only; --device cpu runs the same code, without targets.\n",
        )
    from ._setup import Bench  # the engine: seconds of imports

    bench, device = Bench(options.device, SCALES[options.device]), Device.of(options.device)
    figures: list[GpuFigure] = []
    failed: list[str] = []
    for name in options.only or PARTS:
        began = time.perf_counter()
        measure: Callable[[Bench], list[GpuFigure]] = import_module(f"benchmarks.gpu._{name}").measure
        try:
            for figure in measure(bench):
                figure.show(device)
                figures.append(figure)
        except Exception:  # noqa: BLE001 - time on a GPU is dear: the others are measured all the same
            traceback.print_exc()
            failed.append(name)
        print(f"# {name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    if options.table is not None:
        options.table.write_text(table(figures, device), encoding="utf-8")
    if failed:
        parser.exit(1, f"benchmarks.gpu: not measured, see above: {', '.join(failed)}\n")


if __name__ == "__main__":
    main()
