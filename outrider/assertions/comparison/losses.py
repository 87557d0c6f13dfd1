"""Losses of answers against their labels, row by row."""

from collections import Counter
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from outrider.assertions.batch.columns import from_values
from outrider.assertions.texts.words import words

from .matching import Classes, class_numbers, is_numeric, matches

Floats = NDArray[np.float64]
Loss = Literal["error", "absolute", "squared", "token_f1", "log"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
BOUNDED: frozenset[str] = frozenset({"error", "token_f1"})
"""Losses in [0, 1]; margins of the others are relative to the champion's loss."""
_LEAST = 1e-15
"""Floor of probabilities in the log loss, as in scikit-learn."""
_ROUNDED = 0.05
"""Tolerance for a sum of rounded probabilities, around 1."""


def loss_of_target(
    labels: ArrayLike | pa.Array,
    answers: ArrayLike | pa.Array,
    classes: Classes,
    *,
    is_number: bool | None = None,
) -> Loss:
    """Loss that fits a target: ``error`` for classes, ``absolute`` for numbers.

    ``is_number`` is the declared kind of the target; None infers it from the values.

    Parameters
    ----------
    is_number
        Declared kind of the target; None where values say it.

    Examples
    --------
    >>> loss_of_target([0.25, 1.5], [0.5, 1.0], ()), loss_of_target([1, 0], [1.0, 1.0], ())
    ('absolute', 'error')
    """
    if is_number is None:
        is_number = not classes and (is_numeric(labels) or is_numeric(answers))
    return "absolute" if is_number else "error"


def losses(
    loss: Loss, answers: ArrayLike | pa.Array, labels: ArrayLike | pa.Array, *, classes: Classes = ()
) -> Floats:
    """Loss of each answer, shape (rows,).

    NaN where the label is missing or unusable, infinite where the answer is. ``error``: 0 where they are
    equal (:mod:`.matching`), else 1. ``absolute``, ``squared``: of the difference of numbers. ``token_f1``: 1
    less F1 of :func:`outrider.assertions.texts.words.words`, with their counts (Rajpurkar et al., "SQuAD",
    2016). ``log``: -ln of the probability of the labelled class; answers are probabilities by class, shape
    (rows, classes), taken as shares of their sum.

    Raises
    ------
    ValueError
        If answers have no probability for each class, or sum to something else than 1.

    Examples
    --------
    >>> losses("absolute", [1.0, None, 2.5], [0.5, 1.0, None]).tolist()
    [0.5, inf, nan]
    >>> losses("token_f1", ["the blue cat", "dog"], ["the cat", "cat"]).round(2).tolist()
    [0.2, 1.0]
    >>> losses("log", [[0.5, 0.5], [0.9, 0.1]], ["b", "a"], classes=["a", "b"]).round(3).tolist()
    [0.693, 0.105]
    """
    if loss == "error":
        known = is_known(labels)
        return np.where(known, ~matches(answers, labels, classes=classes), np.nan)
    if loss == "token_f1":
        return np.array([_token_loss(*pair) for pair in zip(_texts(answers), _texts(labels), strict=True)])
    if loss == "log":
        return _log_losses(answers, labels, classes)
    truth, given = _numbers(labels), _numbers(answers)
    difference = np.abs(np.where(np.isfinite(given), given, np.inf) - truth)
    difference[~np.isfinite(truth)] = np.nan
    return difference if loss == "absolute" else np.square(difference)


def is_known(labels: ArrayLike | pa.Array) -> NDArray[np.bool_]:
    """Mask of the labels that are neither null nor NaN, shape (rows,)."""
    return np.array([value is not None and value == value for value in _values(labels)], dtype=np.bool_)


def _values(column: ArrayLike | pa.Array) -> list[Any]:
    found: list[Any] = from_values(column).to_pylist()
    return found


def _numbers(column: ArrayLike | pa.Array) -> Floats:
    return np.array([_number(value) for value in _values(column)], dtype=np.float64)


def _number(value: Any) -> float:
    try:
        return float("nan") if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _texts(column: ArrayLike | pa.Array) -> list[str | None]:
    return [None if value is None else str(value) for value in _values(column)]


def _token_loss(answer: str | None, label: str | None) -> float:
    if label is None:
        return float("nan")
    given, meant = (Counter(words(text or "")) for text in (answer, label))
    if not given or not meant:
        return float(given != meant or answer is None)
    common = sum((given & meant).values())
    return 1.0 - 2.0 * common / (given.total() + meant.total())


def _log_losses(answers: ArrayLike | pa.Array, labels: ArrayLike | pa.Array, classes: Classes) -> Floats:
    shares = probabilities(answers, classes)
    places = class_numbers(labels, classes)
    is_given = np.isfinite(shares).all(axis=1)
    shares[~is_given] = 1.0 / len(classes)
    sums = shares.sum(axis=1)
    odd = np.flatnonzero((shares < 0.0).any(axis=1) | (np.abs(sums - 1.0) > _ROUNDED))
    if len(odd):  # scores of any size would make their own loss
        # Without the scores: a model may answer with what it was asked, and the row may be held out.
        raise ValueError(
            f"probabilities >= 0 that sum to 1 expected, got others for {len(odd)} of {len(sums)} rows"
        )
    chosen = shares[np.arange(len(places)), places] / sums
    found = np.where(is_given, -np.log(np.clip(chosen, _LEAST, 1.0)), np.inf)
    return np.where(places < 0, np.nan, found)


def probabilities(answers: ArrayLike | pa.Array, classes: Classes) -> Floats:
    """Probabilities by class, shape (rows, classes), NaN where an answer is missing."""
    nothing = [float("nan")] * len(classes)
    values = [nothing if value is None else value for value in _values(answers)]
    try:
        shares = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty((len(values), 0))
    if shares.ndim != 2 or shares.shape[1] != len(classes):
        raise ValueError(f"probabilities of shape (rows, {len(classes)}) expected, got {shares.shape}")
    return shares
