"""Processes of the demo, with logs, watched, stopped in order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from outrider.errors import ServerError

STOP_S = 15.0
TAIL_LINES = 15


class ChildDied(ServerError):  # noqa: N818 - reads as the event it is
    """Demo process ended too soon; message with its log's end."""


@dataclass(slots=True)
class DemoProcess:
    """Process of the demo."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    may_end: bool

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time; 0 where the system tells none."""
        try:
            fields = (
                Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            )
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


@dataclass(slots=True)
class Children:
    """Processes of the demo as a context, stopped in reverse order."""

    folder: Path
    environment: dict[str, str]
    _all: list[DemoProcess] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, arguments: Sequence[str], *, may_end: bool = False) -> DemoProcess:
        """Start ``python ARGUMENTS`` with its output in ``logs/NAME.log``."""
        path = self.folder / "logs" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches us alone: we stop them in order
            )
        child = DemoProcess(name, process, path, may_end)
        self._all.append(child)
        return child

    def check(self) -> None:
        """Raise when a process has died.

        Raises
        ------
        ChildDied
            Naming it, with the end of its log.
        """
        for child in self._all:
            code = child.process.poll()
            if code is None or (child.may_end and code == 0):
                continue
            raise ChildDied(f"{child.name} ended with {_told(code)}; the end of {child.log}:\n{child.tail()}")

    def stop(self) -> None:
        """SIGTERM all, last started first; SIGKILL slow ones."""
        deadline = time.monotonic() + STOP_S
        for child in reversed(self._all):
            if child.process.stdin is not None:
                child.process.stdin.close()
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        for child in reversed(self._all):
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._all.clear()


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
