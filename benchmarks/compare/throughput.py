"""100,000 recorded rows of a Parquet file, compared between two local models, against their bare loops.

Both models are gradient boosting over real answers to a census. A comparison reads the file, asks each model
in a process of its own and compares all answers, as ``outrider compare --until 100000`` does; starting the
processes and loading the models is told apart. The bare loops call the same functions on the same rows in
blocks of 4,096, on one thread. Both are measured in turn. The figure compares CPU seconds of all processes,
which other work on the machine hardly changes; time by the clock, against two bare loops that each have a
core, stands beside it without a target. Memory is the proportional set size of the command's processes at
its greatest, less that of two processes that each load and ask one model.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import ModuleType

from threadpoolctl import threadpool_limits

from benchmarks.compare._models import DATA, write_models, write_traffic
from benchmarks.figure import Figure
from benchmarks.live_path.rest import cpu_s, proportional_mb, tree
from outrider.monitor.compare.askers import AskOptions, asker_of
from outrider.monitor.compare.drawn_order import DrawnTraffic
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive
from outrider.monitor.compare.traffic import Traffic

ROWS, ROUNDS, BLOCK = 100_000, 5, 4096
TARGET, MOST_MB = 0.8, 512.0
SIDES = ("production", "twin")


def main() -> None:
    """Print throughput, start-up, the price of asking twice, and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder)
        write_traffic(folder / "traffic.parquet", ROWS)
        module = _module(folder / "models.py")
        bare_seconds(module, folder)
        ratios: dict[str, list[float]] = {"cpu": [], "clock": [], "twice": []}
        rates, starts = [], []
        for _ in range(ROUNDS):
            cpu, clock = bare_seconds(module, folder)
            start, own_cpu, own_clock = compared_seconds(folder, twice=0.0)
            _, twice_cpu, _ = compared_seconds(folder, twice=0.25)
            rates.append(ROWS / own_clock)
            starts.append(start)
            ratios["cpu"].append(cpu / own_cpu)
            ratios["clock"].append(clock / own_clock)
            ratios["twice"].append(twice_cpu / own_cpu)
        memory = peak_mb(folder) - bare_mb(folder)
    data = f"{DATA}, {ROWS:,} rows, {ROUNDS} rounds in turn"
    rate = statistics.median(rates)
    Figure.of_pairs(
        "compare.throughput.cpu", rate, "rows/s", "CPU seconds of both bare loops", ratios["cpu"], TARGET,
        data=data,
    ).show()  # fmt: skip
    Figure.of_pairs(
        "compare.throughput.clock", rate, "rows/s", "slower of both bare loops, by the clock",
        ratios["clock"], data=data,
    ).show()  # fmt: skip
    Figure.of_pairs(
        "compare.throughput.twice", 0.25, "share asked twice", "CPU seconds of asking once", ratios["twice"],
        data=data,
    ).show()  # fmt: skip
    start = statistics.median(starts)
    Figure("compare.throughput.start", start, "s", "", 0.0, n=ROUNDS, data=data).show()
    Figure(
        "compare.throughput.memory", memory, "MB beside the models", f"{MOST_MB:g} MB", MOST_MB / memory, 1.0,
        data=data,
    ).show()  # fmt: skip


def bare_seconds(module: ModuleType, folder: Path) -> tuple[float, float]:
    """CPU seconds of both bare loops, and the seconds of the slower one."""
    batches = [
        batch.slice(at, BLOCK)
        for batch in Traffic([folder / "traffic.parquet"])
        for at in range(0, batch.rows, BLOCK)
    ]
    cpu, clock = 0.0, []
    with threadpool_limits(1):
        for side in SIDES:
            before, began = time.process_time(), time.monotonic()
            for batch in batches:
                getattr(module, side)(batch)
            cpu += time.process_time() - before
            clock.append(time.monotonic() - began)
    return cpu, max(clock)


def compared_seconds(folder: Path, *, twice: float) -> tuple[float, float, float]:
    """Seconds of the start, then CPU seconds and seconds of the comparison of all rows."""
    askers = [asker_of(f"models.py:{side}", AskOptions(name=side), folder=folder) for side in SIDES]
    run = ComparisonRun(askers[0], askers[1:], ComparePlan(twice=twice))
    traffic = DrawnTraffic(Traffic([folder / "traffic.parquet"]))
    began = time.monotonic()
    try:
        run.look(next(iter(traffic)).slice(0, 16))
        begun, before = time.monotonic(), cpu_s(os.getpid())
        drive(run, traffic, Until(False, run.compared + ROWS), stop=threading.Event(), tell=lambda _: None)
        return begun - began, cpu_s(os.getpid()) - before, time.monotonic() - begun
    finally:
        run.close()


def peak_mb(folder: Path) -> float:
    """Greatest proportional set size of the command with all its processes."""
    command = [sys.executable, "-m", "outrider", "compare", "--from", "traffic.parquet", "--json"]
    command += ["--production", "models.py:production", "--candidate", "models.py:twin", "--until", str(ROWS)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        said: list[bytes] = []
        assert process.stdout is not None
        reading = threading.Thread(target=lambda out: said.append(out.read()), args=(process.stdout,))
        reading.start()
        most = 0.0
        while reading.is_alive():
            most = max(most, _memory(process.pid))
            reading.join(0.1)
    if json.loads(said[0])["candidates"][0]["records"] < ROWS:
        raise SystemExit("the comparison ended early")
    return most


def bare_mb(folder: Path) -> float:
    """Proportional set size of two processes that each hold a model and have asked it."""
    code = (
        "import sys, models, pyarrow.parquet\n"
        f"batch = next(pyarrow.parquet.ParquetFile('traffic.parquet').iter_batches({BLOCK}))\n"
        "getattr(models, sys.argv[1])(batch); print(flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"PYTHONPATH": "."}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, side], cwd=folder, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for side in SIDES
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    held = sum(_memory(process.pid) for process in processes)
    for process in processes:
        process.communicate()
    return held


def _memory(root: int) -> float:
    found = 0.0
    for pid in tree(root):
        try:
            found += proportional_mb(pid)
        except (OSError, StopIteration):  # it has ended
            continue
    return found


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
