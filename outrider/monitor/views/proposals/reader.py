"""Learning of proposals from stored traffic, apart from intake's process.

Run as ``python -m outrider.monitor.views.proposals.reader``; it reads the journal and loads no user code.
"""

import argparse
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outrider.assertions.learn import Proposal, learn
from outrider.dataops.journal.newest_records import newest_records
from outrider.dataops.learned.proposals import (
    Learned,
    State,
    accept,
    learned_path,
    load_learned,
    save_learned,
    states,
)
from outrider.dataops.payloads.payloads import without_payloads
from outrider.errors import ConfigError
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.process.child import ask_for_reload
from outrider.monitor.process.helper import HelperError, ask_helper, begin_helping
from outrider.monitor.settings.config import Settings
from outrider.monitor.views.service import Service

MOST_RECORDS = 20_000
MOST_BYTES = 64_000_000
"""Of stored blocks that proposals are learned from at most."""
LIMIT_S = 120.0
TAKEN_UP = "the service checks it and takes it up within seconds; the page says so if it cannot"
RESTART = "the worker takes it up when it starts next: `outrider reload`"
Status = Literal["none", "learning", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Learning:
    """State of the proposals of one model."""

    status: Status
    detail: str
    """Why learning failed; empty otherwise."""
    found: Learned | None
    states: dict[str, State]
    file: Path | None
    """Where accepted proposals go; None where the configuration names no file for them."""
    advice: str
    """What to add to the configuration; empty where there is a file."""


class Learner:
    """Learner of proposals, one model at a time; keeps accepted ones."""

    def __init__(self, settings: Settings, *, limit_s: float = LIMIT_S) -> None:
        self._settings = settings
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: str | None = None
        self._failed: dict[str, str] = {}

    def start(self, model: str) -> None:
        """Learn from the newest records of a model; returns at once.

        Raises
        ------
        ProblemError
            If learning is under way already.
        """
        with self._lock:
            if self._running is not None:
                raise ProblemError(problem(409, f"learning from {self._running} is under way: wait for it"))
            self._running = model
            self._failed.pop(model, None)
        threading.Thread(target=self._learn, args=(model,), name="learning", daemon=True).start()

    def read(self, model: str, active: Mapping[str, str]) -> Learning:
        """Read the learned proposals of a model, and their states.

        Parameters
        ----------
        active
            Revision of each assertion and live test that judges now.
        """
        with self._lock:
            is_running, failed = self._running == model, self._failed.get(model, "")
        try:
            found = load_learned(learned_path(self._settings.data_folder, model))
        except ConfigError as error:
            found, failed = None, failed or str(error)
        file = learned_file(self._settings, model)
        status: Status = "learning" if is_running else "failed" if failed else "done" if found else "none"
        return Learning(
            status=status,
            detail="" if is_running else failed,
            found=found,
            states=states(found.proposals if found else (), file, active),
            file=file,
            advice="" if file else _advice(self._settings, model),
        )

    def accept(
        self,
        model: str,
        names: Sequence[str] | None,
        active: Mapping[str, str],
        *,
        learned_us: int | None = None,
    ) -> tuple[Path, bool, str]:
        """Write proposals, None for all with free names, into the model's file.

        Parameters
        ----------
        learned_us
            When the proposals that a person saw were learned; None takes those of now.

        Returns
        -------
        tuple
            The file, whether that changed it, and when it is taken up.

        Raises
        ------
        ProblemError
            If there is no such proposal, no file for it, its name is taken, or others were learned since.
        """
        now = self.read(model, active)
        if now.found is not None and learned_us not in (None, now.found.learned_us):
            raise ProblemError(problem(409, "newer proposals exist: review them, then accept again"))
        by_name = {one.name: one for one in now.found.proposals} if now.found else {}
        if names is None:
            names = [name for name in by_name if now.states[name] != "taken"]
        if unknown := [name for name in names if name not in by_name]:
            raise ProblemError(problem(404, f"{model} has no proposal {', '.join(unknown)}: learn first"))
        if now.file is None:
            raise ProblemError(problem(409, now.advice))
        if taken := [name for name in names if now.states[name] == "taken"]:
            detail = f"{', '.join(taken)}: something that was not learned has this name; rename it first"
            raise ProblemError(problem(409, detail))
        changed = self._write([by_name[name] for name in names], now.file)
        return now.file, changed, TAKEN_UP if changed and ask_for_reload() else RESTART

    def _write(self, proposals: list[Proposal], file: Path) -> bool:
        try:
            with self._lock:
                return accept(proposals, file)
        except (ConfigError, OSError, UnicodeDecodeError) as error:
            raise ProblemError(problem(409, f"{file.name} was not written: {error}")) from error

    def _learn(self, model: str) -> None:
        failed = "the process did not start"
        try:
            failed = self._ask(model)
        finally:
            with self._lock:
                self._running = None
                if failed:
                    self._failed[model] = failed

    def _ask(self, model: str) -> str:
        """Run the process; why it failed, or nothing."""
        arguments = ["--model", model, "--journal", str(self._settings.journal_path)]
        arguments += ["--to", str(learned_path(self._settings.data_folder, model))]
        try:
            ask_helper("outrider.monitor.views.proposals.reader", arguments, limit_s=self._limit_s)
        except HelperError as error:
            hint = ": `outrider assertions learn` has no limit" if "not done after" in str(error) else ""
            return f"{error}{hint}"
        return ""


def learner_of(service: Service) -> Learner:
    """Learner of a service."""
    return Learner(service.settings)


def learned_file(settings: Settings, model: str) -> Path | None:
    """Configured assertion file, named ``learned…``, for learned assertions."""
    found = settings.models.get(model)
    named = [file for file in found.assertions if Path(file).name.startswith("learned")] if found else []
    return settings.path(named[-1]) if named else None


def _advice(settings: Settings, model: str) -> str:
    found = settings.models.get(model)
    if found is None:
        return f"{model} is not in the configuration: add a section [models.{model}] to outrider.toml"
    listed = ", ".join(f'"{file}"' for file in (*found.assertions, "learned.py"))
    return (
        f"no file for learned assertions is named: put `assertions = [{listed}]` under [models.{model}] in "
        "outrider.toml and run `outrider reload`; the file itself is made by accepting"
    )


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="outrider.monitor.views.proposals.reader")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    begin_helping(options.parent)
    begun = time.monotonic()
    reference = newest_records(options.journal, options.model, most_rows=MOST_RECORDS, most_bytes=MOST_BYTES)
    if reference is None:
        sys.exit(f"no record of {options.model} is stored yet")
    proposals = learn(without_payloads(reference))
    spent = round(time.monotonic() - begun, 3)
    learned_us = time.time_ns() // 1000
    save_learned(options.to, Learned(learned_us, reference.rows, spent, tuple(proposals)))


if __name__ == "__main__":
    main()
