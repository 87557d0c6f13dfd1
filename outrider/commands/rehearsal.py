"""Rehearsal of a configuration on a sample, in a subprocess. Findings are written as JSON lines."""

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from outrider.assertions import Batch, Predictor, load_assertions
from outrider.assertions.checker import severities_of
from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.asking import answers_to
from outrider.behavioral_tests.cases import to_batch
from outrider.behavioral_tests.judging import judge
from outrider.behavioral_tests.suite import BehavioralTest, suite_files
from outrider.dataops.journal.newest_records import newest_records
from outrider.model_reference import section_predictor
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.model_sections import ModelSettings

from .assertion_costs import opened_records

ROWS = 200
"""Maximum number of sample records, and of cases per behavioral test."""
_COLUMN = re.compile(r"(inputs|outputs)\.\w+")
_PARTS = ("inputs.", "outputs.")
_HERE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Sample:
    """Records on which a model is tried, with their source as text."""

    batch: Batch
    source: str


class RehearsalLog:
    """Writer of findings as JSON lines. Each is flushed, because user code may end the process."""

    def __init__(self, out: TextIO, model: str) -> None:
        self._out = out
        self._model = model

    def tell(self, kind: str, text: str) -> None:
        """Write a finding; ``kind`` is ``step``, ``sample``, ``problem`` or ``warning``."""
        self._out.write(json.dumps({"model": self._model, "kind": kind, "text": text}) + "\n")
        self._out.flush()


def rehearse(settings: Settings, name: str, given: Path | None, findings: RehearsalLog) -> None:
    """Run a model, its challengers, assertions and suites on a sample."""
    model = settings.models[name]
    tests = list(_tests(settings, model))
    try:
        sample = find_sample(settings, name, given, tests)
    except Exception as error:  # noqa: BLE001 - the file is the user's
        findings.tell("problem", f"sample: {given or 'data/sample.*'} cannot be read: {error_line(error)}")
        return
    if sample is None:
        findings.tell(
            "warning",
            f"{name}: no sample to run it on: name one with --sample FILE, or put it at data/sample.jsonl "
            "(.json, .csv, .parquet); only what loads was checked",
        )
        return
    findings.tell("sample", f"{sample.batch.rows} records of {sample.source}")
    inputs = [column for column in sample.batch.names if column.startswith("inputs.")]
    for column in model.declared_inputs:
        if column not in inputs:
            findings.tell("problem", f"inputs: {unknown(column, inputs)} in {sample.source}")
    known = dict.fromkeys((*inputs, *model.declared_inputs))
    answered, answers_well = _answered(settings, name, sample, findings)
    if answered is None:
        return
    _judge(settings, model, answered, findings)
    if answers_well:
        _ask(settings, name, tests, sample, known, findings)


def find_sample(
    settings: Settings, name: str, given: Path | None, tests: Sequence[tuple[str, BehavioralTest]]
) -> Sample | None:
    """Sample from the given file, ``data/sample.*``, stored records, or a suite's cases."""
    if given is not None:
        return Sample(_of_file(given), str(given))
    if (path := settings.sample_file) is not None:
        return Sample(_of_file(path), f"data/{path.name}")
    stored = opened_records(settings, name, newest_records(settings.journal_path, name, most_rows=ROWS))
    if stored is not None:
        return Sample(stored, "the newest stored")
    for file, test in tests:
        if test.cases is not None:
            found = to_batch(test.cases, folder=test.folder)
            return Sample(found.slice(0, min(ROWS, found.rows)), f"{test.name} in {file}")
    return None


def _of_file(path: Path) -> Batch:
    found = to_batch(path.resolve())
    return found.slice(0, min(ROWS, found.rows))


def _tests(settings: Settings, model: ModelSettings) -> Iterator[tuple[str, BehavioralTest]]:
    for named in model.behavior:
        for path in suite_files(settings.path(named)):
            for test in load_suite(path).tests:
                yield (
                    str(path.relative_to(settings.base) if path.is_relative_to(settings.base) else path),
                    test,
                )


