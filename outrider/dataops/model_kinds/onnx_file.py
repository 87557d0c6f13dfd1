"""ONNX files as Predictors, fed by name or order, read by task.

Files of ``outrider convert`` declare inputs and outputs in metadata; for others the configuration does.
"""

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.parts import install_command

from .class_outputs import classes_array, read_probs, softmax, stacked
from .source import Source

PREFIX = "outrider."
"""Of the keys of our metadata: ``inputs``, ``classes`` and ``scores``, as JSON."""
OPTIONS = ("scores", "threads")
SCORES = ("probs", "logits", "none")
TASKS = ("classification", "embedding", "other")
Forms = Mapping[str, Mapping[str, tuple[str, list[Any] | None]]]
TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": object,
}


def load_onnx(source: Source, folder: Path, weights: Path | bytes | None, device: str = "cpu") -> "OnnxModel":
    found = weights if weights is not None else folder / source.reference
    if source.task not in TASKS:
        raise ConfigError(f"{source.reference}: task {', '.join(TASKS)} expected of ONNX, got {source.task}")
    if unknown := sorted(set(source.options) - set(OPTIONS)):
        raise ConfigError(f"options.{unknown[0]}: an ONNX file knows {', '.join(OPTIONS)}")
    if isinstance(found, Path) and not found.is_file():
        raise ConfigError(f"{found} does not exist")
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ConfigError(f"ONNX files need onnxruntime: {install_command(['onnx'])} ({error})") from error
    runtime.disable_telemetry_events()
    content = found if isinstance(found, bytes) else found.read_bytes()
    forms = declared_forms(parse_onnx(content, source.reference))
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.intra_op_num_threads = int(source.options.get("threads", 1))
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong is raised, too
    wanted = ["CUDAExecutionProvider"] if device == "auto" or device.startswith("cuda") else []
    providers = [p for p in (*wanted, "CPUExecutionProvider") if p in runtime.get_available_providers()]
    try:
        given = found if isinstance(found, bytes) else str(found)
        session = runtime.InferenceSession(given, options, providers=providers)
    except Exception as error:  # its exceptions share no base class
        text = str(error).strip()[:300]
        raise ConfigError(f"{source.reference} cannot be loaded: {type(error).__name__}: {text}") from error
    return OnnxModel(session, source, forms)


def parse_onnx(content: bytes, name: str) -> Any:
    """Refuse files with parts elsewhere, which a runtime would read anywhere."""
    try:
        onnx, message = importlib.import_module("onnx"), importlib.import_module("google.protobuf.message")
        unknown = importlib.import_module("google.protobuf.unknown_fields")
    except ImportError as error:
        raise ConfigError(f"ONNX files need onnx: {install_command(['onnx'])} ({error})") from error
    model = onnx.ModelProto()
    try:
        if content[4:8] == b"ORTM":
            raise ValueError("it is in the format of onnxruntime")
        model.ParseFromString(content)
    except (message.DecodeError, ValueError):
        raise ConfigError(f"{name}: an ONNX file expected") from None
    for part in _parts(model):
        kind = part.DESCRIPTOR.name
        if len(unknown.UnknownFieldSet(part)):
            raise ConfigError(
                f"{name}: a {kind} has fields that onnx {onnx.__version__} does not know: install the onnx "
                "that wrote it, or save it with this one"
            )
        if kind == "TensorProto" and (part.data_location == onnx.TensorProto.EXTERNAL or part.external_data):
            raise ConfigError(
                f"{name}: tensor {part.name[:200]!r} stands in another file: save the model as one file "
                "(onnx.save of the loaded model; torch.onnx.export with external_data=False)"
            )
        if kind == "NodeProto" and part.op_type == "EPContext":
            raise ConfigError(f"{name}: node {part.name[:200]!r}: EPContext may stand in another file")
    return model


