"""Processes of the service as forks of one that has their imports: a hundred starts cost what one does.

A fork has its own parent, process group, environment, files, arguments and limits, as a process that is
started, and what it starts of the service is a fork too. What tests of the start itself are about is started
as users start it.

Each process that starts others has a nursery: a fork of it from before it did anything. Forks of the nursery
are handed to the process as its own children (Linux gives orphans to the nearest subreaper).
"""

import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import site
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .soak import IS_SOAK

FAULTS = ["-X", "faulthandler"]
PR_SET_CHILD_SUBREAPER = 36
_EXECUTE_CHILD = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
ROOM = 4096
"""Bytes for the arguments of a fork, where `ps` and the tests look for them."""
LIGHT = ("outrider.monitor.host.__main__", "outrider.monitor.engine.__main__")
WHOLE = (
    *LIGHT,
    "outrider.commands.serve",
    "outrider.commands.check_config",
    "outrider.commands.rehearsal",
    "outrider.monitor.migrate",
    "outrider.monitor.intake.__main__",
    "outrider.monitor.views.every",
    "outrider.monitor.worker.__main__",
    "outrider.monitor.trainer.__main__",
    "outrider.monitor.trainer.champion_suites_job",
)
TRAINING = ("torch", "torch._dynamo", "great_expectations", "outrider.monitor.trainer.retraining")
"""What processes that fit or validate import on top of it; optimizers of torch import ``torch._dynamo``."""
STARTERS = ("outrider", "outrider.monitor.worker", "outrider.monitor.trainer")
"""Modules whose processes start others."""


class Nursery:
    """Other end of a process that forks."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def fork(self, order: Mapping[str, Any], fds: Sequence[int]) -> int:
        """Process id of a new child of this process."""
        with self._lock:
            socket.send_fds(self._sock, [json.dumps(order).encode()], list(fds))
            return int(self._sock.recv(64))

    def close(self) -> None:
        """Let it end."""
        self._sock.close()

    def execute_child(self, popen: Any, *given: Any, needs: Sequence[str] = ()) -> bool:
        """Do what ``Popen`` does once it has made its pipes, where that is to run a module of ours."""
        told = _EXECUTE_CHILD.bind(popen, *given).arguments
        command = list(map(str, told["args"])) if isinstance(told["args"], list) else []
        is_traced = command[1:3] == FAULTS
        is_safe = command[1:2] == ["-P"]
        module = command[3 if is_traced else 2 if is_safe else 1 :]
        is_ours = module[:1] == ["-m"] and module[1].split(".")[0] in ("outrider", "tests")
        is_script = bool(module) and module[0].endswith(".py")
        if command[:1] != [sys.executable] or not (is_ours or is_script):
            return False
        pipes = [told["p2cread"], told["c2pwrite"], told["errwrite"]]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        order = {
            "command": command,
            "module": module if is_script else module[1:],
            "is_traced": is_traced,
            "needs": needs,
            "env": dict(os.environ if told["env"] is None else told["env"]),
            "cwd": str(told["cwd"] or os.getcwd()),
            "is_safe": is_safe,
            "is_session": told["start_new_session"],
            "group": told["process_group"],
            "fds": [0, 1, 2, *told["pass_fds"]],
        }
        popen.pid = self.fork(order, [*streams, *told["pass_fds"]])
        popen._child_created = True
        popen._close_pipe_fds(*(told[name] for name in _PIPES))
        return True


class LightPopen(subprocess.Popen[bytes]):
    """Forks assertion hosts and engines, from a process as small as they are."""

    def _execute_child(self, *given: Any) -> None:
        if not nursery(LIGHT).execute_child(self, *given):
            raise ValueError(f"not a module of ours: {self.args!r}")


@contextlib.contextmanager
def forks(*needs: str, modules: Sequence[str] = WHOLE) -> Iterator[None]:
    """Fork what ``subprocess`` is to run of ours meanwhile; a soak starts it as users do.

    A fork of a process as small as itself (``modules=LIGHT``) costs a quarter.
    """
    if IS_SOAK:
        yield
        return
    usual = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    _fork_with(nursery(modules), needs)
    try:
        yield
    finally:
        subprocess.Popen._execute_child = usual  # type: ignore[attr-defined]


def _fork_with(own: Nursery, needs: Sequence[str] = ()) -> None:
    """Have ``subprocess.Popen`` of this process fork what it can."""
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute_child(self: Any, *given: Any) -> None:
        if not own.execute_child(self, *given, needs=needs):
            start(self, *given)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


@functools.cache
def nursery(modules: Sequence[str]) -> Nursery:
    """The one of this process of pytest for these modules, started when it is first asked for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _adopt()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", str(theirs.fileno()), ",".join(modules), " " * ROOM],
        env={"ARROW_DEFAULT_MEMORY_POOL": "system"} | os.environ,
        cwd=Path(__file__).parents[1],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    found = Nursery(ours)
    atexit.register(process.wait)
    atexit.register(found.close)
    return found


