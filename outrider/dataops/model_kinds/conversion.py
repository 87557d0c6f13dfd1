"""Checked conversion: fitted estimators to ONNX, torch modules to safetensors.

Estimators come from code (``file.py:callable``), never from a pickle, which runs whatever code is in it.
"""

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.parts import install_command

from .onnx_file import PREFIX, OnnxModel, load_onnx
from .source import Source, Task

if TYPE_CHECKING:
    import pandas as pd

DRAWN_ROWS = 256
TOLD = 300


@dataclass(frozen=True, slots=True)
class ConversionAgreement:
    rows: int
    """Records that both answered."""
    labels: float | None
    """Share of equal labels, in [0, 1], if there are labels."""
    difference: float | None
    """Largest difference of a score, or relative one of a value (size at least 1), if any."""
    is_drawn: bool = False
    """Random records, as no sample was given."""

    def holds(self, tolerance: float) -> bool:
        return self.labels in (None, 1.0) and (self.difference is None or self.difference <= tolerance)


@dataclass(frozen=True, slots=True)
class OnnxConversion:
    content: bytes
    inputs: tuple[str, ...]
    classes: tuple[int | str, ...]
    agreement: ConversionAgreement


def convert_estimator(
    estimator: Any, sample: "pd.DataFrame | None" = None, *, inputs: Sequence[str] = ()
) -> OnnxConversion:
    """Without a sample N(0, 1) is drawn, which says little of trees."""
    frame = _frame(estimator, sample, inputs)
    names = tuple(str(name) for name in frame.columns)
    classes = tuple(value.item() if hasattr(value, "item") else value for value in _classes(estimator))
    has_probs = hasattr(estimator, "predict_proba")
    declared = {"inputs": names} | (
        {"classes": classes, "scores": "probs" if has_probs else "none"} if classes else {}
    )
    content = _to_onnx(estimator, frame, declared)
    task: Task = "classification" if classes else "other"
    model = load_onnx(Source("onnx", type(estimator).__name__, task=task), Path(), content)
    found = compare(estimator, model, frame)
    return OnnxConversion(
        content,
        names,
        classes,
        ConversionAgreement(found.rows, found.labels, found.difference, sample is None),
    )


def compare(estimator: Any, model: OnnxModel, frame: "pd.DataFrame") -> ConversionAgreement:
    answers = model(Batch.from_pandas(frame, model="m", inputs=list(frame.columns)))
    fed = _fed(estimator, frame)
    predicted = np.asarray(estimator.predict(fed))
    if len(_classes(estimator)):
        labels = float(np.mean(np.asarray(answers["label"]) == predicted))
        difference = None
        if "probs" in answers:
            difference = float(np.abs(answers["probs"] - estimator.predict_proba(fed)).max(initial=0.0))
        return ConversionAgreement(len(frame), labels, difference)
    value = answers["value"] if "value" in answers else next(iter(answers.values()))
    return ConversionAgreement(len(frame), None, _relative(np.asarray(value, dtype=np.float64), predicted))


def state_of(made: Any) -> dict[str, Any]:
    """Tensors of a module or state, each in memory of its own."""
    torch = importlib.import_module("torch")
    state = made.state_dict() if isinstance(made, torch.nn.Module) else made
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(
            f"a torch module or its state_dict expected, got {type(made).__name__}; "
            "an estimator of scikit-learn becomes NAME.onnx"
        )
    return {str(name): value.detach().cpu().contiguous().clone() for name, value in state.items()}


def _relative(found: NDArray[Any], predicted: NDArray[Any]) -> float:
    if found.shape != predicted.shape:
        return math.inf
    return float((np.abs(found - predicted) / np.maximum(np.abs(predicted), 1.0)).max(initial=0.0))


def _classes(estimator: Any) -> Sequence[Any]:
    found = getattr(estimator, "classes_", ())
    if isinstance(found, list):
        raise ConfigError("an estimator of several outputs is not converted: make one per output")
    return list(found)


def _frame(estimator: Any, sample: "pd.DataFrame | None", inputs: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd

    if not hasattr(estimator, "predict"):
        raise ConfigError(
            f"a fitted estimator with predict() expected, got {type(estimator).__name__}; "
            "weights of a torch module become NAME.safetensors"
        )
    known = list(inputs) or [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    if sample is not None:
        missing = [name for name in known if name not in sample.columns]
        if missing:
            raise ConfigError(f"sample: no column {missing[0]!r}; there are {', '.join(sample.columns)}")
        return sample[known or list(sample.columns)]
    width = getattr(estimator, "n_features_in_", None)
    if width is None or _has_columns(estimator):
        raise ConfigError("a sample is needed (--sample FILE): this estimator is fed columns or texts")
    drawn = np.random.default_rng(0).normal(size=(DRAWN_ROWS, width)).astype(np.float32)
    return pd.DataFrame(drawn, columns=known or [f"x{number}" for number in range(width)])


def _fed(estimator: Any, frame: "pd.DataFrame") -> Any:
    """Records as the estimator takes them: a frame, one column of texts, or a matrix."""
    if hasattr(estimator, "feature_names_in_"):
        return frame.set_axis(list(estimator.feature_names_in_), axis=1)
    return frame.iloc[:, 0].to_numpy(object) if _is_text(frame) else frame.to_numpy(np.float32)


def _is_text(frame: "pd.DataFrame") -> bool:
    import pandas as pd

    return frame.shape[1] == 1 and not pd.api.types.is_numeric_dtype(frame.iloc[:, 0])


def _has_columns(estimator: Any) -> bool:
    """True if an estimator distinguishes columns, so that each is an input."""
    from sklearn.compose import ColumnTransformer

    steps = [step for _, step in getattr(estimator, "steps", ())]
    return any(isinstance(step, ColumnTransformer) or _has_columns(step) for step in steps)


def _to_onnx(estimator: Any, frame: "pd.DataFrame", declared: Mapping[str, Any]) -> bytes:
    import pandas as pd

    try:
        skl2onnx = importlib.import_module("skl2onnx")
        types = importlib.import_module("skl2onnx.common.data_types")
    except ImportError as error:
        raise ConfigError(
            f"converting needs skl2onnx and onnxruntime: {install_command(['onnx'])} ({error})"
        ) from error
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    if all(numeric) and not _has_columns(estimator):
        fed = [("inputs", types.FloatTensorType([None, frame.shape[1]]))]
    else:
        fed = [
            (str(name), (types.FloatTensorType if is_number else types.StringTensorType)([None, 1]))
            for name, is_number in zip(frame.columns, numeric, strict=True)
        ]
    try:
        made = skl2onnx.to_onnx(estimator, initial_types=fed, options=_options(estimator, declared))
    except Exception as error:  # its exceptions share no base class
        text = " ".join(str(error).split())[:TOLD]
        raise ConfigError(
            f"skl2onnx cannot convert {type(estimator).__name__}: {type(error).__name__}: {text}"
        ) from error
    for key, value in declared.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = PREFIX + key, json.dumps(value)
    content: bytes = made.SerializeToString()
    return content


def _options(estimator: Any, declared: Mapping[str, Any]) -> dict[Any, Any]:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    # The runtime looks the locale up on the machine it runs on; this one is everywhere.
    options: dict[Any, Any] = {kind: {"locale": "C"} for kind in (CountVectorizer, TfidfVectorizer)}
    if declared.get("scores") == "probs":
        options[id(estimator)] = {"zipmap": False}
    return options
