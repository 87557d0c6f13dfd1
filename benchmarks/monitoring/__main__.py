"""Run the benchmarks of this area."""

from pathlib import Path

from benchmarks.__main__ import run_area

if __name__ == "__main__":
    run_area("benchmarks.monitoring", Path(__file__).parent)
