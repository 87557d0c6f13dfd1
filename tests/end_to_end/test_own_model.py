"""The newcomer's path: every command of examples/own_model/README.md and docs/events.md, run live."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.forked import TRAINING, forks
from tests.guides import as_a_terminal, matches, steps
from tests.nginx import free_port
from tests.requirements import require_program
from tests.soak import PATIENCE_S

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_model"
INTERRUPTED_S = 20.0
"""Time until a terminal that does not end by Ctrl-C is asked to terminate."""
EVENTS = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
PORTS = ("8481", "8482")
"""Of the service and of the trainer, as the example has them."""


@dataclass
class Walk:
    """A reader who goes through the guide in a folder, with a terminal for each thing that goes on."""

    folder: Path
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
        with forks():
            return subprocess.run(
                words(command), cwd=self.folder, env=os.environ | env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip

    def go_on(self, command: str, shown: str) -> None:
        """Start a command in a terminal of its own, and wait for what it shows first."""
        name = shlex.split(command)[-1]
        log = self.folder / f"{name}.log"
        with log.open("wb") as told, forks(*TRAINING):
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
    """Arguments of a process: of ours where it is one, so that it is forked, else of a shell."""
    if command.startswith("outrider ") and not re.search(r"[$;|<>&]", command):
        return [sys.executable, "-m", "outrider", *shlex.split(command)[1:]]
    return ["bash", "-euc", command]


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    require_program("curl", "apt-get install -y curl")
    as_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "wine"
    ignored = shutil.ignore_patterns("__pycache__", "outrider-data", "*.onnx", "*.arrow", "webhook.secret")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    with contextlib.closing(Walk(folder)) as found:
        yield found


def on_free_ports(folder: Path) -> dict[str, str]:
    """Another port for each of the example's, in every file of it."""
    ports = {port: str(free_port()) for port in PORTS}
    for file in folder.rglob("*"):
        if file.suffix in (".toml", ".py", ".md", ".sh"):
            file.write_text(replaced(file.read_text(encoding="utf-8"), ports), encoding="utf-8")
    return ports


def replaced(text: str, changes: Mapping[str, str]) -> str:
    return re.sub("|".join(changes), lambda found: changes[found[0]], text)


def reporting_back() -> list[str]:
    """Commands of docs/events.md that report back, by their step."""
    section = EVENTS.split("\n## Report back\n")[1]
    found = re.findall(r"^ {7}(curl (?:.*\\\n)*.*)$", section, re.MULTILINE)
    return [textwrap.dedent(command) for command in found]


def one_line(command: str) -> str:
    return re.sub(r"\s*\\\n\s*", " ", command)


def test_a_newcomer_goes_once_round_with_a_model_of_their_own(walk: Walk) -> None:
    on_free_ports(walk.folder)
    guide = (walk.folder / "README.md").read_text(encoding="utf-8")
    assert walk.follow(guide) == 17
    fetch, report, verdicts, promote = reporting_back()
    ran = one_line((walk.folder / "retrain.sh").read_text(encoding="utf-8"))
    assert one_line(fetch) in ran
    assert one_line(report) in ran
    service = re.search(r"SERVICE=(\S+)", guide)
    assert service is not None
    event = {"SERVICE": service[1], "MODEL": "wine", "VERSION": "2"}
    event["KEY"] = (walk.folder / "outrider-data" / "key").read_text(encoding="utf-8").strip()
    event["URL"] = f"{service[1]}/v1/datasets/wine-flagged/versions/1/rows"
    assert walk.ended(fetch, **event).returncode == 0
    assert '"outcome":"passed"' in walk.ended(verdicts, **event).stdout
    assert '"status":"champion"' in walk.ended(promote, **event).stdout
    refused = walk.ended(fetch, **event | {"KEY": "or_wrong"})
    assert refused.returncode != 0
    assert "401" in refused.stderr
