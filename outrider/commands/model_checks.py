"""Checks of configured models, without torch and without user code."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError
from outrider.parts import lack_of

from .stored_state import opened_state

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.gate_sections import GateSettings
    from outrider.monitor.settings.model_sections import ChallengerSettings, ModelSettings, SourceSettings

_PARTS_OF = {"architecture": ["torch"], "folder": ["torch", "hf"], "onnx": ["onnx"]}
"""Parts of the installation that a source needs."""


def source_problems(settings: "Settings", model: "ModelSettings") -> Iterator[str]:
    yield from _of_kind(settings, model, model.task)
    yield from _files(settings, model, model.kind in ("torch", "hf"))
    if model.endpoint:
        yield from _endpoint(model, model)


def challenger_problems(
    settings: "Settings", model: "ModelSettings", challenger: "ChallengerSettings"
) -> Iterator[str]:
    """Problems of a challenger's source; omitted options are the model's."""
    kind = challenger.kind or model.kind
    if kind is None:
        yield "kind: architecture, folder, onnx, predictor or endpoint expected; the model has none"
        return
    yield from _of_kind(settings, challenger, model.task)
    yield from _files(settings, challenger, kind in ("torch", "hf"))
    if challenger.architecture and not challenger.weights and not challenger.adapted_from:
        yield "weights: the safetensors file of this version expected, or adapted_from, whose weights it has"
    if challenger.folder and not (challenger.inputs if challenger.inputs is not None else model.inputs):
        yield "inputs: the field with the text expected, or two that are read as a pair"
    if challenger.endpoint:
        yield from _endpoint(model, challenger)


def base_problem(settings: "Settings", name: str, reference: str | None) -> Iterator[str]:
    """Problems of ``adapted_from``, whose base may be configured or stored."""
    if reference is None:
        return
    base, _, version = reference.rpartition("@")
    base = base or (reference if reference in settings.models else name)
    if base not in settings.models:
        yield f"adapted_from: no model {base!r}; there are {', '.join(settings.models)}"
        return
    known = [settings.models[base].version, *settings.models[base].challengers]
    is_known = version in known or reference == base
    if not is_known and not (settings.data_folder / "state.db").is_file():
        yield f"adapted_from: {base} has no version {version!r}; there are {', '.join(known)}"


def redaction_problems(settings: "Settings", name: str) -> Iterator[str]:
    """Columns to redact that no stored record has, with the nearest."""
    import difflib

    model = settings.models[name]
    if not model.redact or not settings.journal_path.is_file():
        return
    import pyarrow as pa

    from outrider.dataops.journal.journal import SqliteJournal

    journal = SqliteJournal(settings.journal_path, read_only=True)
    try:
        seen = [
            pa.ipc.read_schema(pa.py_buffer(each.payload)) for each in journal.schemas() if each.model == name
        ]
    finally:
        journal.close()
    known = {*model.columns, *model.declared_inputs, f"outputs.{model.target}"}
    known |= {column for schema in seen for column in schema.names}
    for column in sorted(model.redact.keys() - known):
        part, _, field = column.partition(".")
        fields = {each.partition(".")[2]: each for each in known if each.startswith(f"{part}.")}
        if field != "*" and (near := difflib.get_close_matches(field, fields, n=1)):
            yield f"redact.{column}: no record has this column; did you mean {fields[near[0]]!r}?"


def dataset_problems(settings: "Settings", name: str) -> Iterator[str]:
    """Missing datasets and versions in the settings.

    Unknown names are reported only if similar to a stored one: others may be imported later.
    """
    model = settings.models[name]
    named = {"retrain.replay": model.retrain.replay, "gate.held_out": model.gate.held_out}
    named |= {f"gate.slices.{one.name}.held_out": one.held_out for one in model.gate.slices}
    if not any(named.values()):
        return
    import difflib

    from outrider.dataops.datasets.references import name_of, open_version
    from outrider.dataops.datasets.versions import all_versions
    from outrider.errors import Erased, NotFound

    with opened_state(settings) as engine:
        if engine is None:
            return
        with engine.connect() as connection:
            stored = {version.dataset for version in all_versions(connection)}
            for where, reference in named.items():
                if not reference or not difflib.get_close_matches(name_of(reference), stored, cutoff=0.8):
                    continue
                try:
                    open_version(connection, reference)
                except (Erased, NotFound) as error:
                    yield f"{where}: {error}"
            yield from _slice_problems(settings, model.gate, connection)


def _slice_problems(settings: "Settings", policy: "GateSettings", connection: "Connection") -> Iterator[str]:
    """Slices of the gate policy without any row in the existing dataset."""
    from outrider.dataops.datasets.references import open_if_any
    from outrider.dataops.datasets.slices import rows_where
    from outrider.dataops.datasets.versions import read
    from outrider.dataops.payloads.objects import LocalObjects
    from outrider.errors import Erased, NotFound

    for one in policy.slices:
        try:
            version = open_if_any(connection, one.held_out or policy.held_out)
        except (Erased, NotFound):
            continue  # reported above
        if version is not None and one.where:
            rows = read(connection, LocalObjects(settings.data_folder / "objects"), version)
            _, why = rows_where(rows, one.where)
            if why:
                yield f"gate.slices.{one.name}: no row of {version.id} {why}"


def score_warnings(settings: "Settings", name: str) -> Iterator[str]:
    """Warnings of stored scores that look like class probabilities."""
    if settings.models[name].score_of != "answer":
        return
    from outrider.monitor.views.series.performance import stored_convention

    with opened_state(settings) as engine:
        if engine is None:
            return
        with engine.connect() as connection:
            found = stored_convention(connection, name)
        if found is not None:
            yield f"score_of: {found}"


def registered_problems(settings: "Settings", name: str) -> Iterator[str]:
    """Challengers that the data folder already registers with another source."""
    if not settings.models[name].challengers:
        return
    from outrider.dataops.payloads.objects import LocalObjects
    from outrider.monitor.registry.registration import changed_challengers

    objects = LocalObjects(settings.data_folder / "objects")
    with opened_state(settings) as engine:
        if engine is not None:
            yield from changed_challengers(engine, objects, settings, name)


def _of_kind(settings: "Settings", given: "SourceSettings", task: str) -> Iterator[str]:
    from outrider.dataops.model_kinds.folder_check import folder_problems, option_problem

    for key, parts in _PARTS_OF.items():
        if getattr(given, key) and (lack := lack_of(parts, "a model of it")):
            yield f"{key}: {lack}"
    for key in ("architecture", "predictor"):
        if (reference := getattr(given, key)) is not None:
            yield from callable_problems(settings, key, reference)
    if given.folder:
        has_weights = given.weights is not None
        found = folder_problems(settings.path(given.folder), task, has_weights=has_weights)
        yield from (f"folder: {problem}" for problem in found)
        if problem := option_problem(given.options, task):
            yield problem
    if given.onnx and not settings.path(given.onnx).is_file():
        yield f"onnx: {settings.path(given.onnx)} does not exist; outrider convert writes one"


def _files(settings: "Settings", given: "SourceSettings", is_module: bool) -> Iterator[str]:
    from outrider.dataops.model_kinds.folder_check import adapter_problems
    from outrider.dataops.model_kinds.source import RECIPE_STEPS

    if given.weights is not None and not settings.path(given.weights).is_file():
        yield f"weights: {settings.path(given.weights)} does not exist; train.py of the project may write it"
    for key in ("adapter", "recipe", "shares"):
        if getattr(given, key) and not is_module:
            yield f"{key}: only a torch module or a Hugging Face folder takes it"
    for step in given.recipe if is_module else ():
        if step not in RECIPE_STEPS:
            yield f"recipe: no step {step!r}; there are {', '.join(RECIPE_STEPS)}"
    if given.adapter and is_module:
        found = adapter_problems(settings.path(given.adapter))
        yield from (f"adapter: {problem}" for problem in found)


def _endpoint(model: "ModelSettings", given: "SourceSettings") -> Iterator[str]:
    """Problems of an endpoint's options, found without a request."""
    from outrider.dataops.model_kinds.endpoint import load_endpoint
    from outrider.dataops.model_kinds.source import Source

    inputs = getattr(given, "inputs", None)
    classes = getattr(given, "classes", None)
    source = Source(
        "endpoint",
        given.endpoint or "",
        task=model.task,
        inputs=model.inputs if inputs is None else inputs,
        classes=model.classes if classes is None else classes,
        options=given.options,
    )
    try:
        load_endpoint(source)
    except ConfigError as error:
        yield f"endpoint: {error}"


