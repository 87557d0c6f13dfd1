"""Cost of ``Client.capture`` to its caller, while the sidecar answers, and while it does not.

``python -m benchmarks.live_path.hook [--rounds 5] [--seconds 1.5]``: every round goes through all sidecars.
Calls come with the gaps of real arrivals, so that the sender works meanwhile as it would; the clock stands
around the call alone. Bursts without a pause are measured beside them.
"""

import argparse
import contextlib
import itertools
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.monitor.client import Client

from ._sidecars import broken, intake

CALLS_PER_S = 1000
WARM_UP = 200
BURST = 1000
CONDITIONS = ("answering", "dead", "silent", "drip", "error", "disk_full")
MEGABYTE = 1_000_000


def records() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Records of about 0.4, 1 and 2 kB as JSON."""
    made = []
    for fields, words in ((12, 10), (25, 60), (40, 150)):
        numbers = {f"feature_{n:02}": round(n * 1.2345, 4) for n in range(fields)}
        inputs = numbers | {"text": "delivery " * words, "vip": True, "age": 41}
        made.append((inputs, {"label": "churn", "score": 0.91, "margin": None}))
    return made


def gaps(number: int, per_s: float) -> list[float]:
    """Gaps between real arrivals, scaled to ``per_s`` of them on average."""
    table = pq.read_table(data_folder("azure_llm_trace_conv") / "trace.parquet", columns=["arrival_s"])
    arrivals = np.sort(table["arrival_s"].to_numpy())[: number + 1]
    waits = np.diff(arrivals)
    return [float(wait) for wait in waits / waits.mean() / per_s]


def paced(call: Callable[[int], object], waits: list[float]) -> list[int]:
    """Nanoseconds of each call, called as time comes."""
    samples = []
    due = time.perf_counter()
    for number, wait in enumerate(waits):
        due += wait
        left = due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        began = time.perf_counter_ns()
        call(number)
        samples.append(time.perf_counter_ns() - began)
    return samples


def burst(call: Callable[[int], object], calls: int) -> list[int]:
    """Nanoseconds of each call, one behind the other."""
    samples = []
    for number in range(calls):
        began = time.perf_counter_ns()
        call(number)
        samples.append(time.perf_counter_ns() - began)
    return samples


def quantiles_us(samples: list[int]) -> tuple[float, float]:
    """Median and 99th percentile in µs."""
    cuts = statistics.quantiles(samples, n=100)
    return cuts[49] / 1000, cuts[98] / 1000


@contextlib.contextmanager
def sidecar(condition: str) -> Iterator[tuple[str, str]]:
    """URL and key under one condition."""
    if condition in ("answering", "disk_full"):
        with intake(disk_full=condition == "disk_full") as (url, key):
            yield url, key
    else:
        with broken(condition) as url:
            yield url, "key"


def measure_round(where: dict[str, tuple[str, str]], waits: list[float]) -> dict[str, tuple[float, ...]]:
    """Quantiles of every condition: paced p50 and p99, burst p50 and p99."""
    found: dict[str, tuple[float, ...]] = {}
    values = records()
    for condition, (url, key) in where.items():
        client = Client(url, key, model="churn")

        def call(number: int, client: Client = client) -> None:
            inputs, outputs = values[number % len(values)]
            client.capture(inputs, outputs, entity="u7")

        burst(call, WARM_UP)
        time.sleep(0.2)  # the first block has failed by now, where it fails
        slow = quantiles_us(paced(call, waits))
        fast = quantiles_us(burst(call, BURST))
        client.close(timeout=0)
        counts = client.counts
        total = counts.sampled_out + counts.shed + counts.error + counts.acknowledged + counts.queued
        assert counts.offered == total == WARM_UP + len(waits) + BURST, counts
        found[condition] = (*slow, *fast)
    plain = [json.dumps(record).encode() for record in values]
    assert all(300 < len(text) < 2500 for text in plain), [len(text) for text in plain]
    floor = quantiles_us(paced(lambda number: json.dumps(values[number % len(values)]), waits))
    found["json.dumps"] = (*floor, *quantiles_us(burst(lambda n: json.dumps(values[n % len(values)]), BURST)))
    return found


def show_calls(rounds: int, seconds: float) -> None:
    """Quantiles while the sidecar answers against their bounds, and while it does not against that."""
    waits = gaps(int(seconds * CALLS_PER_S), CALLS_PER_S)
    with contextlib.ExitStack() as stack:
        where = {condition: stack.enter_context(sidecar(condition)) for condition in CONDITIONS}
        results = [measure_round(where, waits) for _ in range(rounds)]
    names = ("p50", "p99", "burst_p50", "burst_p99")
    bounds = (5.0, 25.0, 5.0, 25.0)
    medians = {
        condition: [statistics.median(result[condition][i] for result in results) for i in range(4)]
        for condition in results[0]
    }
    data = (
        f"{len(waits)} calls a round with the gaps of azure_llm_trace_conv, {CALLS_PER_S} a second, "
        f"or {BURST} one behind the other; records of 0.4 to 2 kB; by the clock"
    )
    for i, (name, bound) in enumerate(zip(names, bounds, strict=True)):
        value, each = medians["answering"][i], [result["answering"][i] for result in results]
        against = f"{bound:g} µs over it; json.dumps of the record: {medians['json.dumps'][i]:.2f}"
        Figure(
            f"live_path.hook.{name}", value, "µs", against, bound / value, 1.0,
            n=rounds, low=min(each), high=max(each), data=f"{data}; least and most of the rounds",
        ).show()  # fmt: skip
    for condition in CONDITIONS[1:]:
        for i, name in enumerate(names):
            # Each round's own ratio: what else the machine does changes from round to round.
            ratios = [result["answering"][i] / result[condition][i] for result in results]
            value, against = medians[condition][i], "answering over it"
            stem = f"live_path.hook.{condition}.{name}"
            Figure.of_pairs(stem, value, "µs", against, ratios, 1 / 1.2, data=data).show()


def show_megabyte() -> None:
    """A megabyte of text, bytes and float32 against one copy of a megabyte that is kept as well."""
    text, data = "x" * MEGABYTE, b"x" * MEGABYTE
    array = np.ones(MEGABYTE // 4, np.float32)
    kinds = {"text": text, "bytes": data, "array": array}
    samples: dict[str, list[float]] = {name: [] for name in ("copy", *kinds)}
    with broken("dead") as url:
        for _ in range(40):
            client = Client(url, "key", model="churn")
            client.capture({"value": 1}, {"score": 0.9})
            kept = []
            for name, value in kinds.items():
                began = time.perf_counter_ns()
                kept.append(array.tobytes())
                copied = time.perf_counter_ns()
                client.capture({"value": value}, {"score": 0.9})
                samples[name].append((time.perf_counter_ns() - copied) / 1000)
                samples["copy"].append((copied - began) / 1000)
            assert client.counts.shed == 0
            client.close(timeout=0)
    copy = statistics.median(samples["copy"])
    for name in kinds:
        took, n = statistics.median(samples[name]), len(samples[name])
        stem, against = f"live_path.hook.megabyte.{name}", "one copy over it"
        Figure(
            stem, took, "µs", against, copy / took, 1 / 1.2, n=n, data="one call of a new client each"
        ).show()


MEMORY = """
import json, os, pathlib, re, sys, time
kind = sys.argv[2]
value = {"kB": ["x" * 80] * 12, "text": "x" * 1_500_000, "list": [0.5 + n for n in range(50_000)]}[kind]
def high_water():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024
before = high_water()
from outrider.monitor.client import Client
client = Client(sys.argv[1], "key", model="churn")
end = time.monotonic() + 3
while time.monotonic() < end:
    # A text of its own for every call, which the client alone keeps.
    client.capture({"value": value + "y" if kind == "text" else value}, {"score": 0.9})
    if client.counts.shed: time.sleep(0.002)
