"""Punctuation at the end of a text."""

import string

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import mapped


def punctuation(name: str = "text") -> Perturbation:
    """Drop the punctuation at the end, or add a full stop."""
    return mapped(name, _repunctuate)


def _repunctuate(text: str) -> str:
    bare = text.rstrip(string.punctuation + string.whitespace)
    if not bare:
        return text
    return bare if bare != text.rstrip() else f"{bare}."
