"""Folder of a run: readable project with its ports and seed."""

import base64
import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import outrider
from outrider.errors import ConfigError

MARK = ".outrider-demo"
PROJECT = Path(__file__).with_name("project")


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run."""

    folder: Path
    seed: int
    is_control: bool = False
    """Label at random, and learn from all labelled records."""


def prepare_folder(folder: Path) -> None:
    """Prepare an empty folder, new or left by an earlier demo.

    Raises
    ------
    ConfigError
        If it holds something else.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not (folder / MARK).exists():
            raise ConfigError(f"{folder} holds something that is not the demo's; name another with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("outrider demo may empty this folder\n", encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """Processes' environment: key file, package path, no caller's ``OUTRIDER_…``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    paths = [str(Path(outrider.__file__).parents[1]), *filter(None, [own.get("PYTHONPATH")])]
    own["PYTHONPATH"] = os.pathsep.join(paths)
    own["OUTRIDER_KEY_FILE"] = str(folder / "outrider-data" / "key")
    return own


def write_project(plan: Plan, *, port: int, service_port: int) -> None:
    """Copy the project into the folder, with the run's ports, seed."""
    shutil.copytree(PROJECT, plan.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    config = plan.folder / "outrider.toml"
    text = config.read_text(encoding="utf-8")
    changes = {
        "port = 8470": f"port = {port}",
        "http://127.0.0.1:9000/": f"http://127.0.0.1:{service_port}/",
        "seed = 0 ": f"seed = {plan.seed} ",
    }
    if plan.is_control:
        changes |= {
            'rows = "flagged" ': 'rows = "labelled"',
            "auto_rollback = true ": "auto_rollback = false ",
        }
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{config} has no {old!r}")
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    secret = plan.folder / "webhook.secret"
    secret.touch(mode=0o600)
    secret.write_text("whsec_" + base64.b64encode(secrets.token_bytes(24)).decode(), encoding="ascii")


def free_port(wanted: int = 0) -> int:
    """Free port: ``wanted``, or another where that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
