"""What the middleware costs a FastAPI service at 500 requests a second: its p99 with it and without.

``python -m benchmarks.live_path.app [--rounds 7] [--seconds 4]``: one service without the middleware, one
more without it (the control: what the machine alone makes of it), the first again beside a process that sends
the same traffic to the sidecar (beside: what the sidecar's own work makes of it), one whose sidecar answers,
one whose sidecar is dead; asked in turn with the gaps of real arrivals. Latency counts from the time at which
a request was due.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.figure import Figure

from ._sidecars import broken, intake
from .hook import gaps, records

REQUESTS_PER_S = 500
CONNECTIONS = 16
WARM_UP = 500
KINDS = ("without", "control", "beside", "answering", "dead")
SERVICES = {"beside": "without"}


def service() -> Any:
    """The application, with the middleware where ``OUTRIDER_URL`` is set."""
    from fastapi import FastAPI

    from outrider.monitor.client import Client, OutriderMiddleware

    app = FastAPI()

    @app.post("/predict")
    async def predict(record: dict[str, Any]) -> dict[str, Any]:
        total = sum(value for value in record.values() if isinstance(value, float))
        return {"label": "churn", "score": total % 1, "fields": len(record)}

    if "OUTRIDER_URL" in os.environ:
        app.add_middleware(OutriderMiddleware, paths=["/predict"], client=Client(model="churn"))
    return app


def serve() -> None:
    """Run the application; prints its port."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(service(), loop="uvloop", http="httptools", access_log=False, log_level="error")
    uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def running(env: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Port and process id of a service."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    command = [sys.executable, "-m", "benchmarks.live_path.app", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean | env) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline()), child.pid
        finally:
            child.kill()


TRAFFIC = """
import itertools, sys, time
from benchmarks.live_path.hook import records
from outrider.monitor.client import Client
client, values = Client(sys.argv[1], sys.argv[2], model="churn"), records()
for number in itertools.count():
    client.capture(*values[number % len(values)])
    time.sleep(1 / float(sys.argv[3]))
"""


@contextlib.contextmanager
def traffic(url: str, key: str) -> Iterator[None]:
    """The records of the service, sent by somebody else."""
    with subprocess.Popen([sys.executable, "-c", TRAFFIC, url, key, str(REQUESTS_PER_S)]) as child:
        time.sleep(1.0)
        try:
            yield
        finally:
            child.kill()


async def load(port: int, waits: list[float]) -> list[float]:
    """Seconds from when each request was due to its answer."""
    requests = []
    for inputs, _ in records():
        body = json.dumps(inputs).encode()
        head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        requests.append(head.encode() + body)
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    latencies: list[float] = []

    async def ask(number: int, due: float) -> None:
        reader, writer = await free.get()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        latencies.append(time.perf_counter() - due)
        free.put_nowait((reader, writer))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, due in enumerate(itertools.accumulate(waits)):
            left = began + due - time.perf_counter()
            if left > 0:
                await asyncio.sleep(left)
            tasks.create_task(ask(number, began + due))
    while not free.empty():
        _, writer = free.get_nowait()
        writer.close()
    return latencies


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    options, _ = parser.parse_known_args()
    waits = gaps(int(options.seconds * REQUESTS_PER_S), REQUESTS_PER_S)
    results: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        url, key = stack.enter_context(intake())
        dead = stack.enter_context(broken("dead"))
        environments = {
            "without": {},
            "control": {},
            "answering": {"OUTRIDER_URL": url, "OUTRIDER_KEY": key},
            "dead": {"OUTRIDER_URL": dead, "OUTRIDER_KEY": "key"},
        }
        services = {kind: stack.enter_context(running(env)) for kind, env in environments.items()}
        for port, _ in services.values():
            asyncio.run(load(port, [1 / REQUESTS_PER_S] * WARM_UP))
        for number in range(options.rounds):
            order = KINDS[number % len(KINDS) :] + KINDS[: number % len(KINDS)]  # nobody is always first
            for kind in order:
                port, pid = services[SERVICES.get(kind, kind)]
                before = cpu_s(pid)
                with traffic(url, key) if kind == "beside" else contextlib.nullcontext():
                    cuts = statistics.quantiles(asyncio.run(load(port, waits)), n=100)
                used = (cpu_s(pid) - before) / len(waits)
                results[kind].append((cuts[49] * 1e6, cuts[98] * 1e6, used * 1e6))
    medians = {
        kind: [statistics.median(column) for column in zip(*results[kind], strict=True)] for kind in KINDS
    }
    for kind in KINDS[1:]:
        show(kind, "without", results, medians)
    show("answering", "beside", results, medians)


def show(
    kind: str,
    other: str,
    results: dict[str, list[tuple[float, float, float]]],
    medians: dict[str, list[float]],
) -> None:
    """What one is more than the other."""
    p50, p99, cpu = medians[other]
    allowed = max(0.05 * p99, 200.0)
    # The difference of each round: what else the machine does changes from round to round.
    more = statistics.median(a[1] - b[1] for a, b in zip(results[kind], results[other], strict=True))
    unit = f"µs over {p99:.0f} {other} (at most 5 % or 200)"
    name = f"app.{kind}" if other == "without" else f"app.{kind}.{other}"
    Figure(f"{name}.p99", more, unit, "what is allowed over it", allowed / max(more, 1.0), 1.0).show()
    Figure(f"{name}.p50", medians[kind][0], "µs", other, medians[kind][0] / p50).show()
    Figure(f"{name}.cpu", medians[kind][2], "CPU µs a request", other, medians[kind][2] / cpu).show()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main()
