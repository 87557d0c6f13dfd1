"""Servers in processes of their own, pinned to one core, and a client on the other that keeps them busy."""

import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx

CONFIG = '[server]\nport = 0\n\n[models.churn.intake]\nanswers = "replica"\n'


@dataclass(frozen=True, slots=True)
class Rate:
    """What a server did under load.

    Attributes
    ----------
    cpu_s
        Processor time of the server per request, all its threads, in seconds.
    wall_s
        Time per request, in seconds; what else runs on the machine is in it.
    """

    cpu_s: float
    wall_s: float


def median(rates: list[Rate]) -> Rate:
    """Median of each figure."""
    return Rate(statistics.median(r.cpu_s for r in rates), statistics.median(r.wall_s for r in rates))


@contextlib.contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Stay on one core; where there is one only, where it is."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    os.sched_setaffinity(0, {cores[min(core, len(cores) - 1)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """One server process on a free port; use as a context manager.

    Parameters
    ----------
    command
        Arguments of Python.
    folder
        Where its files go; the log too.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        os.set_inheritable(self._listener.fileno(), True)
        self.port = self._listener.getsockname()[1]
        self.key = ""
        self._folder = folder
        with pinned_to(0), (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | {"OUTRIDER_LISTEN_FD": str(self._listener.fileno())},
                close_fds=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> "Server":
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                # Held (or 503) until everything is imported: nothing may run beside what is measured.
                url = f"http://127.0.0.1:{self.port}/v1/models"
                answer = httpx.get(url, headers=self.headers(), timeout=60)
                if answer.status_code not in (401, 503):
                    return self
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._listener.close()

    def headers(self) -> dict[str, str]:
        """Headers with the key, once there is one."""
        key = self._folder / "outrider-data" / "key"
        return {"Authorization": f"Bearer {key.read_text().strip()}"} if key.exists() else {}

    def cpu_s(self) -> float:
        """Processor time so far, all threads."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def load(
        self,
        body: bytes,
        *,
        kind: str,
        seconds: float,
        connections: int,
        path: str = "/v1/records",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Rate:
        """Send a body over and over on so many connections, one request at a time on each."""
        headers = {"Host": "localhost", "Content-Type": kind, "Content-Length": str(len(body))}
        headers |= {**self.headers(), **more}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        with pinned_to(1):
            _drive(self.port, request, seconds=seconds / 4, connections=connections)
            cpu, began = self.cpu_s(), time.perf_counter()
            answered = _drive(self.port, request, seconds=seconds, connections=connections)
            wall = time.perf_counter() - began
        return Rate((self.cpu_s() - cpu) / answered, wall / answered)


def _drive(port: int, request: bytes, *, seconds: float, connections: int) -> int:
    """Answers within so many seconds; every one must be 200 or 202."""
    answered = 0
    answers = dict.fromkeys(range(connections), b"")
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for number in answers:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, number)
        until = time.perf_counter() + seconds
        waiting = connections
        while waiting:
            for key, _ in selector.select(30):
                readable = key.fileobj
                assert isinstance(readable, socket.socket)
                answers[key.data] += readable.recv(65_536)
                if not answers[key.data].endswith(b"}"):  # head and body come apart
                    continue
                if not answers[key.data].startswith((b"HTTP/1.1 202", b"HTTP/1.1 200")):
                    raise RuntimeError(answers[key.data].decode("latin-1"))
                answers[key.data] = b""
                answered += 1
                if time.perf_counter() < until:
                    readable.sendall(request)
                else:
                    waiting -= 1
    return answered


@contextlib.contextmanager
def floor() -> Iterator[Server]:
    """An application that reads the same bodies, decodes nothing and answers 202."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(["-m", "benchmarks.live_path._apps", "floor"], Path(folder)) as server,
    ):
        yield server


@contextlib.contextmanager
def pydantic() -> Iterator[Server]:
    """A FastAPI route with a pydantic model that stores nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(["-m", "benchmarks.live_path._apps", "pydantic"], Path(folder)) as server,
    ):
        yield server


@contextlib.contextmanager
def intake() -> Iterator[Server]:
    """Outrider's intake alone."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "outrider.toml"
        config.write_text(CONFIG)
        with Server(["-m", "outrider.monitor.intake", "--config", str(config)], Path(name)) as server:
            yield server
