"""nginx's latency for its clients with the copies that ``outrider compare --listen`` asks for, and without.

Debian's nginx stands before a classifier of intents that is a process of its own. It has the same site four
times: without copies, with the copies as the command prints them, with copies to a listener that is stopped
by SIGSTOP, and with copies to another nginx that answers 204 and does nothing else: what mirroring costs by
itself; the rest is the listener's processor time on the same cores. Requests go to the sites in turn, one by
one, each over a connection that is kept. The candidate's questions are paused: the command asks nothing
before a copy of each look came, and then at most one question in a thousand seconds (``--rate 0.001``).
"""

import contextlib
import http.client
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.compare._intents import await_port, intents, queries, request_of
from benchmarks.figure import Figure
from outrider.commands.mirror_snippets import snippets
from tests.nginx import free_port, mirror_parts, nginx

ROUNDS, TURNS = 7, 200
PAUSE_S = 0.004
MOST = 1.1
DATA = f"clinc150, {ROUNDS} rounds of {TURNS} requests to each site in turn; by the clock"


def main() -> None:
    """Print p50 and p99 of the sites with copies against the one without."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        production = stack.enter_context(intents(32))
        ports = {name: free_port() for name in ("without", "answering", "stopped", "idle")}
        copies = {name: free_port() for name in ("answering", "stopped", "idle")}
        sites = [site(ports[name], production, copies.get(name)) for name in ports]
        listeners = {
            name: stack.enter_context(listener(copies[name], production)) for name in ("answering", "stopped")
        }
        nothing = f"server {{ listen 127.0.0.1:{copies['idle']}; location / {{ return 204; }} }}"
        stack.enter_context(nginx(folder / "idle", nothing))
        stack.enter_context(nginx(folder / "nginx", "\n".join(sites)))
        listeners["stopped"].send_signal(signal.SIGSTOP)
        stack.callback(listeners["stopped"].send_signal, signal.SIGCONT)
        rounds = [latencies(ports) for _ in range(ROUNDS + 1)][1:]
    for name in copies:
        for quantile in (50, 99):
            seconds = {each: [float(np.quantile(r[each], quantile / 100)) for r in rounds] for each in ports}
            ratios = [b / a for a, b in zip(seconds[name], seconds["without"], strict=True)]
            mine, bare = (1e3 * float(np.median(seconds[each])) for each in (name, "without"))
            Figure.of_pairs(
                f"compare.mirror.{name}.p{quantile}", mine, "ms", f"{bare:.4g} ms without copies", ratios,
                None if name == "idle" else 1 / MOST, data=DATA,
            ).show()  # fmt: skip


def latencies(ports: dict[str, int]) -> dict[str, list[float]]:
    """Seconds of each request to each site, one after the other in turn."""
    clients = {name: http.client.HTTPConnection("127.0.0.1", port) for name, port in ports.items()}
    taken: dict[str, list[float]] = {name: [] for name in ports}
    texts = queries()["text"].tolist()
    for turn in range(TURNS):
        body = request_of(texts[turn % len(texts)])
        for name, client in clients.items():
            began = time.perf_counter()
            client.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            client.getresponse().read()
            taken[name].append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
    for client in clients.values():
        client.close()
    return taken


def site(port: int, production: int, copies: int | None) -> str:
    """Site of nginx, perhaps with copies to a port."""
    http_part = inside = beside = ""
    if copies is not None:
        parts = mirror_parts(snippets(f"http://127.0.0.1:{copies}"))
        # Two listeners need names of their own.
        http_part, inside, beside = (part.replace("outrider", f"outrider{copies}") for part in parts)
    return f"""{http_part}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            {inside}
            proxy_pass http://127.0.0.1:{production};
        }}
        {beside}
    }}"""


@contextlib.contextmanager
def listener(port: int, production: int) -> Iterator[subprocess.Popen[bytes]]:
    """The command, waiting for copies, which hardly asks."""
    url = f"http://127.0.0.1:{production}/v1"
    command = [sys.executable, "-m", "outrider", "compare", "--production", url, "--candidate", url, "--json"]
    command += ["--listen", str(port), "--rate", "0.001", "--until", "1h"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_port(port, process)
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
