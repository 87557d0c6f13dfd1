"""Training by a user's function: ``train.py:fine_tune(champion, dataset, seed)``.

Returned estimators and ONNX models are kept as ONNX, files as they are: then ``load(folder)`` of the same
file returns the predictor. No pickle is written or read here.
"""

import dataclasses
import importlib
import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.class_outputs import classes_array
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.payloads.folders import WrongFolder, check_names
from outrider.errors import ConfigError, OutriderError, TrainingFailed
from outrider.user_code import load_callable, raised_in

from .learned_rows import LearnedRows, balanced_weights, check_rows, learned_rows, named_weights
from .options import TrainingOptions
from .trainer import Report, TrainedModel, TrainingTask

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
LOAD = "load"
"""Name of the function that makes a predictor of files."""
INPUTS = "inputs."
ARTEFACTS, CHAMPION, ONNX = "artefacts", "champion", "model.onnx"
TRIED_ROWS = 64
"""Rows that a trained model must answer before it is kept."""
RETURNS = (
    "a fitted scikit-learn estimator, an ONNX model, or a dictionary of files by name (bytes, arrays, JSON "
    "values or paths) expected"
)


@dataclass(frozen=True, slots=True)
class Champion:
    """Version in production, as given to ``fine_tune``."""

    id: str
    """Such as ``churn@3``."""
    folder: Path | None
    """Files that an earlier ``fine_tune`` returned, ``model.onnx`` of an ONNX model, else None."""
    _load: Callable[[], Predictor]

    def predict(self, x: "pd.DataFrame") -> Mapping[str, NDArray[Any]]:
        """Answers by field, such as ``label`` and ``probs``, to rows of inputs."""
        return self._load()(Batch.from_pandas(x, model=self.id, inputs=list(x.columns)))


