"""Checks of configured expectations, without a dataset.

Run as a module, it prints the problems of all models.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError
from outrider.parts import lack_of

from .stored_state import opened_state

if TYPE_CHECKING:
    from outrider.dataops.datasets.suite_files import Expected
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.model_sections import ModelSettings

TENSORS = ("tensor", "image", "extension<arrow.fixed_shape_tensor")


def expectation_problems(settings: "Settings", name: str) -> Iterator[str]:
    """Problems of a model's expectations.

    Great Expectations itself runs in a subprocess that also loads user checks.
    """
    model = settings.models[name]
    if not (model.expectations or model.validation.checks):
        return
    if lack := lack_of(["gx"], "judging them"):
        yield f"expectations: {lack}"
        return
    from outrider.dataops.datasets.suite_files import read_suite, unknown_types
    from outrider.monitor.trainer.checks_process import build_problems

    checks = [settings.path(file) for file in model.validation.checks]
    missing = [path for path in checks if not path.is_file()]
    yield from (f"validation.checks: {path} does not exist" for path in missing)
    try:
        suite = read_suite(model.expectations, settings.base)
    except ConfigError as error:
        yield str(error)
        return
    problems = [] if checks else list(unknown_types(suite))
    problems += _column_problems(settings, name, suite)
    if not problems and not missing and (suite or checks):
        problems = build_problems(suite, checks, deadline_s=model.validation.deadline_s)
    where = model.expectations if isinstance(model.expectations, str) else ""
    yield from (f"expectations{f' ({where})' if where else ''}{problem}" for problem in problems)


def problems_elsewhere(path: Path, settings: "Settings") -> list[str]:
    """Problems of all models, found in a subprocess."""
    if not any(model.expectations or model.validation.checks for model in settings.models.values()):
        return []
    command = [sys.executable, "-m", "outrider.commands.expectation_checks", "--config", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"expectations cannot be checked: {done.stderr.strip()[-2000:]}"]
    return done.stdout.splitlines()


def _column_problems(settings: "Settings", name: str, suite: "list[Expected]") -> Iterator[str]:
    from outrider.dataops.datasets.suite_files import columns_of, resolved, unknown_columns

    model = settings.models[name]
    stored = _stored(settings, name, model)
    if not (model.inputs or stored):
        return  # any column may come
    known = known_columns(model, stored)
    suite = resolved(suite, known, model.target)
    if not stored:  # inputs are declared, what else is logged is not
        known += [n for item in suite for n in columns_of(item) if n.startswith(("attrs.", "outputs."))]
    yield from unknown_columns(suite, known)


def known_columns(model: "ModelSettings", stored: dict[str, str]) -> list[str]:
    """Columns of a model that are declared, or stored in dataset versions."""
    kinds = dict.fromkeys([*model.declared_inputs, f"label.{model.target}"], "")
    kinds |= model.columns | stored
    found: list[str] = ["id", "ts", "entity", "version", "seq", "weight"]
    for column, kind in kinds.items():
        if not kind.startswith(TENSORS):
            found.append(column)
        if not kind or kind.startswith(TENSORS):
            found += [f"{column}.{extreme}" for extreme in ("min", "max", "mean")]
    return found


def _stored(settings: "Settings", name: str, model: "ModelSettings") -> dict[str, str]:
    from outrider.dataops.datasets.collect import dataset_of
    from outrider.dataops.datasets.references import open_if_any
    from outrider.errors import NotFound

    columns: dict[str, str] = {}
    with opened_state(settings) as engine:
        if engine is None:
            return {}
        with engine.connect() as connection:
            for dataset in (dataset_of(name), model.retrain.replay, *model.gate.judging):
                try:
                    version = open_if_any(connection, dataset)
                except NotFound:
                    return {}  # a tag that is not there yet
                columns |= {} if version is None else version.manifest["columns"]
    return columns


def main() -> None:
    from outrider.monitor.settings.config import load_settings

    parser = argparse.ArgumentParser(prog="outrider.commands.expectation_checks")
    parser.add_argument("--config", type=Path, required=True)
    settings = load_settings(parser.parse_args().config)
    for name in settings.models:
        for problem in expectation_problems(settings, name):
            sys.stdout.write(f"models.{name}.{problem}\n")


if __name__ == "__main__":
    main()
