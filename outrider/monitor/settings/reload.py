"""Reload of the configuration while the service runs; an invalid file leaves the last valid one in force."""

# Standard library only, for the supervisor. Processes of the service read the accepted copy, never the file:
# one that restarts between an edit and its check must not read the edit.

import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Literal

log = logging.getLogger("outrider.supervisor")

ACCEPTED = "OUTRIDER_ACCEPTED_CONFIG"
"""Environment variable with two paths: the copy to read, and the file that it replaces."""
CHECK_S = 120.0
_MAX_CHARS = 2000
Changed = Literal["nothing", "code", "configuration"]


@dataclass(frozen=True, slots=True)
class ConfigState:
    """Times when the configuration was last loaded and refused, in epoch seconds; 0.0 for never."""

    loaded_s: float = 0.0
    refused_s: float = 0.0
    problem: str = ""
    """Reason why the newest file was refused; empty if it was not."""


def environment_of(copy: Path, config: Path) -> dict[str, str]:
    """Environment in which ``copy`` is read instead of ``config``."""
    return {ACCEPTED: f"{copy}{os.pathsep}{config}"}


def accepted_copy(config: Path) -> Path | None:
    """Copy to read instead of ``config`` in the processes of a service; None elsewhere."""
    copy, _, of = os.environ.get(ACCEPTED, "").partition(os.pathsep)
    return Path(copy) if copy and Path(of) == config.resolve() else None


def read_state(folder: Path) -> ConfigState:
    """State of a service's configuration; empty before the first start."""
    try:
        return ConfigState(**json.loads((folder / "run" / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return ConfigState()


@dataclass(frozen=True, slots=True)
class Serving:
    """Versions that a worker serves since it loaded the configuration, and those that it cannot load."""

    loaded_s: float = 0.0
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Champion by model; None for a model without a version."""
    challengers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Challengers by model."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error of a version that cannot be loaded, by ``model@version``."""

    def named(self, model: str) -> str:
        """Versions of one model, as text."""
        challengers = ", ".join(self.challengers.get(model, ()))
        version = self.versions[model] or "(no version)"
        return f"{model} {version} (challengers: {challengers})" if challengers else f"{model} {version}"


def note_serving(folder: Path, serving: Serving) -> None:
    """Write the served versions to a file for ``outrider reload``."""
    _replace(folder / "run" / "serving.json", asdict(serving))


def read_serving(folder: Path) -> Serving:
    """Versions that the worker last wrote; empty before that."""
    try:
        return Serving(**json.loads((folder / "run" / "serving.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Serving()


class Reload:
    """Checks a changed configuration while the service runs: the command ``check`` exits with 0 if it
    is valid, ``refuse`` gives a reason why a valid one needs a restart."""

    def __init__(
        self,
        config: Path,
        folder: Path,
        *,
        check: Sequence[str],
        refuse: Callable[[Path], str | None] = lambda _: None,
    ) -> None:
        self._config = config
        self._run = folder / "run"
        self._check = check
        self._refuse = refuse
        self._accepted = self._run / "outrider.toml"
        self._candidate = self._run / "outrider.candidate.toml"
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._began = 0.0
        self._state = ConfigState()

    @property
    def is_checking(self) -> bool:
        return self._process is not None

    def accept_first(self) -> Mapping[str, str]:
        """Accept the file when the service starts; return the environment for its processes."""
        self._accepted.write_bytes(self._config.read_bytes())
        self._note(ConfigState(loaded_s=time.time()))
        return environment_of(self._accepted, self._config)

    def begin(self) -> None:
        """Start the check; poll :meth:`finish` for its result."""
        try:
            self._candidate.write_bytes(self._config.read_bytes())
        except OSError as error:
            self._refused(f"{self._config} cannot be read: {error}")
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed when the process has ended
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            list(self._check),
            env=os.environ | environment_of(self._candidate, self._config),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        log.info("checking %s and the files it names", self._config)

    def finish(self) -> Changed:
        """Change to apply; ``nothing`` while the check runs, and if it failed."""
        if self._process is None or self._errors is None:
            return "nothing"
        if self._process.poll() is None and time.monotonic() - self._began < CHECK_S:
            return "nothing"
        if (code := self._process.poll()) is None:
            self.close()
            self._refused(f"the check took longer than {CHECK_S:g} s")
            return "nothing"
        self._errors.seek(0)
        problem = self._errors.read().decode(errors="replace").strip()
        self.close()
        if code:
            self._refused(problem[-_MAX_CHARS:] or f"the check ended with exit code {code}")
            return "nothing"
        try:
            why = self._refuse(self._candidate)
        except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on as it was
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            self._refused(why)
            return "nothing"
        changed = self._candidate.read_bytes() != self._accepted.read_bytes()
        self._candidate.replace(self._accepted)
        self._note(ConfigState(loaded_s=time.time()))
        return "configuration" if changed else "code"

    def close(self) -> None:
        """Kill a running check."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._errors is not None:
            self._errors.close()
        self._process = self._errors = None

    def _refused(self, why: str) -> None:
        log.error("%s is not taken up, the last good configuration stays: %s", self._config, why)
        self._note(ConfigState(self._state.loaded_s, time.time(), why))

    def _note(self, state: ConfigState) -> None:
        self._state = state
        fields = {"loaded_s": state.loaded_s, "refused_s": state.refused_s, "problem": state.problem}
        _replace(self._run / "config.json", fields)


def _replace(path: Path, fields: Mapping[str, object]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(fields), encoding="utf-8")
    part.replace(path)
