"""``outrider check-config``: check outrider.toml and load its code."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .check_sample import Rehearsal, rehearsed
from .expectation_checks import expectation_problems
from .gate_checks import gate_problems, gate_warnings
from .model_checks import (
    base_problem,
    callable_problems,
    challenger_problems,
    dataset_problems,
    redaction_problems,
    registered_problems,
    score_warnings,
    source_problems,
    training_problems,
    upload_problems,
)
from .output import Config, Json, as_json, table
from .trigger_checks import trigger_problems, trigger_warnings

if TYPE_CHECKING:
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.model_sections import JudgeSettings, ModelSettings

COLUMNS = {
    "model": "model",
    "kind": "kind",
    "name": "name",
    "level": "level",
    "revision": "revision",
    "owner": "owner",
    "description": "description",
}


def check_config(
    config: Config = None,
    deadline_s: Annotated[
        float, typer.Option(help="Seconds that loading the named files, and trying them, may take.")
    ] = 60.0,
    sample: Annotated[
        Path | None,
        typer.Option(help="Records to try (.jsonl .json .csv .parquet).", show_default="data/sample.*"),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run model, assertions and suites on the sample.")
    ] = True,
    json: Json = False,
) -> None:
    """Check outrider.toml, load its code, and run that on a sample.

    Exit code 3 with every problem found.
    """
    from outrider.monitor.registry.declared_shares import wrong_shares
    from outrider.monitor.settings.config import find_config, load_settings
    from outrider.monitor.settings.webhook_secrets import secret_problems

    path = find_config(config).resolve()
    settings = load_settings(path)
    if not settings.models:
        raise ConfigError(f"{path}: models: at least one [models.NAME] section expected, got none")
    offered = manifest(path, deadline_s)
    problems = [problem for name in settings.models for problem in offered[name].pop("errors")]
    warnings: list[str] = []
    for name, model in settings.models.items():
        problems += (f"{path}: models.{name}.{problem}" for problem in _missing(settings, name, model))
        problems += (f"{path}: models.{name}.{problem}" for problem in _unmet(offered[name], model))
        problems += (f"{path}: models.{name}.{problem}" for problem in registered_problems(settings, name))
        problems += (f"{path}: models.{name}.{problem}" for problem in redaction_problems(settings, name))
        problems += (f"{path}: models.{name}.{problem}" for problem in expectation_problems(settings, name))
        problems += (f"{path}: models.{name}.{problem}" for problem in dataset_problems(settings, name))
        incidents, odd = _incidents(settings, name)
        if incidents:
            offered[name]["suites"][settings.incident_suite(name).name] = len(incidents)
        problems += odd
        tests = [tuple(test) for test in offered[name].pop("tests")] + incidents
        found = gate_problems(settings, model, offered[name]["assertions"], tests)
        problems += (f"{path}: models.{name}.{problem}" for problem in found)
        odd_triggers = trigger_problems(model, offered[name])
        problems += (f"{path}: models.{name}.{problem}" for problem in odd_triggers)
        idle = (*gate_warnings(model), *trigger_warnings(model), *score_warnings(settings, name))
        warnings += (f"models.{name}.{warning}" for warning in idle)
    problems += (f"{path}: {problem}" for problem in (*wrong_shares(settings), *secret_problems(settings)))
    tried = rehearsed(path, sample, deadline_s) if run and not problems else Rehearsal()
    problems += tried.problems
    tried.warnings.extend(warnings)
    if json:
        as_json({"config": str(path), "models": offered, "problems": problems, **tried.notes()})
    elif not problems:
        table(_rows(offered), COLUMNS, empty="no assertions and no behavioral tests are configured")
    if not json:
        tried.say()
    if problems:
        raise ConfigError("\n".join(problems))
    if not json:
        typer.echo(f"{path}: ok")


def _incidents(settings: "Settings", model: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Tests of a model's incident suite (kind, name), and its errors; the gate runs it, too."""
    from outrider.behavioral_tests import load_suite

    path = settings.incident_suite(model)
    if not path.is_file() or path in map(settings.path, settings.models[model].behavior):
        return [], []
    try:
        return [(test.suite, test.name) for test in load_suite(path).tests], []
    except ConfigError as error:
        return [], [f"models.{model}: {error}"]