def main() -> None:
    """Import, then fork until the other end is closed."""
    for module in sys.argv[2].split(","):
        importlib.import_module(module)
    _serve(socket.socket(fileno=int(sys.argv[1])))


def _adopt() -> None:
    """Become the parent of what a child leaves behind."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _serve(control: socket.socket) -> None:
    """Fork twice for each order: the process between ends at once, so that the owner gets what it left."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 20, 32)
        if not message:
            return
        order = json.loads(message)
        for module in order["needs"]:
            if not module.startswith("tests."):  # what changes the service is for this fork alone
                importlib.import_module(module)
        gc.freeze()  # else each fork looks for garbage in all of it, and gets pages of its own
        between, ours = os.pipe()
        if (pid := os.fork()) == 0:
            here = os.getpid()
            if (child := os.fork()) == 0:
                os.close(between)
                os.close(ours)
                control.close()
                while os.getppid() == here:
                    time.sleep(0.0002)
                _be(order, fds)
            os.write(ours, str(child).encode())
            os._exit(0)
        os.close(ours)
        os.waitpid(pid, 0)
        control.send(os.read(between, 64))
        for fd in (between, *fds):
            os.close(fd)


def _be(order: dict[str, Any], fds: list[int]) -> None:
    """Be the process that was ordered, to its end."""
    status = 1
    try:
        module, *arguments = order["module"]
        for needed in order["needs"]:
            importlib.import_module(needed)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest may have been told to ignore it
        if order["is_session"]:
            os.setsid()
        if order["group"] != -1:
            os.setpgid(0, order["group"])
        os.chdir(order["cwd"])
        _take_environment(order["env"])
        _take_fds(fds, order["fds"])
        _show(order["command"])
        if order["is_traced"]:
            faulthandler.enable()
        if module in STARTERS:
            _keep_nursery([fd for fd in order["fds"] if fd > 2])
        sys.path[0] = order["cwd"] if not order["is_safe"] else sys.path[1]
        sys.argv = [module, *arguments]
        status = _entered(module)
    except BaseException:  # noqa: BLE001 - a child must never come back into the loop
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _entered(module: str) -> int:
    """Exit status of ``python -m MODULE``, or of ``python SCRIPT``."""
    try:
        if module.endswith(".py"):
            runpy.run_path(module, run_name="__main__")
            return 0
        found = importlib.import_module(module)
        entry = importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found
        return int(entry.main() or 0)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _take_environment(wanted: dict[str, str]) -> None:
    path = wanted.get("PYTHONPATH", "")
    is_new_path = path != os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(wanted)
    if is_new_path:
        sys.path[1:1] = filter(None, path.split(os.pathsep))
        sys.modules.pop("sitecustomize", None)
        site.execsitecustomize()


def _take_fds(fds: list[int], wanted: list[int]) -> None:
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, max(wanted) + 1) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(aside, wanted, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _show(command: Sequence[str]) -> None:
    """Have ``/proc/PID/cmdline`` tell these arguments."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    shown = b"\0".join(part.encode() for part in command)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, shown, len(shown))


def _keep_nursery(inherited: Sequence[int]) -> None:
    """Fork a nursery of this process, and have ``subprocess.Popen`` fork what it can."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _show(["nursery"])
        ours.close()
        for fd in inherited:
            os.close(fd)
        try:
            _serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    _adopt()
    _fork_with(Nursery(ours))


if __name__ == "__main__":
    main()
