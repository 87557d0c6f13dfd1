"""Shared parts of text changes: one function over a column, and capitals."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column

Texts = NDArray[Any]


def mapped(name: str, change: Callable[[str], str]) -> Perturbation:
    """Perturbation of a text column by a function of one text."""
    return _text_column(name, lambda texts, _: map(change, texts))


def drawn(name: str, change: Callable[[str, list[float]], str], *, draws: int) -> Perturbation:
    """Perturbation of a text column by a function of one text.

    The function also gets ``draws`` random numbers in [0, 1).
    """
    return _text_column(name, lambda texts, rng: map(change, texts, rng.random((len(texts), draws)).tolist()))


def check_count(count: int, what: str) -> None:
    """Raise ValueError for a count that would change nothing."""
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}; it is the number of {what} in each text")


def like(model: str, word: str) -> str:
    """``word`` with capitals as in ``model``; its own capitals are kept.

    Examples
    --------
    >>> like("Film", "movie"), like("IS", "is not"), like("I", "we")
    ('Movie', 'IS NOT', 'We')
    """
    if model.isupper() and len(model) > 1:
        return word.upper()
    return word[0].upper() + word[1:] if model[:1].isupper() else word


def _text_column(name: str, change: Callable[[Texts, Rng], Iterable[str]]) -> Perturbation:
    """Like :func:`column`, for text columns only; raises TypeError at run time for other columns."""

    def checked(texts: Texts, rng: Rng) -> Texts:
        if texts.dtype != object or not isinstance(texts[0], str):
            raise TypeError(
                f"inputs.{name}: texts expected, got {texts.dtype}; name the field that holds texts"
            )
        return np.array(list(change(texts, rng)), dtype=object)

    return column(name, checked)
