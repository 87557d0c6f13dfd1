"""Input columns as a matrix, scores as outputs, without torch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor

Floats = NDArray[np.float32]


def stacked(batch: Batch, inputs: Sequence[str]) -> Floats:
    """One tensor column, or stacked numeric columns; nulls are NaN in numbers and 0 in tensors."""
    schema = batch.to_arrow().schema
    names = [f"inputs.{name}" for name in inputs]
    missing = [name for name in names if not batch.has(name)]
    if missing:
        raise KeyError(f"no column {missing[0]!r}; there are {', '.join(batch.names)}")
    if len(names) == 1 and is_tensor(schema.field(names[0]).type):
        return np.array(batch.tensor(names[0], null=0.0), dtype=np.float32)
    flat = [
        batch.tensor(name, null=0.0).reshape(batch.rows, -1)
        if is_tensor(schema.field(name).type)
        else batch.column(name, null=np.nan).reshape(batch.rows, 1)
        for name in names
    ]
    return np.concatenate(flat, axis=1, dtype=np.float32)


def classes_array(classes: Sequence[int | str]) -> NDArray[Any]:
    """Classes by number of an output; texts make an array of objects."""
    return np.asarray(classes, dtype=object if any(isinstance(c, str) for c in classes) else None)


def softmax(logits: NDArray[Any]) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def read_probs(probs: NDArray[Any], classes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """``label``, ``score``, ``margin`` and ``probs`` of probabilities, shape (rows, classes).

    Examples
    --------
    >>> found = read_probs(np.array([[0.25, 0.75]]), classes_array(["no", "yes"]))
    >>> found["label"].tolist(), found["score"].tolist(), found["margin"].tolist()
    (['yes'], [0.75], [0.5])
    """
    rows = np.arange(len(probs))
    best = probs.argmax(axis=1)
    score = probs[rows, best]
    others = probs.copy()
    others[rows, best] = 0.0
    return {"label": classes[best], "score": score, "margin": score - others.max(axis=1), "probs": probs}
