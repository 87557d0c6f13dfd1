"""Cost of one ``Client.capture`` to its caller, against ``json.dumps`` of the same values in the same run.

``python -m benchmarks.client.capture``: nobody listens at the URL, so the sender keeps trying meanwhile.
"""

import json
import statistics
import time
from collections.abc import Callable

from benchmarks.figure import Figure
from outrider.monitor.client import Client

INPUTS = {"age": 41, "income": 1234.5, "name": "bob", "vip": True}
OUTPUTS = {"label": 1, "score": 0.91}
CALLS = 20_000


def quantiles_us(call: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile of one call, in µs."""
    samples = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - began) / 1000)
    cuts = statistics.quantiles(samples, n=100)
    return cuts[49], cuts[98]


def main() -> None:
    """Measure and print."""
    client = Client("http://127.0.0.1:9", "key", model="churn")
    client.capture(INPUTS, OUTPUTS)
    plain, _ = quantiles_us(lambda: json.dumps([INPUTS, OUTPUTS]))
    median, tail = quantiles_us(lambda: client.capture(INPUTS, OUTPUTS, entity="u7"))
    client.close(timeout=0)
    Figure("capture_p50", median, "µs (at most 5)", "json.dumps of the values", median / plain).show()
    Figure("capture_p99", tail, "µs (at most 25)", "json.dumps of the values", tail / plain).show()


if __name__ == "__main__":
    main()