def upload_problems(model: "ModelSettings") -> Iterator[str]:
    """Configured options that uploaded endpoints do not support."""
    from outrider.dataops.model_kinds.endpoint import UPLOAD_OPTIONS

    for name in sorted(model.uploads.options.keys() - set(UPLOAD_OPTIONS)):
        yield f"uploads.options.{name}: uploaded endpoints know {', '.join(UPLOAD_OPTIONS)}"


def training_problems(settings: "Settings", model: "ModelSettings") -> Iterator[str]:
    """Missing training files, and training methods that do not fit."""
    given = model.retrain
    named = {"augment": given.augment, "architecture": given.architecture}
    if given.trainer not in ("here", "external"):
        named["trainer"] = given.trainer
    for key, reference in named.items():
        if reference is None:
            continue
        if key != "architecture" or ".py:" in reference:
            yield from callable_problems(settings, f"retrain.{key}", reference)
        elif not (settings.path(reference) / "config.json").is_file():
            yield f"retrain.{key}: {settings.path(reference)} holds no config.json"
    parts = ["torch", "hf"] if given.method == "lora" else ["torch"]
    if given.method is not None and (lack := lack_of(parts, f"the method {given.method}")):
        yield f"retrain.method: {lack}"
    is_meant = given.method is not None or (given.enabled and model.kind in ("torch", "hf"))
    if is_meant and given.trainer != "external" and model.why_untrained:
        yield f"retrain: {model.why_untrained}"


def callable_problems(settings: "Settings", key: str, reference: str) -> Iterator[str]:
    """Problems of a ``file.py:name`` reference, found without running the file."""
    file, separator, name = reference.rpartition(":")
    path = settings.path(file)
    if not separator or not file.endswith(".py"):
        yield f"{key}: expected file.py:name, for example model.py:predict, got {reference!r}"
    elif not path.is_file():
        yield f"{key}: {path} does not exist"
    elif (names := _defined(path)) is not None and name not in names:
        yield f"{key}: {path} defines no {name!r}; there are {', '.join(sorted(names)) or 'no names'}"


def _defined(path: Path) -> set[str] | None:
    """Top-level names of a Python file; None if only running it would tell."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
            }
        else:
            names |= {"*"} if not isinstance(node, ast.Expr) else set()
    return None if "*" in names else names
