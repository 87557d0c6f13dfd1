"""Changes of texts that leave their meaning alone."""

import re
import string
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._typos import with_typos
from .perturbation import Perturbation, Rng, column

Case = Literal["lower", "upper", "title", "swap"]

_VERBS = ["is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "would", "could", "should"]
_EXPANSIONS = {
    "can't": "cannot",
    "won't": "will not",
    "shan't": "shall not",
    **{f"{verb}n't": f"{verb} not" for verb in _VERBS},
    **{f"{who}'re": f"{who} are" for who in ("you", "we", "they")},
    **{f"{who}'ve": f"{who} have" for who in ("i", "you", "we", "they")},
    **{f"{who}'ll": f"{who} will" for who in ("i", "you", "he", "she", "it", "we", "they")},
    "i'm": "i am",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "what's": "what is",
    "he's": "he is",
    "she's": "she is",
}
_CONTRACTIONS = {long: short for short, long in _EXPANSIONS.items()}
_SHORT = re.compile(rf"\b({'|'.join(re.escape(key) for key in _EXPANSIONS)})(?!\w)", re.IGNORECASE)
_LONG = re.compile(rf"\b({'|'.join(re.escape(key) for key in _CONTRACTIONS)})\b", re.IGNORECASE)


def typos(name: str = "text", *, count: int = 1) -> Perturbation:
    """Swap ``count`` pairs of neighbouring, different characters; not applicable where there are none.

    References
    ----------
    CheckList's ``Perturb.add_typos``; unlike it, never swaps two equal characters.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}; it is the number of swaps in each text")

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        draws = rng.random((len(texts), count))
        return _texts(with_typos(texts.tolist(), draws.tolist()))

    return column(name, change)


def contractions(name: str = "text") -> Perturbation:
    """Expand contractions ("isn't" → "is not"); where there are none, contract what can be."""

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:  # noqa: ARG001 - a change takes both
        return _texts(_recontract(text) for text in texts)

    return column(name, change)


def _recontract(text: str) -> str:
    expanded = _SHORT.sub(lambda match: _as(match[0], _EXPANSIONS[match[0].lower()]), text)
    if expanded != text:
        return expanded
    return _LONG.sub(lambda match: _as(match[0], _CONTRACTIONS[match[0].lower()]), text)


def _as(model: str, word: str) -> str:
    """``word`` with the capitals of ``model``; the pronoun I keeps its own."""
    if model.isupper() and len(model) > 3:
        return word.upper()
    return word[0].upper() + word[1:] if model[0].isupper() else word


def punctuation(name: str = "text") -> Perturbation:
    """Drop the punctuation at the end; where there is none, add a full stop."""

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:  # noqa: ARG001 - a change takes both
        return _texts(_repunctuate(text) for text in texts)

    return column(name, change)


def _repunctuate(text: str) -> str:
    bare = text.rstrip(string.punctuation + string.whitespace)
    if not bare:
        return text
    return bare if bare != text.rstrip() else f"{bare}."


def case(name: str = "text", *, to: Case = "lower") -> Perturbation:
    """Change the case of every letter: ``lower``, ``upper``, ``title`` or ``swap``."""
    functions = {"lower": str.lower, "upper": str.upper, "title": str.title, "swap": str.swapcase}
    if to not in functions:
        raise ValueError(f"to must be one of {', '.join(functions)}, got {to!r}")

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:  # noqa: ARG001 - a change takes both
        return _texts(functions[to](text) for text in texts)

    return column(name, change)


def _texts(values: Any) -> NDArray[Any]:
    return np.array(list(values), dtype=object)