def manifest(path: Path, deadline_s: float) -> dict[str, Any]:
    """Offer of an assertion host by model: assertions, live tests and suites.

    Raises ConfigError on a crash or timeout.
    """
    from outrider.monitor.process import wire

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-X", "faulthandler", "-m", "outrider.monitor.host", "--config", str(path)]
    command += ["--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
    with ours, theirs, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        theirs.close()
        ours.settimeout(deadline_s)
        try:
            while "loading" in (header := wire.receive(ours)[0]):
                pass
        except TimeoutError:
            process.send_signal(signal.SIGABRT)  # the fault handler writes the traceback
            raise ConfigError(
                f"{path}: loading the files it names takes longer than {deadline_s:g} s"
                f"{_place(process, log)}; a file that the service loads must not wait or loop"
            ) from None
        except (EOFError, OSError):
            code = process.wait()
            log.seek(0)
            text = log.read()[-2000:].decode(errors="replace")
            raise ConfigError(
                f"{path}: loading the files it names ended the process (exit code {code})\n{text}".rstrip()
            ) from None
        finally:
            process.kill() if process.poll() is None else None
            process.wait()
    found: dict[str, Any] = header["manifest"]
    return found


def _place(process: subprocess.Popen[bytes], log: Any) -> str:
    """Innermost line of user code in the traceback of an aborted process."""
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        return ""
    log.seek(0)
    lines = re.findall(r'File "(.+?)", line (\d+)', log.read().decode(errors="replace"))
    libraries = (sys.prefix, sys.base_prefix, "<frozen", str(Path(__file__).parents[1]))
    own = [f"; it stood at {file}:{line}" for file, line in lines if not file.startswith(libraries)]
    return own[0] if own else ""


def _unmet(entry: dict[str, Any], model: "ModelSettings") -> Iterator[str]:
    """Assertions that need a judge which is not configured."""
    for judge in entry["assertions"]:
        for need in judge["needs"]:
            if need.startswith("judge.") and need.removeprefix("judge.") not in model.judges:
                yield f"judges: assertion {judge['name']} needs {need}, which is not configured"


def _missing(settings: "Settings", name: str, model: "ModelSettings") -> Iterator[str]:
    """Problems of files that only the worker loads, found without importing torch."""
    for judged, judge in model.judges.items():
        yield from (f"judges.{judged}.{problem}" for problem in _judge_problems(settings, judge))
    yield from source_problems(settings, model)
    yield from training_problems(settings, model)
    yield from upload_problems(model)
    yield from base_problem(settings, name, model.adapted_from)
    for version, challenger in model.challengers.items():
        yield from (
            f"challengers.{version}.{problem}"
            for problem in (
                *challenger_problems(settings, model, challenger),
                *base_problem(settings, name, challenger.adapted_from),
            )
        )


def _judge_problems(settings: "Settings", judge: "JudgeSettings") -> Iterator[str]:
    if judge.predictor is not None:
        yield from callable_problems(settings, "predictor", judge.predictor)
    if judge.prompt_file is not None and not settings.path(judge.prompt_file).is_file():
        yield f"prompt_file: {settings.path(judge.prompt_file)} does not exist"


def _rows(offered: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for model, entry in offered.items():
        for judge in entry["assertions"]:
            kind = "windowed assertion" if judge["window"] else "assertion"
            yield judge | {"model": model, "kind": kind}
        for test in entry["live"]:
            yield test | {"model": model, "kind": f"live {test['kind']}, {test['rate']:g} of traffic"}
        for file, tests in entry["suites"].items():
            yield {"model": model, "kind": "suite", "name": file, "description": f"{tests} behavioral tests"}