def _answered(
    settings: Settings, name: str, sample: Sample, findings: RehearsalLog
) -> tuple[Batch | None, bool]:
    """Sample with answers to judge (None if the model raised), and True if the model answered."""
    model, batch = settings.models[name], sample.batch
    has_outputs = any(column.startswith("outputs.") for column in batch.names)
    if model.kind is None:
        if not has_outputs:
            findings.tell(
                "warning",
                f"{name}: it has no replica to ask and {sample.source} has no outputs: "
                "assertions that read outputs.* cannot be tried; add outputs to the sample",
            )
        return batch, False
    if model.kind == "endpoint":
        findings.tell("warning", f"{name}: its endpoint is not asked")
        return batch, False
    found = None
    for version in (None, *model.challengers):
        where = _key(model) if version is None else f"challengers.{version}"
        if version is not None and (model.challengers[version].kind or model.kind) == "endpoint":
            continue
        findings.tell("step", f"{where}: asked about {sample.source}")
        try:
            answers = answers_to(section_predictor(settings, name, version), batch)
        except Exception as error:  # noqa: BLE001 - the model is somebody's code
            findings.tell("problem", f"{where}: {error_line(error, batch)}; asked about {sample.source}")
            continue
        for problem in answer_problems(model, answers, batch):
            findings.tell("problem", problem if version is None else f"{where}: {problem}")
        found = answers if version is None else found
    if found is None:
        return None, False
    return (batch if has_outputs else batch.with_outputs(found)), True


def _key(model: ModelSettings) -> str:
    keys = ("architecture", "predictor", "folder", "onnx")
    return next(key for key in keys if getattr(model, key))


def answer_problems(model: ModelSettings, answers: Mapping[str, Any], sample: Batch) -> Iterator[str]:
    """Problems of a model's answers, compared with ``target`` and ``classes``."""
    target = model.target
    if target not in answers:
        if "target" in model.model_fields_set or model.task == "classification":
            yield (
                f"target: outputs.{target} expected among the model's answers, got "
                f"{', '.join(f'outputs.{name}' for name in answers) or 'none'}; "
                "name the field that is compared with labels"
            )
        return
    if not model.classes or model.task != "classification":
        return
    yield from _strange(model, np.asarray(answers[target]).tolist(), f"the model answers outputs.{target}")
    if sample.has(f"label.{target}"):
        labels = sample.to_arrow().column(f"label.{target}").to_pylist()
        yield from _strange(model, labels, f"the sample has label.{target}")
    probs = np.asarray(answers["probs"]) if "probs" in answers else None
    if probs is not None and probs.ndim == 2 and probs.shape[1] != len(model.classes):
        yield (
            f"classes: one for each column of outputs.probs expected ({probs.shape[1]}), "
            f"got {len(model.classes)}; in the order of probs"
        )


def _strange(model: ModelSettings, values: Iterable[Any], who: str) -> Iterator[str]:
    known = {str(each) for each in model.classes}
    strange = dict.fromkeys(repr(each) for each in values if each is not None and str(each) not in known)
    if strange:
        shown = ", ".join(list(strange)[:5])
        yield f"classes: {who} = {shown}, expected among {', '.join(map(repr, model.classes))}"


def _judge(settings: Settings, model: ModelSettings, answered: Batch, findings: RehearsalLog) -> None:
    """Run every assertion on the answered sample, and warn of columns that it names and the sample lacks."""
    batch = _without_labels(answered)
    for file in model.assertions:
        path = settings.path(file)
        if not path.exists():
            continue  # proposals that are still to come
        wrong = set()
        for each in load_assertions(path):
            if each.needs:
                continue  # answers of judges or other versions, which are not at hand
            findings.tell("step", f"assertions: {file}: {each.name}")
            try:
                severities_of(each, batch)
            except Exception as error:  # noqa: BLE001 - the assertion is somebody's code
                wrong.add(column_of(error))
                findings.tell("problem", f"assertions: {file}: {each.name}: {error_line(error, batch)}")
        for column in named_columns(path.read_text(encoding="utf-8")):
            if not batch.has(column) and column not in wrong:
                findings.tell("warning", f"{file}: {unknown(column, batch.names)} in the sample")