print(json.dumps([high_water() - before, client.counts.shed]))
sys.stdout.flush()
os._exit(0)
"""


def show_memory() -> None:
    """Growth of a process of the client alone, its imports included, while more comes than can go."""
    for condition, kind in itertools.product(("dead", "silent", "error"), ("kB", "text", "list")):
        with sidecar(condition) as (url, _):
            command = [sys.executable, "-c", MEMORY, url, kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        grown, shed = json.loads(done.stdout)
        assert shed, "the ring was never full"
        name, value = f"live_path.hook.memory.{condition}.{kind}", grown / 1e6
        data = "growth of a process of the client alone, imports included, three seconds of more than can go"
        Figure(name, value, "MB", "32 MB over it", 32 / value, 1.0, n=1, data=data).show()


EXIT = """
import sys, time
from outrider.monitor.client import Client
client = Client(sys.argv[1], sys.argv[2], model="churn")
for n in range(1000): client.capture({"x": n}, {"y": 1})
time.sleep(float(sys.argv[3]))
print(time.monotonic())
"""


def show_exit() -> None:
    """Seconds from the last line of a script to the end of its process."""
    for condition in CONDITIONS:
        delays = []
        for ran_s in (0.0, 0.5):
            with sidecar(condition) as (url, key):
                command = [sys.executable, "-c", EXIT, url, key, str(ran_s)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                delays.append(time.monotonic() - float(done.stdout))
        value = max(delays)
        name, data = (
            f"live_path.hook.exit.{condition}",
            "1,000 records, at once and half a second before; the later",
        )
        Figure(name, value, "s", "2 s over it", 2 / value, 1.0, n=len(delays), data=data).show()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    options, _ = parser.parse_known_args()
    logging.getLogger("outrider").setLevel(logging.ERROR)  # that sidecars fail is the point
    show_calls(options.rounds, options.seconds)
    show_megabyte()
    show_memory()
    show_exit()


if __name__ == "__main__":
    main()
