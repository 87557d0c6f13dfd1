"""What the intake takes on one core, against servers that do less, in the same run.

``python -m benchmarks.live_path.intake``: the server is pinned to one core and the client to the other; each
is driven in turn, several times. Ratios are of processor time per request (what else runs on the machine
does not count), taken over all threads of the server: the journal's commits are in it. The time on the clock
stands beside it, without a target.
"""

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow as pa

from benchmarks.figure import Figure
from outrider.assertions.batch import Batch

from ._load import Rate, Server, floor, intake, median, pydantic

ROUNDS = 5
SECONDS = 1.0
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


def records(count: int) -> list[dict[str, object]]:
    """Records like the one of the documentation, 258 bytes each as JSON."""
    rng = random.Random(1)
    return [
        {
            "model": "churn",
            "id": f"r{rng.getrandbits(60)}",
            "entity": f"u{number % 50}",
            "ts": "2026-01-05T10:00:00Z",
            "inputs": {
                "age": rng.randint(18, 80),
                "income": rng.random() * 1e5,
                "name": "bob",
                "vip": True,
            },
            "outputs": {"label": 1, "score": rng.random()},
            "attrs": {"device": "web"},
        }
        for number in range(count)
    ]


def arrow(rows: int) -> bytes:
    """The same as an Arrow stream of one batch."""
    table = Batch.from_records(records(rows), model="churn").to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


Start = Callable[[], AbstractContextManager[Server]]


def in_turn(peer: Start, body: bytes, kind: str, *, connections: int = 16) -> tuple[Rate, Rate]:
    """Medians of the intake and of its peer, driven in turn."""
    ours: list[Rate] = []
    theirs: list[Rate] = []
    with intake() as server, peer() as other:
        for _ in range(ROUNDS):
            theirs.append(other.load(body, kind=kind, seconds=SECONDS, connections=connections))
            ours.append(server.load(body, kind=kind, seconds=SECONDS, connections=connections))
    return median(ours), median(theirs)


def show(name: str, ours: Rate, theirs: Rate, *, against: str, target: float | None) -> None:
    """Print the ratio by processor time, and by the clock."""
    ratio = theirs.cpu_s / ours.cpu_s
    Figure(f"{name}_cpu", ours.cpu_s * 1e6, "µs CPU/request", against, ratio, target).show()
    ratio = theirs.wall_s / ours.wall_s
    Figure(f"{name}_wall", ours.wall_s * 1e6, "µs/request", against, ratio).show()


def main() -> None:
    """Measure and print."""
    ours, theirs = in_turn(floor, arrow(1000), ARROW)
    show("arrow_1000_rows", ours, theirs, against="no-decode uvloop floor", target=0.5)
    ours, theirs = in_turn(floor, json.dumps(records(100)).encode(), JSON)
    show("json_100_records", ours, theirs, against="no-decode uvloop floor", target=None)
    per_s = 100 / ours.cpu_s
    Figure("json_100_records_rate", per_s, "records/CPU s", "200,000 records/s", per_s / 200_000, 1.0).show()
    ours, theirs = in_turn(pydantic, json.dumps(records(1)[0]).encode(), JSON, connections=64)
    show("json_single", ours, theirs, against="FastAPI + pydantic route", target=3.0)


if __name__ == "__main__":
    main()
