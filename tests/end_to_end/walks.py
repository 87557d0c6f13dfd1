"""A reader who goes through a guide: every command run live, its output compared."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.forked import TRAINING, forks
from tests.guides import matches, steps
from tests.nginx import free_port
from tests.soak import PATIENCE_S

INTERRUPTED_S = 20.0
"""Time until a terminal that does not end by Ctrl-C is asked to terminate."""


@dataclass
class Walk:
    """A reader who goes through the guide in a folder, with a terminal for each thing that goes on."""

    folder: Path
    needs: Sequence[str] = TRAINING
    """Modules that its processes import."""
    terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = field(default_factory=dict)

    def follow(self, text: str) -> int:
        """Do what the guide says; the number of commands that printed what it shows."""
        done = 0
        for step in steps(text):
            if step.kind == "command":
                (self.go_on if is_lasting(step.name) else self.run)(step.name, step.text)
                done += 1
            else:
                self.shows("trainer.py", step.text)
        return done

    def run(self, command: str, shown: str) -> None:
        """Run a command; one that only looks is run again until it shows what the guide does."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            came = self.ended(command)
            if came.returncode == 0 and matches(shown, came.stdout):
                return
            told = f"$ {command}\n--- the guide\n{shown}\n--- came\n{came.stdout}{came.stderr}\n{self.logs()}"
            assert command.split()[1] in ("assertions", "gate", "report"), told
            assert time.monotonic() < deadline, told
            time.sleep(0.5)

    def ended(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command that has come to its end."""
        with forks(*self.needs):
            return subprocess.run(
                words(command), cwd=self.folder, env=os.environ | env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip

    def go_on(self, command: str, shown: str) -> None:
        """Start a command in a terminal of its own, and wait for what it shows first."""
        name = shlex.split(command)[-1]
        log = self.folder / f"{name}.log"
        with log.open("wb") as told, forks(*self.needs):
            process = subprocess.Popen(
                words(command), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=told, stderr=told,
                start_new_session=True,
            )  # fmt: skip
        self.terminals[name] = (process, log)
        self.shows(name, shown)

    def shows(self, name: str, shown: str) -> None:
        """Wait until a terminal shows what the guide does."""
        process, log = self.terminals[name]
        deadline = time.monotonic() + PATIENCE_S
        while not matches(f"…\n{shown}\n…", log.read_text(encoding="utf-8")):
            assert process.poll() is None, self.logs()
            assert time.monotonic() < deadline, f"{shown}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """The end of what each terminal shows."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for _, log in self.terminals.values())

    def close(self) -> None:
        """Ctrl-C in each terminal, the newest first."""
        for process, _ in reversed(self.terminals.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(INTERRUPTED_S)
                except (
                    subprocess.TimeoutExpired
                ):  # a shell's background job hears no Ctrl-C, nor do its children
                    process.terminate()
                    process.wait(PATIENCE_S)


def is_lasting(command: str) -> bool:
    """Whether a command goes on until Ctrl-C."""
    return command.endswith(("outrider serve", "python trainer.py"))


def words(command: str) -> list[str]:
    """Arguments of a process: of ours or a script where it is one, so that it is forked, else of a shell."""
    if command.startswith("outrider ") and not re.search(r"[$;|<>&]", command):
        return [sys.executable, "-m", "outrider", *shlex.split(command)[1:]]
    if re.fullmatch(r"python \w+\.py[\w -]*", command):
        return [sys.executable, *shlex.split(command)[1:]]
    return ["bash", "-euc", command]


def on_free_ports(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Another port for each of the example's, in every file of it."""
    ports = {port: str(free_port()) for port in names}
    for file in folder.rglob("*"):
        if file.suffix in (".toml", ".py", ".md", ".sh"):
            file.write_text(replaced(file.read_text(encoding="utf-8"), ports), encoding="utf-8")
    return ports


def replaced(text: str, changes: Mapping[str, str]) -> str:
    return re.sub("|".join(changes), lambda found: changes[found[0]], text)
