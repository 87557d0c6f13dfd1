"""Changes of texts.

The first argument names the input field.
"""

from .additions import emoji, handle, phrase, url
from .characters import (
    case,
    compatibility,
    confusables,
    delete_characters,
    insert_characters,
    keyboard,
    punctuation,
    repeat_characters,
    typos,
    whitespace,
    zero_width,
)
from .contractions import contractions
from .locations import locations
from .names import names
from .negation import add_negation, remove_negation
from .numbers import numbers
from .paraphrase import paraphrase
from .synonyms import synonyms

__all__ = [
    "add_negation",
    "case",
    "compatibility",
    "confusables",
    "contractions",
    "delete_characters",
    "emoji",
    "handle",
    "insert_characters",
    "keyboard",
    "locations",
    "names",
    "numbers",
    "paraphrase",
    "phrase",
    "punctuation",
    "remove_negation",
    "repeat_characters",
    "synonyms",
    "typos",
    "url",
    "whitespace",
    "zero_width",
]
