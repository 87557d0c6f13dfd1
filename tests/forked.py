"""Processes of the service as forks of one that has their imports: a hundred starts cost what one does.

A fork has its own process group, environment, files and limits, as a process that is started; what tests of
the host's life itself are about is started as the service does.
"""

import atexit
import fcntl
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FREE_FD = 200
"""Above the descriptors that orders name."""
LOOK_S = 0.002
PRELOADED = ("outrider.monitor.host", "outrider.monitor.engine")


class Forked:
    """A fork, with as much of ``subprocess.Popen`` as its owners use."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self._server = server
        self._code: int | None = None
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, once it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            self._code = self._server.ask({"look": self.pid})
            if self._code is None:
                if until is not None and time.monotonic() > until:
                    raise subprocess.TimeoutExpired("fork", timeout or 0.0)
                time.sleep(LOOK_S)
        return self._code


class ForkServer:
    """The process that forks; it ends with this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock = ours
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            env=environment | os.environ,
            cwd=Path(__file__).parents[1],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        """End it, and what it forked."""
        self._sock.close()
        self._process.wait()

    def ask(self, order: Mapping[str, Any], fds: Sequence[int] = ()) -> Any:
        """Answer to an order."""
        with self._lock:
            socket.send_fds(self._sock, [json.dumps(order).encode()], list(fds))
            return json.loads(self._sock.recv(1 << 16))

    def popen(
        self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], **_rest: object
    ) -> Any:
        """Fork instead of starting ``python -m MODULE ARGUMENTS``; standard streams lead nowhere."""
        _, minus_m, module, *arguments = command
        assert minus_m == "-m"
        if "--parent" in arguments:
            arguments[arguments.index("--parent") + 1] = str(self._process.pid)
        order = {
            "module": module,
            "arguments": arguments,
            "env": dict(env),
            "cwd": os.getcwd(),
            "fds": list(pass_fds),
        }
        return Forked(self, self.ask(order, pass_fds))


@functools.cache
def fork_server() -> ForkServer:
    """The one of this process, started when it is first asked for."""
    return ForkServer({"ARROW_DEFAULT_MEMORY_POOL": "system"})


def main() -> None:
    """Fork and reap until the other end is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        _entry(module)
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 20, 16)
        if not message:
            return
        order = json.loads(message)
        answer = _look(order["look"]) if "look" in order else _fork(order, fds, control)
        control.send(json.dumps(answer).encode())


def _look(pid: int) -> int | None:
    """Exit code of a fork, None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork(order: dict[str, Any], fds: list[int], control: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            status = _run(order, fds)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:  # noqa: BLE001 - a child must never come back into the loop
            traceback.print_exc()
        finally:
            os._exit(status)
    os.setpgid(pid, pid)
    for fd in fds:
        os.close(fd)
    return pid


def _run(order: dict[str, Any], fds: list[int]) -> int:
    """Be the process that was ordered."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, FREE_FD) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, wanted in zip(aside, order["fds"], strict=True):
        os.dup2(fd, wanted)
        os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    sys.argv = [order["module"], *order["arguments"]]
    _entry(order["module"]).main()
    return 0


def _entry(name: str) -> Any:
    """What ``python -m NAME`` runs, imported."""
    module = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(module, "__path__") else module


if __name__ == "__main__":
    main()