def _parts(model: Any) -> Iterator[Any]:
    """All messages of a model: graphs, functions, training, attributes."""
    left = [model]
    while left:
        part = left.pop()
        yield part
        if part.DESCRIPTOR.name == "TensorProto":  # values, which are not copied
            continue
        for field, value in part.ListFields():
            if field.message_type is not None:
                left += [value] if hasattr(value, "DESCRIPTOR") else value


def declared_forms(model: Any) -> Forms:
    """As the file declares, whatever a runtime computes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    fed = [value for value in model.graph.input if value.name not in weights]
    return {
        "inputs": {value.name: _form(value.type) for value in fed},
        "outputs": {value.name: _form(value.type) for value in model.graph.output},
    }


def _form(kind: Any) -> tuple[str, list[Any] | None]:
    if not kind.HasField("tensor_type"):
        return str(kind.WhichOneof("value") or "of no type").removesuffix("_type"), None
    tensor = kind.tensor_type
    name = importlib.import_module("onnx").TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return name, None
    return name, [dim.dim_value if dim.HasField("dim_value") else "any" for dim in tensor.shape.dim]


class OnnxModel:
    def __init__(self, session: Any, source: Source, forms: Forms) -> None:
        self.forms = forms
        self._session = session
        self._fed = session.get_inputs()
        self._answers = [answer.name for answer in session.get_outputs()]
        self._task = source.task
        meta = session.get_modelmeta().custom_metadata_map
        known = {key: json.loads(meta[PREFIX + key]) for key in ("inputs", "classes", "scores")
                 if PREFIX + key in meta}  # fmt: skip
        self.inputs = tuple(source.inputs or known.get("inputs") or [fed.name for fed in self._fed])
        self._own = tuple(known.get("classes", ()))
        self.classes = tuple(source.classes) or self._own
        self._scores = source.options.get("scores") or known.get("scores")
        self._check(source.reference)

    def __call__(self, batch: Batch, /) -> dict[str, NDArray[Any]]:
        feeds = self._feeds(batch)
        fixed = self._fed[0].shape[:1]
        if fixed and isinstance(fixed[0], int):
            answers = self._in_pieces(feeds, fixed[0], batch.rows)
        else:
            answers = self._session.run(None, feeds)
        return self.read(dict(zip(self._answers, answers, strict=True)))

    @property
    def session(self) -> Any:
        return self._session

    def read(self, answers: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """``ValueError`` for others than the task's outputs."""
        return self._read({name: _table(answer) for name, answer in answers.items()})

    def _check(self, reference: str) -> None:
        if self._scores is not None and self._scores not in SCORES:
            raise ConfigError(f"options.scores: {', '.join(SCORES)} expected, got {self._scores!r}")
        if len(self._fed) > 1 and len(self._fed) != len(self.inputs):
            names = ", ".join(fed.name for fed in self._fed)
            raise ConfigError(f"{reference} is fed {names}; inputs: as many expected, got {len(self.inputs)}")
        if self._own and len(self._own) != len(self.classes):
            raise ConfigError(f"{reference}: classes: {len(self._own)} expected, got {len(self.classes)}")
        if self._task == "classification" and not self.classes:
            raise ConfigError(f"{reference}: classes expected: the value of each output of the model")

    # ---- feeding ---------------------------------------------------------------------------------------

    def _feeds(self, batch: Batch) -> dict[str, NDArray[Any]]:
        if len(self._fed) == 1:
            return {self._fed[0].name: self._values(batch, self.inputs, self._fed[0])}
        names = [fed.name for fed in self._fed]
        by_name = set(names) == set(self.inputs)
        fields = names if by_name else self.inputs
        return {
            fed.name: self._values(batch, (field,), fed) for fed, field in zip(self._fed, fields, strict=True)
        }

    def _values(self, batch: Batch, fields: tuple[str, ...], fed: Any) -> NDArray[Any]:
        kind = TYPES.get(fed.type)
        if kind is None:
            raise ConfigError(f"input {fed.name} is {fed.type}, which no column can be")
        if kind is object:
            values = np.stack([_texts(batch, field) for field in fields], axis=1)
        elif np.issubdtype(kind, np.floating):
            values = stacked(batch, fields).astype(kind, copy=False)
        else:
            values = np.stack([batch.column(f"inputs.{field}") for field in fields], axis=1).astype(kind)
        return values.reshape(batch.rows) if len(fed.shape) == 1 else values

    def _in_pieces(self, feeds: Mapping[str, NDArray[Any]], size: int, rows: int) -> list[Any]:
        """Of a file with a fixed batch size the last batch is filled with its last row."""
        whole = np.minimum(np.arange(math.ceil(rows / size) * size), rows - 1).reshape(-1, size)
        parts = [self._session.run(None, {n: v[index] for n, v in feeds.items()}) for index in whole]
        return [np.concatenate([_table(part[n]) for part in parts])[:rows] for n in range(len(self._answers))]

    # ---- reading ---------------------------------------------------------------------------------------

    def _read(self, answers: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        if self._task == "embedding":
            return {"embedding": _first(answers, lambda a: a.dtype.kind == "f" and a.ndim == 2, "vectors")}
        if self._task == "classification":
            return self._read_classes(answers)
        flat = {name: a.squeeze(-1) if a.ndim == 2 and a.shape[1] == 1 else a for name, a in answers.items()}
        return {"value": next(iter(flat.values()))} if len(flat) == 1 else flat

    def _read_classes(self, answers: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        classes = classes_array(self.classes)
        labels = next((a.reshape(len(a)) for a in answers.values() if a.dtype.kind not in "fc"), None)
        if self._scores == "none":
            if labels is None:
                raise ValueError("the model answers no label, and options.scores is none")
            return {"label": self._named(labels)}
        name, scores = next(
            ((n, a) for n, a in answers.items() if a.dtype.kind == "f"), ("", np.zeros((0, 0)))
        )
        scores = _two_columns(scores, self._kind(name)) if len(classes) == 2 else scores
        if scores.ndim != 2 or scores.shape[1] != len(classes):
            raise ValueError(f"(rows, {len(classes)}) scores expected, one per class, got {scores.shape}")
        found = read_probs(scores if self._kind(name) == "probs" else softmax(scores), classes)
        return found if labels is None else found | {"label": self._named(labels)}

    def _kind(self, name: str) -> str:
        return self._scores or ("probs" if "prob" in name.lower() else "logits")

    def _named(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Labels as configured; the model may answer numbers of classes."""
        if not self._own or self._own == self.classes:
            return labels
        number = {value: at for at, value in enumerate(self._own)}
        return classes_array(self.classes)[[number[value] for value in labels.tolist()]]


def _texts(batch: Batch, field: str) -> NDArray[Any]:
    values = batch.column(f"inputs.{field}")
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"record {batch.keys[row]!r}: inputs.{field}: a text expected, got {value!r:.40}"
            )
    return values


def _table(answer: Any) -> NDArray[Any]:
    """Scikit-learn's dictionaries of probabilities as (rows, classes)."""
    if isinstance(answer, list) and answer and isinstance(answer[0], Mapping):
        return np.array([list(row.values()) for row in answer], dtype=np.float32)
    return np.asarray(answer)


def _first(answers: Mapping[str, NDArray[Any]], fits: Any, what: str) -> NDArray[Any]:
    for answer in answers.values():
        if fits(answer):
            return answer
    raise ValueError(f"{what} expected, got {', '.join(f'{n} {a.shape}' for n, a in answers.items())}")


def _two_columns(scores: NDArray[Any], kind: str) -> NDArray[Any]:
    """Scores of both classes from one score of the second."""
    if scores.size != len(scores):
        return scores
    second = scores.reshape(len(scores))
    first = 1.0 - second if kind == "probs" else np.zeros_like(second)
    return np.stack([first, second], axis=1)
