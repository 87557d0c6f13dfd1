"""Reload while running: checked first, else the last good configuration stays.

Standard library only: the supervisor does it. Processes of the service read the copy of the configuration
that was accepted last, never the file itself: one that starts again between an edit and its check must not
fall over the edit.
"""

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
"""Environment variable: the copy to read, and of which file it is one."""
CHECK_S = 120.0
_MOST_TOLD = 2000
Changed = Literal["nothing", "code", "configuration"]


@dataclass(frozen=True, slots=True)
class ConfigState:
    """Loaded and refused configuration, in epoch seconds, 0.0 for never."""

    loaded_s: float = 0.0
    refused_s: float = 0.0
    problem: str = ""
    """Why the newest file was refused; empty when it was not."""


def environment_of(copy: Path, config: Path) -> dict[str, str]:
    """Environment in which ``copy`` is read wherever ``config`` is named."""
    return {ACCEPTED: f"{copy}{os.pathsep}{config}"}


def accepted_copy(config: Path) -> Path | None:
    """Copy in place of a service's configuration file, else None."""
    copy, _, of = os.environ.get(ACCEPTED, "").partition(os.pathsep)
    return Path(copy) if copy and Path(of) == config.resolve() else None


def read_state(folder: Path) -> ConfigState:
    """State of a service's configuration, empty before the first start."""
    try:
        return ConfigState(**json.loads((folder / "run" / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return ConfigState()


@dataclass(frozen=True, slots=True)
class Serving:
    """Versions that answer since a configuration was loaded."""

    loaded_s: float = 0.0
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Champion that answers, by model."""
    challengers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Challengers that answer beside it, by model."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Reason that a version cannot be loaded, by ``model@version``."""

    def named(self, model: str) -> str:
        """One model's versions, for people."""
        beside = ", ".join(self.challengers.get(model, ()))
        return f"{model} {self.versions[model] or '(no version)'}{f' (beside it {beside})' if beside else ''}"


def note_serving(folder: Path, serving: Serving) -> None:
    """Keep for ``outrider reload`` that the versions of a configuration are there."""
    _replace(folder / "run" / "serving.json", asdict(serving))


def read_serving(folder: Path) -> Serving:
    """State that the worker noted last, empty before."""
    try:
        return Serving(**json.loads((folder / "run" / "serving.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Serving()


class Reload:
    """Checks a changed configuration beside the running service.

    Parameters
    ----------
    config
        The file that people edit.
    folder
        Data folder.
    check
        Command that ends with 0 where a configuration can be used; it runs with the environment of
        :func:`environment_of`, and what it says on its standard error is why not.
    refuse
        Why a configuration that is good in itself cannot be taken up by a running service, or None.
    """

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
        self._said: IO[bytes] | None = None
        self._began = 0.0
        self._state = ConfigState()

    @property
    def is_checking(self) -> bool:
        """True while a check is under way."""
        return self._process is not None

    def accept_first(self) -> Mapping[str, str]:
        """Accept the file at service start; return the processes' environment."""
        self._accepted.write_bytes(self._config.read_bytes())
        self._note(ConfigState(loaded_s=time.time()))
        return environment_of(self._accepted, self._config)

    def begin(self) -> None:
        """Begin the check of the file; :meth:`finish` ends the check."""
        try:
            self._candidate.write_bytes(self._config.read_bytes())
        except OSError as error:
            self._refused(f"{self._config} cannot be read: {error}")
            return
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed when the process has ended
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            list(self._check),
            env=os.environ | environment_of(self._candidate, self._config),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
        )
        log.info("checking %s and the files it names", self._config)

    def finish(self) -> Changed:
        """Checked change to apply, ``nothing`` before, or when refused."""
        if self._process is None or self._said is None:
            return "nothing"
        if self._process.poll() is None and time.monotonic() - self._began < CHECK_S:
            return "nothing"
        if (code := self._process.poll()) is None:
            self.close()
            self._refused(f"the check took longer than {CHECK_S:g} s")
            return "nothing"
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        self.close()
        if code:
            self._refused(said[-_MOST_TOLD:] or f"the check ended with exit code {code}")
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
        """End a check that is under way."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._said is not None:
            self._said.close()
        self._process = self._said = None

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