def named_columns(source: str) -> list[str]:
    """Column names in a file's strings, except names checked with ``has``.

    Examples
    --------
    >>> named_columns('categories("inputs.agee", [1]); batch.has("inputs.b") and batch.column("inputs.b")')
    ['inputs.agee']
    """
    asked: set[object] = set()
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "has":
            asked |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _COLUMN.fullmatch(node.value):
            found[node.value] = None
    return [column for column in found if column not in asked]


def _ask(
    settings: Settings,
    name: str,
    tests: Sequence[tuple[str, BehavioralTest]],
    sample: Sample,
    known: Iterable[str],
    findings: RehearsalLog,
) -> None:
    """Run every test on some of its cases, to find errors; failed tests are no finding."""
    predictor = section_predictor(settings, name)
    alike: dict[str, list[str]] = {}
    for file, test in tests:
        findings.tell("step", f"behavior: {file}: {test.name}")
        try:
            judged, asked = _try(test, predictor, sample.batch)
        except Exception as error:  # noqa: BLE001 - its model and functions are somebody's code
            alike.setdefault(f"{file}: \0: {error_line(error, sample.batch)}", []).append(test.name)
            continue
        wrong = [each for each in asked.names if each.startswith("inputs.") and each not in known]
        if wrong:
            alike.setdefault(f"{file}: \0: {unknown(wrong[0], known)} in the sample", []).append(test.name)
        elif not judged:
            findings.tell("warning", f"{file}: {test.name}: none of its cases could be judged")
    for text, names in alike.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        findings.tell("problem", "behavior: " + text.replace("\0", names[0] + more, 1))


def _try(test: BehavioralTest, predictor: Predictor, sample: Batch) -> tuple[int, Batch]:
    """Number of judged cases, and the examples that the model was asked."""
    examples = test.examples(cases=sample if test.cases is None else None)
    examples = examples.take(np.arange(min(ROWS, examples.cases)))
    if not examples.batch.rows:
        return 0, examples.batch
    answered = examples.answered(examples.batch.with_outputs(answers_to(predictor, examples.batch)))
    severity = judge(answered, test.expect, test.aggregate).severity
    return int((~np.isnan(severity)).sum()), examples.batch


def _without_labels(batch: Batch) -> Batch:
    table = batch.to_arrow()
    kept = {column: table.column(column) for column in batch.names if not column.startswith("label.")}
    return Batch.from_columns(kept, model=batch.model, rows=batch.rows)


def unknown(column: str, known: Iterable[str]) -> str:
    """Message on an unknown column, with the nearest known one.

    Examples
    --------
    >>> unknown("inputs.agee", ["id", "inputs.age", "inputs.bmi"])
    'no column inputs.agee (did you mean inputs.age?); there are inputs.age, inputs.bmi'
    """
    names = [each for each in known if each.startswith(_PARTS)]
    near = get_close_matches(column, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"no column {column}{hint}; there are {', '.join(names) or 'none'}"


def column_of(error: BaseException) -> str | None:
    """Column that was missing in a batch; None for another error."""
    found = re.search(r"no column '([^']+)'", str(error))
    return found[1] if found else None


def error_line(error: BaseException, batch: Batch | None = None) -> str:
    """One line on an error, with the innermost line of user code."""
    column = column_of(error)
    if column is not None and batch is not None:
        text = unknown(column, batch.names)
    else:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        text = f"{type(error).__name__}: {message}".splitlines()[0]
    place, at = error.__traceback__, ""
    while place is not None:
        file = place.tb_frame.f_code.co_filename
        if file.endswith(".py") and not file.startswith((sys.prefix, sys.base_prefix, _HERE)):
            at = f"{Path(file).name}:{place.tb_lineno}: "
        place = place.tb_next
    return at + text


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="outrider.commands.rehearsal")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--sample", type=Path)
    options = parser.parse_args(arguments)
    settings = load_settings(options.config)
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what user code prints is no part of the answer
        for name in settings.models:
            rehearse(settings, name, options.sample, RehearsalLog(out, name))


if __name__ == "__main__":
    main()
