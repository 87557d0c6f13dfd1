"""Embedding models of texts, as ``--embed file.py:callable`` takes them."""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

WIDTH = 1024


def ngrams(batch: Any) -> dict[str, Any]:
    """Three letters or digits in a row; case, spaces and marks mean nothing."""
    return {"embedding": _counts(batch, lambda text: re.sub(r"[\W_]+", " ", text.lower()))}


def without_digits(batch: Any) -> dict[str, Any]:
    """The same, blind to digits."""
    return {"embedding": _counts(batch, lambda text: re.sub(r"[\W\d_]+", " ", text.lower()))}


def beginnings(batch: Any) -> dict[str, Any]:
    """The same, of the first 300 letters."""
    return {"embedding": _counts(batch, lambda text: re.sub(r"[\W_]+", " ", text.lower())[:300])}


def constant(batch: Any) -> dict[str, Any]:
    """One vector for all."""
    return {"embedding": np.ones((len(_texts(batch)), 4))}


def missing(batch: Any) -> dict[str, Any]:
    """A vector for the first text alone."""
    found = np.full((len(_texts(batch)), 4), np.nan)
    found[:1] = 1.0
    return {"embedding": found}


def no_vector(batch: Any) -> dict[str, Any]:
    """No embedding."""
    return {"length": np.array([float(len(text)) for text in _texts(batch)])}


def _texts(batch: Any) -> Sequence[str]:
    return [str(text) for text in batch.column("inputs.text")]


def _counts(batch: Any, read: Callable[[str], str]) -> Any:
    texts = _texts(batch)
    found = np.zeros((len(texts), WIDTH))
    for row, text in enumerate(texts):
        plain = f" {read(text).strip()} "
        grams = [zlib.crc32(plain[at : at + 3].encode()) % WIDTH for at in range(len(plain) - 2)]
        np.add.at(found[row], grams, 1.0)
    return found