class TrainingRows:
    """Labelled rows, as ``fine_tune`` is given them: checked, weighted, fresh ones first.

    The frames are made when they are first asked for; ``fresh`` and ``replay`` are mapped files, to be read
    in pieces where they are too large for memory.

    Attributes
    ----------
    fresh, replay
        New rows, and old ones that are rehearsed; None where there are none.
    weight : shape (rows,)
        Weight of each row; all old ones together weigh ``replay_ratio`` times the fresh ones at most.
    target, classes
        Label field that is learned, and its values.
    """

    def __init__(
        self,
        fresh: LearnedRows | None,
        replay: LearnedRows | None,
        *,
        inputs: Sequence[str],
        target: str,
        classes: Sequence[int | str],
        options: TrainingOptions,
    ) -> None:
        self._parts = [part for part in (fresh, replay) if part is not None]
        self.fresh: MappedRows | None = None if fresh is None else fresh.rows
        self.replay: MappedRows | None = None if replay is None else replay.rows
        self.target, self.classes = target, tuple(classes)
        self.weight = _weights(fresh, replay, self.classes, options)
        self._inputs = tuple(name.removeprefix(INPUTS) for name in inputs)

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def x(self) -> "pd.DataFrame":
        """Inputs of all rows under their own names."""
        frame = self._frame
        names = self._inputs or [n.removeprefix(INPUTS) for n in frame.columns if n.startswith(INPUTS)]
        found = frame[[f"{INPUTS}{name}" for name in names]]
        return found.set_axis(list(names), axis=1)

    @cached_property
    def y(self) -> "pd.Series[Any]":
        """Label of each row, in the type of the classes."""
        import pandas as pd

        if not self.classes:
            return self._frame[f"label.{self.target}"].rename(self.target)
        numbers = np.concatenate([part.classes for part in self._parts if part.classes is not None])
        return pd.Series(classes_array(self.classes)[numbers], name=self.target)

    @cached_property
    def _frame(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.concat([part.rows.to_pandas() for part in self._parts], ignore_index=True)


def _weights(
    fresh: LearnedRows | None,
    replay: LearnedRows | None,
    classes: Sequence[int | str],
    options: TrainingOptions,
) -> NDArray[np.float64]:
    parts = [part for part in (fresh, replay) if part is not None]
    weights = [
        np.ones(len(part.rows)) if part.weights is None else part.weights.astype(np.float64) for part in parts
    ]
    if fresh is not None and replay is not None:
        weights[1] *= min(1.0, options.replay_ratio * len(fresh.rows) / len(replay.rows))
    found = np.concatenate(weights)
    if not options.class_weights or not classes:
        return found
    numbers = np.concatenate([part.classes for part in parts if part.classes is not None])
    if options.class_weights == "balanced":
        sums = np.bincount(numbers, found, minlength=len(classes)).astype(np.float64)
        by_class = balanced_weights(sums)
    else:
        by_class = named_weights(options.class_weights, classes)
    return np.asarray(found * by_class[numbers])


def train_by_user(task: TrainingTask, report: Report) -> TrainedModel:  # noqa: ARG001 - it has no steps
    reference = str(task.options["trainer"])
    function = load_callable(reference, task.base)
    path = (task.base / reference.rpartition(":")[0]).resolve()
    rows, facts = _rows(task)
    with _seeded(task.seed):
        try:
            returned = function(_champion(task), rows, task.seed)
        except OutriderError:
            raise
        except Exception as error:
            raise TrainingFailed(raised_in(path, error)) from error
    made = _kept(returned, task, rows, reference)
    _try(made, task, rows, path)
    return dataclasses.replace(made, note=f"trained by {reference}", figures=facts)


def _rows(task: TrainingTask) -> tuple[TrainingRows, dict[str, Any]]:
    options = dataclasses.replace(TrainingOptions.of(task.options), stop_share=0.0)  # stopping is the user's
    classes = task.source.classes if task.source.task == "classification" else ()
    fresh, replay = (
        None if rows is None or not len(rows) else learned_rows(rows, task, options)
        for rows in (task.fresh, task.replay)
    )
    learned = [part for part in (fresh, replay) if part is not None]
    warnings = check_rows(learned, classes, options.min_rows)
    for warning in warnings:
        log.warning("%s: %s", task.model, warning)
    rows = TrainingRows(
        fresh, replay, inputs=task.source.inputs, target=task.target, classes=classes, options=options
    )
    facts: dict[str, Any] = {"learned": [dict(part.facts) for part in learned]}
    return rows, facts | ({"warnings": warnings} if warnings else {})


def _champion(task: TrainingTask) -> Champion | None:
    if task.champion is None:
        return None
    folder: Path | None = None
    if "artefacts" in task.source.kept:
        folder = Path(task.source.kept["artefacts"])
    elif task.source.kind == "onnx" and task.weights is not None:
        folder = task.work / CHAMPION
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ONNX).write_bytes(task.weights)
    load = partial(_load, task.source, task.weights, task)
    return Champion(task.champion, folder, load)


def _load(source: Source, weights: bytes | None, task: TrainingTask) -> Predictor:
    return as_predictor(load_model(source, folder=task.base, weights=weights))


# ---- what is returned ------------------------------------------------------------------------------------


def _kept(returned: Any, task: TrainingTask, rows: TrainingRows, reference: str) -> TrainedModel:
    if isinstance(returned, Mapping):
        return _files(returned, task, reference)
    if hasattr(returned, "SerializeToString"):
        returned = returned.SerializeToString()
    if isinstance(returned, bytes):
        _refuse_nan_weights(returned, reference)
        return TrainedModel(_onnx_source(task, task.source.classes), weights=returned)
    if hasattr(returned, "get_params") and hasattr(returned, "predict"):
        from outrider.dataops.model_kinds.conversion import convert_estimator

        sample = rows.x.head(1024)
        found = convert_estimator(returned, sample)
        if not found.agreement.holds(1e-3):
            raise TrainingFailed(
                f"{reference}: as ONNX, {type(returned).__name__} answers {found.agreement.labels} of "
                f"{found.agreement.rows} labels alike, with scores up to {found.agreement.difference} apart: "
                f"return files and write {LOAD}(folder) instead"
            )
        source = dataclasses.replace(_onnx_source(task, found.classes), inputs=found.inputs)
        return TrainedModel(source, weights=found.content)
    raise TrainingFailed(f"{reference} returned {type(returned).__name__}: {RETURNS}")


