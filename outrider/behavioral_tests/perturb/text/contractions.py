"""Contractions: "is not" and "isn't"."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .capitals import like
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
_SHORT = re.compile(  # not in "isn't it", which is "is it not", nor in "it's been", which is "it has been"
    rf"\b({'|'.join(re.escape(key) for key in _EXPANSIONS)})(?!\w|(?<=t) (?:i|you|he|she|it|we|they)\b"
    r"|(?<=s) (?:been|got|had)\b)",
    re.IGNORECASE,
)
_LONG = re.compile(  # not in "yes, I am" nor in "I have to"
    rf"\b({'|'.join(re.escape(key) for key in _CONTRACTIONS)})(?!\w)"
    r"(?:(?<=not)|(?<=have)(?= (?:been|had|got|seen|\w+ed)\b)|(?<!have)(?= \w))",
    re.IGNORECASE,
)


def contractions(name: str = "text") -> Perturbation:
    """Expand contractions ("isn't" → "is not"); where there are none, contract what can be."""
    return mapped(name, _recontract)


def _recontract(text: str) -> str:
    expanded = _SHORT.sub(lambda match: like(match[0], _EXPANSIONS[match[0].lower()]), text)
    if expanded != text:
        return expanded
    return _LONG.sub(lambda match: like(match[0], _CONTRACTIONS[match[0].lower()]), text)
