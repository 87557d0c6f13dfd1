"""Run all benchmarks: ``python -m benchmarks``; one area: ``python -m benchmarks.loop``."""

import pkgutil
import runpy
import sys
from pathlib import Path


def run_area(package: str, folder: Path) -> None:
    """Run every benchmark of one area in a fresh namespace."""
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        if not module.name.startswith("_"):
            print(f"# {package}.{module.name}", file=sys.stderr, flush=True)
            runpy.run_module(f"{package}.{module.name}", run_name="__main__")


if __name__ == "__main__":
    here = Path(__file__).parent
    for area in sorted(path.parent for path in here.glob("*/__init__.py")):
        run_area(f"benchmarks.{area.name}", area)
