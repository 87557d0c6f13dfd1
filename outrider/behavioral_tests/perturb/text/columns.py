"""Shared parts of text changes: one function over a column."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column

Texts = NDArray[Any]


def texts_of(values: Iterable[str]) -> Texts:
    """Texts as the object array that a column is rebuilt from."""
    return np.array(list(values), dtype=object)


def mapped(name: str, change: Callable[[str], str]) -> Perturbation:
    """Perturbation of a text column by a function of one text."""
    return text_column(name, lambda texts, _: texts_of(map(change, texts)))


def drawn(name: str, change: Callable[[str, list[float]], str], *, draws: int) -> Perturbation:
    """Perturbation of a text column by a function with random numbers.

    A function of one text and ``draws`` numbers in [0, 1).
    """
    return text_column(
        name, lambda texts, rng: texts_of(map(change, texts, rng.random((len(texts), draws)).tolist()))
    )


def text_column(name: str, change: Callable[[Texts, Rng], Texts]) -> Perturbation:
    """As :func:`column`, for texts only.

    Raises
    ------
    TypeError
        Naming the field, when what it holds is no text.
    """

    def checked(texts: Texts, rng: Rng) -> Texts:
        if texts.dtype != object or not isinstance(texts[0], str):
            raise TypeError(
                f"inputs.{name}: texts expected, got {texts.dtype}; name the field that holds texts"
            )
        return change(texts, rng)

    return column(name, checked)


def check_count(count: int, what: str) -> None:
    """Raise a ValueError for a count that would change nothing."""
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}; it is the number of {what} in each text")
