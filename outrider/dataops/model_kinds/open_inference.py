"""Models behind the Open Inference Protocol (V2), as JSON tensors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.behavioral_tests.asking import joined
from outrider.errors import ConfigError

from .class_outputs import classes_array, read_probs, softmax, stacked
from .source import Source

NUMBERS: Mapping[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
DATATYPES = {np.dtype(kind): name for name, kind in NUMBERS.items()}


class V2Tensors:
    """Form of the protocol.

    ``options.tensors`` names the fields of a tensor, which are its columns along the last axis
    (``{x = ["age", "income"]}``). Fields in none are tensors of their own name, shape ``[rows, 1]``.
    ``outputs`` renames answers (``{"output-0" = "label"}``). A classifier's scores (``[rows, classes]``) are
    read as ``options.scores`` says: ``probs``, the default, or ``logits``.
    """

    def __init__(self, source: Source) -> None:
        options = source.options
        self._url = source.reference
        self._tensors = _named(options, "tensors")
        self._outputs = {str(k): str(v) for k, v in dict(options.get("outputs", {})).items()}
        self._inputs = source.inputs
        self._classes = classes_array(source.classes)
        self._is_classifier = source.task == "classification" and len(source.classes) > 0
        self._scores = options.get("scores", "probs")
        if self._scores not in ("probs", "logits"):
            raise ConfigError(f"options.scores: probs or logits expected, got {self._scores!r}")

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        grouped = {field for fields in self._tensors.values() for field in fields}
        alone = [name for name in self._inputs or _inputs(batch) if name not in grouped]
        tensors = [_tensor(name, stacked(batch, fields)) for name, fields in self._tensors.items()]
        return {"inputs": tensors + [_tensor(name, _values(batch, name)) for name in alone]}

    def decode(self, bodies: Iterable[Mapping[str, Any]], rows: Sequence[int], /) -> dict[str, NDArray[Any]]:
        return joined([*map(self._outputs_of, bodies, rows)])

    def _outputs_of(self, body: Mapping[str, Any], rows: int) -> dict[str, NDArray[Any]]:
        tensors = body.get("outputs")
        if not isinstance(tensors, list) or not tensors:
            raise ValueError(f"{self._url}: outputs expected, got {str(body)[:200]}")
        answers = {}
        for tensor in tensors:
            name, values = _read(tensor, rows)
            answers[self._outputs.get(name, name)] = values
        return self._classified(answers) if self._is_classifier else answers

    def _classified(self, answers: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Label, score and margin of the one tensor with a score per class; other tensors stay."""
        shape = (len(self._classes),)
        found = [name for name, v in answers.items() if v.dtype.kind == "f" and v.shape[1:] == shape]
        if len(found) != 1:
            return answers
        scores = answers.pop(found[0])
        return read_probs(scores if self._scores == "probs" else softmax(scores), self._classes) | answers


def _named(options: Mapping[str, Any], key: str) -> dict[str, tuple[str, ...]]:
    given = options.get(key, {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"options.{key}: a table expected, such as {{x = ['age']}}, got {given!r}")
    return {str(name): (v,) if isinstance(v, str) else tuple(map(str, v)) for name, v in given.items()}


def _inputs(batch: Batch) -> list[str]:
    return [name.removeprefix("inputs.") for name in batch.names if name.startswith("inputs.")]


def _values(batch: Batch, name: str) -> NDArray[Any]:
    """Values of one field, shape (rows, 1), or that of its tensors."""
    column = f"inputs.{name}"
    if not batch.has(column):
        raise KeyError(f"no column {column!r}; there are {', '.join(batch.names)}")
    kind = batch.arrow(column).type
    if is_tensor(kind):
        return batch.tensor(column)
    values = batch.column(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        for row, value in enumerate(values):
            if value is None:
                raise ValueError(f"record {batch.keys[row]!r}: {column}: a text expected, got none")
    elif values.dtype == object:
        raise ValueError(f"{column} is {kind}, which is no tensor: numbers, texts or tensors can be sent")
    return values.reshape(batch.rows, 1)


def _tensor(name: str, values: NDArray[Any]) -> dict[str, Any]:
    kind = "BYTES" if values.dtype == object else DATATYPES[values.dtype]
    if kind.startswith("FP") and not np.isfinite(values).all():
        raise ValueError(f"tensor {name}: finite numbers expected, which alone JSON can say")
    return {"name": name, "shape": list(values.shape), "datatype": kind, "data": values.ravel().tolist()}


def _read(tensor: Any, rows: int) -> tuple[str, NDArray[Any]]:
    try:
        name, shape, kind, data = (tensor[key] for key in ("name", "shape", "datatype", "data"))
        flat = _flat(data)
        values = np.array(flat, dtype=NUMBERS.get(kind, object)).reshape([int(size) for size in shape])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"a tensor with name, shape, datatype and data expected, got {str(tensor)[:200]}"
        ) from error
    if values.shape[:1] != (rows,):
        raise ValueError(f"tensor {name}: first size {rows} expected, got shape {shape}")
    return str(name), values.reshape(rows) if math.prod(values.shape) == rows else values


def _flat(data: Sequence[Any]) -> list[Any]:
    if any(isinstance(item, list) for item in data):
        return [value for item in data for value in _flat(item)]
    return list(data)