def _onnx_source(task: TrainingTask, classes: tuple[int | str, ...]) -> Source:
    given = task.source
    reference = given.reference if given.kind == "onnx" else f"{task.model}.onnx"
    options = given.options if given.kind == "onnx" else {}
    is_classifier = given.task == "classification"
    return Source(
        "onnx", reference, given.task, given.inputs, classes if is_classifier else (), options=options
    )


def _files(returned: Mapping[Any, Any], task: TrainingTask, reference: str) -> TrainedModel:
    """Write what was returned by name; ``load`` of the same file reads it."""
    file = reference.rpartition(":")[0]
    load_callable(f"{file}:{LOAD}", task.base)  # says what is missing before anything is kept
    folder = task.work / ARTEFACTS
    shutil.rmtree(folder, ignore_errors=True)
    try:
        check_names(str(name) for name in returned)
        files = dict(_write(folder, str(name), value, reference) for name, value in returned.items())
        check_names(files)
    except WrongFolder as error:
        raise TrainingFailed(f"{reference} returned {error}") from error
    given = task.source
    source = Source("function", f"{file}:{LOAD}", given.task, given.inputs, given.classes)
    return TrainedModel(source, files=files)


def _write(folder: Path, name: str, value: Any, reference: str) -> tuple[str, Path]:
    """Bytes and files as they are, arrays as .npy, other values as JSON."""
    path = folder / name
    if isinstance(value, np.ndarray | np.generic):
        _refuse_nan(np.asarray(value), f"{reference}: {name}")
        path = path.with_name(f"{path.name.removesuffix('.npy')}.npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        if value.dtype.hasobject:
            raise TrainingFailed(f"{reference} returned {name}: numbers or texts expected, got objects")
        np.save(path, np.asarray(value), allow_pickle=False)
    elif isinstance(value, bytes | bytearray | memoryview):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    elif isinstance(value, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(value, path)
    else:
        path = path.with_name(f"{path.name.removesuffix('.json')}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            text = json.dumps(value, allow_nan=False, indent=1)
        except (TypeError, ValueError) as error:
            raise TrainingFailed(
                f"{reference} returned {name} = {type(value).__name__}, which JSON cannot hold ({error}): "
                f"bytes, arrays, JSON values or paths expected"
            ) from error
        path.write_text(text + "\n", encoding="utf-8")
    return path.relative_to(folder).as_posix(), path


# ---- what is refused -------------------------------------------------------------------------------------


def _try(made: TrainedModel, task: TrainingTask, rows: TrainingRows, path: Path) -> None:
    """Load the trained model as the service will, and predict the first rows."""
    source = made.source
    if made.files:
        kept: dict[Any, str] = {"artefacts": str((task.work / ARTEFACTS).absolute())}
        source = dataclasses.replace(source, kept=kept)
    asked = Batch.from_pandas(rows.x.head(TRIED_ROWS), model=task.model, inputs=list(rows.x.columns))
    try:
        answers = _load(source, made.weights, task)(asked)
    except ConfigError:
        raise
    except Exception as error:
        raise TrainingFailed(f"the trained model does not answer: {raised_in(path, error)}") from error
    for name, values in answers.items():
        _refuse_nan(np.asarray(values), f"the trained model's answer {name}")


def _refuse_nan_weights(content: bytes, reference: str) -> None:
    """Only if the package onnx is installed."""
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        return
    try:
        graph = onnx.load_model_from_string(content).graph
    except Exception as error:  # its exceptions share no base class
        raise TrainingFailed(f"{reference} returned bytes that are no ONNX model: {error}") from error
    for tensor in graph.initializer:
        _refuse_nan(onnx.numpy_helper.to_array(tensor), f"{reference}: {tensor.name}")
    for node in graph.node:
        for attribute in node.attribute:
            _refuse_nan(np.array(attribute.floats, dtype=np.float32), f"{reference}: {attribute.name}")


def _refuse_nan(values: NDArray[Any], what: str) -> None:
    if values.dtype.kind in "fc" and (bad := int((~np.isfinite(values)).sum())):
        raise TrainingFailed(f"{what}: {bad} of {values.size} numbers are NaN or infinite")


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Global generators of Python and numpy, which scikit-learn uses; restored afterwards."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
