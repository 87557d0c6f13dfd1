"""Rehearsal for ``check-config``: run the configuration on a sample, in a subprocess."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from outrider.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Findings of a rehearsal."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: dict[str, str] = field(default_factory=dict)
    """Number and source of the sample records, by model."""

    def notes(self) -> dict[str, Any]:
        """Warnings and samples for JSON output; problems are reported separately."""
        return {"warnings": self.warnings, "samples": self.samples}

    def say(self) -> None:
        """Print samples to stdout and warnings to stderr."""
        for model, sample in self.samples.items():
            typer.echo(f"{model}: ran on {sample}")
        for warning in self.warnings:
            typer.echo(f"warning: {warning}", err=True)


def rehearsed(config: Path, sample: Path | None, deadline_s: float) -> Rehearsal:
    """Run a configuration's code on a sample in a subprocess; collect findings."""
    if sample is not None and not sample.is_file():
        raise ConfigError(f"--sample: {sample} does not exist; a file of records expected")
    command = [sys.executable, "-m", "outrider.commands.rehearsal", "--config", str(config)]
    command += [] if sample is None else ["--sample", str(sample.resolve())]
    ended = ""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False
        )
        written = done.stdout
        if done.returncode:
            tail = done.stderr[-2000:].decode(errors="replace").rstrip()
            ended = f"ended the process (exit code {done.returncode})\n{tail}".rstrip()
    except subprocess.TimeoutExpired as error:
        written = error.stdout or b""
        ended = f"takes longer than {deadline_s:g} s; --deadline-s gives it more, --no-run leaves it out"
    return _read(config, written, ended)


def _read(config: Path, written: bytes, ended: str) -> Rehearsal:
    lines = [json.loads(line) for line in written.splitlines() if line.endswith(b"}")]
    found = Rehearsal()
    for line in lines:
        text = f"{config}: models.{line['model']}.{line['text']}"
        if line["kind"] == "problem":
            found.problems.append(text)
        elif line["kind"] == "warning":
            found.warnings.append(line["text"])
        elif line["kind"] == "sample":
            found.samples[line["model"]] = line["text"]
    if ended:
        steps = [line for line in lines if line["kind"] == "step"]
        at = f"models.{steps[-1]['model']}.{steps[-1]['text']}" if steps else "running it on the sample"
        found.problems.append(f"{config}: {at} {ended}")
    return found
