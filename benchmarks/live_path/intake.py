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


def in_turn(peer: Start, body: bytes, kind: str, *, connections: int = 16) -> list[tuple[Rate, Rate]]:
    """Rounds of the intake and of its peer, driven in turn."""
    with intake() as server, peer() as other:
        return [
            (
                other.load(body, kind=kind, seconds=SECONDS, connections=connections),
                server.load(body, kind=kind, seconds=SECONDS, connections=connections),
            )[::-1]
            for _ in range(ROUNDS)
        ]


def show(name: str, rounds: list[tuple[Rate, Rate]], *, against: str, target: float | None) -> Rate:
    """Print the ratio by processor time, and by the clock; what a request took."""
    ours = median([own for own, _ in rounds])
    stem, data = (
        f"live_path.intake.{name}",
        "one intake on one core, its client on the other, in turn with its peer",
    )
    ratios = [peer.cpu_s / own.cpu_s for own, peer in rounds]
    unit = "µs CPU/request"
    Figure.of_pairs(f"{stem}_cpu", ours.cpu_s * 1e6, unit, against, ratios, target, data=data).show()
    ratios = [peer.wall_s / own.wall_s for own, peer in rounds]
    Figure.of_pairs(f"{stem}_wall", ours.wall_s * 1e6, "µs/request", against, ratios, data=data).show()
    return ours


def main() -> None:
    """Measure and print."""
    show("arrow_1000_rows", in_turn(floor, arrow(1000), ARROW), against="no-decode uvloop floor", target=0.5)
    rounds = in_turn(floor, json.dumps(records(100)).encode(), JSON)
    per_s = 100 / show("json_100_records", rounds, against="no-decode uvloop floor", target=None).cpu_s
    Figure(
        "live_path.intake.json_100_records_rate", per_s, "records/CPU s", "200,000 records/s",
        per_s / 200_000, 1.0, n=ROUNDS, data="records of 258 bytes, 100 a request",
    ).show()  # fmt: skip
    rounds = in_turn(pydantic, json.dumps(records(1)[0]).encode(), JSON, connections=64)
    show("json_single", rounds, against="FastAPI + pydantic route", target=3.0)


if __name__ == "__main__":
    main()
