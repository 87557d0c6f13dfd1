"""Contractions: "is not" and "isn't"."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import mapped

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


def contractions(name: str = "text") -> Perturbation:
    """Expand contractions ("isn't" → "is not"); where there are none, contract what can be."""
    return mapped(name, _recontract)


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
