"""``outrider doctor``: facts on the machine and data folder, start-up times."""

import json as json_format
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from outrider.monitor.settings.config import Settings

IMPORTS = ("outrider.assertions", "outrider.behavioral_tests", "outrider.monitor.client")
PACKAGES = ("outrider", "torch", "pandas", "pyarrow", "great-expectations", "fastapi", "sqlmodel", "pytest")
READY_DEADLINE_S = 30.0
COSTS_DEADLINE_S = 60.0
EXAMPLE = '[server]\nport = 0\n[models.example]\npredictor = "model.py:predict"\n'


def doctor(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default="outrider.toml")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Check this machine and data folder.

    Prints import and start-up figures, and the cost of assertions.
    """
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": _device(),
        "uploaded_models": _uploaded_models(),
        "import_seconds": {name: _timed_import(name) for name in IMPORTS},
        "help_seconds": _timed([sys.executable, "-m", "outrider", "--help"]),
        "intake_ready_seconds": _ready_seconds(),
        "data": _data(config),
        "latency": _latency(config),
        "counted_as_other": _folded(config),
        "trunks": _trunks(config),
        "assertion_costs": _assertion_costs(config),
    }
    if json:
        typer.echo(json_format.dumps(report, indent=2))
        return
    for key, value in report.items():
        if isinstance(value, dict):
            typer.echo(f"{key}:")
            for name, entry in value.items():
                typer.echo(f"  {name:<28} {_shown(entry)}")
        else:
            typer.echo(f"{key:<30} {_shown(value)}")


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "none" if value is None else str(value)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _timed(command: list[str]) -> float:
    """Seconds of the second of two runs; the first one warms the file cache."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
    return seconds


def _timed_import(name: str) -> float:
    """Seconds to import a module, without starting Python."""
    code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
    seconds = 0.0
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds = float(done.stdout)
    return seconds


def _device() -> str:
    """Device of shadow models, found in a subprocess, because importing torch takes seconds."""
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else 'cpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"torch cannot be imported: {done.stderr.strip().splitlines()[-1:]}"


def _uploaded_models() -> str:
    """Text on the files that the processes of uploaded models can read."""
    from outrider.dataops.confinement import landlock_version

    if version := landlock_version():
        return f"are opened by processes that can read nothing else (Landlock {version})"
    return "are opened by processes of this user, who can read the keys: this kernel has no Landlock"


def _ready_seconds() -> float | str:
    """Seconds from the start of an intake process on an empty folder to the first 200 of ``/readyz``."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "outrider.toml")
        config.write_text(EXAMPLE, encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            start = time.perf_counter()
            intake = subprocess.Popen(
                [sys.executable, "-m", "outrider.monitor.intake", "--config", str(config)],
                env={**os.environ, "OUTRIDER_LISTEN_FD": str(descriptor)},
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                return _poll_ready(port, start)
            finally:
                intake.terminate()
                intake.wait(10)


def _poll_ready(port: int, start: float) -> float | str:
    while time.perf_counter() - start < READY_DEADLINE_S:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if b" 200 " in probe.recv(64):
                    return time.perf_counter() - start
        except OSError:
            pass
        time.sleep(0.02)
    return f"not ready within {READY_DEADLINE_S:.0f} s"


def _data(config: Path | None) -> dict[str, Any]:
    """Size of the data folder, bytes per record, and days left at the present growth."""
    from outrider.monitor.settings.config import find_config

    from .data_facts import data_facts

    return data_facts(find_config(config))


def _latency(config: Path | None) -> dict[str, str]:
    """Age of each model's newest records when they were judged."""
    from outrider.dataops.ledger import freshness
    from outrider.monitor.settings.config import find_config

    from .stored_state import read_state

    def ages(settings: "Settings", connection: "Connection") -> dict[str, str]:
        return {name: freshness.told(freshness.standing(connection, name)) for name in settings.models}

    other = {"state.db": "of another layout: name an empty storage.folder, or move this one away"}
    return read_state(find_config(config), ages, other=other)


def _folded(config: Path | None) -> dict[str, str]:
    """Dimensions of each model with too many values to be counted by name."""
    from outrider.dataops.ledger.stated_values import OTHERS, PLACES, folded_shares
    from outrider.monitor.settings.config import find_config

    from .stored_state import read_state

    def folded(settings: "Settings", connection: "Connection") -> dict[str, str]:
        return {
            f"{name} {dimension}": f"{share:.1%} of late records under {OTHERS}: {PLACES} values have names"
            for name in settings.models
            for dimension, share in folded_shares(connection, name).items()
        }

    return read_state(find_config(config), folded, other={})


def _trunks(config: Path | None) -> dict[str, str]:
    """Weights that versions in use share with their base."""
    from outrider.monitor.settings.config import find_config

    from .trunk_facts import trunk_facts

    return trunk_facts(find_config(config))


def _assertion_costs(config: Path | None) -> dict[str, Any]:
    """Cost of each assertion per stored record; assertions called once per record are marked."""
    from outrider.monitor.settings.config import find_config

    path = find_config(config)
    if not path.exists():
        return {}
    command = [sys.executable, "-m", "outrider.commands.assertion_costs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=COSTS_DEADLINE_S)
    except subprocess.TimeoutExpired:
        return {"not measured": f"an assertion takes longer than {COSTS_DEADLINE_S:.0f} s"}
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return {"not measured": last[0] if last else f"exit code {error.returncode}"}
    costs: dict[str, Any] = json_format.loads(done.stdout)
    return costs
