"""Reach of an embedding: distance at which exchanged numbers and words show."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.texts.words import UNSPACED

from .items import json_of

Floats = NDArray[np.float64]
Span = tuple[int, int]

MOST = 256
"""Answers that an embedding is tried on."""
LEAST = 1e-4
"""Distance of unit vectors below which there is none: single precision is noise there."""
PART = 0.5
"""Part of the smallest distance at first that is the reach: later answers may be longer."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(rf"[{UNSPACED}]+|[^\W\d_{UNSPACED}]{{3,}}")
_STRING = r'"(?:[^"\\]|\\.)*"'
_LEAF = re.compile(rf"{_STRING}\s*:|```\w*|(?P<leaf>{_STRING}|[\w.+-]+)")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_OPPOSITES = {"true": "false", "false": "true"}
_SPARE, _UNSPACED_SPARE = ("otherwise", "elsewhere"), ("其他", "另外")
_TRIES = 20


@dataclass(slots=True)
class EmbeddingReach:
    """Reach of an embedding, fixed with production's first answers.

    Two answers differ where their unit vectors are at least the reach apart: a part of the smallest distance
    at which one exchanged number or word showed in the first answers. Of at most ``MOST`` answers it is
    counted how many would hide an exchange: a change may sit in just these. The smallest distance, and not a
    quantile: what a quantile leaves out are the longest answers.

    Parameters
    ----------
    rng
        Of what is exchanged.

    Attributes
    ----------
    distance
        The reach, once it is fixed; until then ``LEAST``.
    answers
        Answers that it was tried on.
    below
        Answers of these whose exchange of a number, or of a word, stays below the reach.

    Examples
    --------
    >>> reach = EmbeddingReach(np.random.default_rng(0))
    >>> reach.update(np.array([0.4, 0.3]))
    >>> reach.update(np.array([0.1, np.nan, 0.2, 0.5]))
    >>> reach.distance, reach.below, round(reach.hidden, 3)
    (0.15, 2, 0.333)
    """

    rng: np.random.Generator
    distance: float = LEAST
    answers: int = 0
    below: int = 0
    _is_fixed: bool = field(default=False, init=False)

    @property
    def hidden(self) -> float:
        """Share of answers that would hide an exchange, 1.0 without any."""
        return self.below / self.answers if self.answers else 1.0

    def exchanged(self, texts: Sequence[str]) -> list[tuple[int, str]]:
        """Forms of texts with one number or content word exchanged.

        Each with its row, of as many texts as are left to try: two of a text with both, none without either.

        Examples
        --------
        >>> texts = ["Returns take 30 days.", "Parcels leave tomorrow."]
        >>> EmbeddingReach(np.random.default_rng(0)).exchanged(texts)
        [(0, 'Returns take 86 days.'), (0, 'Returns leave 30 days.'), (1, 'Days leave tomorrow.')]
        """
        left = texts[: max(0, MOST - self.answers)]
        others = sorted({text[a:b].casefold() for text in left for a, b in _words(text)})
        found: list[tuple[int, str]] = []
        for row, text in enumerate(left):
            if numbers := _numbers(text):
                a, b = numbers[self.rng.integers(len(numbers))]
                found.append((row, text[:a] + self._other_number(text[a:b]) + text[b:]))
            if words := _words(text):
                a, b = words[self.rng.integers(len(words))]
                found.append((row, text[:a] + self._other_word(text[a:b], text, others) + text[b:]))
        return found

    def update(self, distances: Floats) -> None:
        """Fix the reach with the first distances, and try later ones.

        Parameters
        ----------
        distances
            Of each answer from the nearest of its exchanged forms, NaN where there is no vector, shape (n,).
        """
        if not self._is_fixed and len(distances):
            shown = distances[distances > LEAST]
            self.distance = max(LEAST, PART * float(shown.min())) if len(shown) else LEAST
            self._is_fixed = True
        self.answers += len(distances)
        self.below += int((~(distances >= self.distance)).sum())

    def _other_number(self, number: str) -> str:
        found = number
        while found == number:
            digits = [str(self.rng.integers(int(at == 0), 10)) for at in range(len(number))]
            found = "".join(new if old.isdecimal() else old for new, old in zip(digits, number, strict=True))
        return found

    def _other_word(self, word: str, text: str, others: Sequence[str]) -> str:
        """Word of another answer that the text does not hold."""
        if word in _OPPOSITES:
            return _OPPOSITES[word]
        is_unspaced, here = bool(_UNSPACED.match(word)), text.casefold()
        spares = _UNSPACED_SPARE if is_unspaced else _SPARE
        found = next((spare for spare in spares if spare not in here), spares[0])
        for _ in range(_TRIES):
            other = others[int(self.rng.integers(len(others)))]
            if other not in here and bool(_UNSPACED.match(other)) == is_unspaced:
                found = other
                break
        return found.capitalize() if word[0].isupper() else found


def _areas(text: str) -> list[Span]:
    """Parts of a text that say something: of JSON its values."""
    if json_of(text) is None:
        return [(0, len(text))]
    return [found.span() for found in _LEAF.finditer(text) if found["leaf"]]


def _numbers(text: str) -> list[Span]:
    return [found.span() for area in _areas(text) for found in _NUMBER.finditer(text, *area)]


def _words(text: str) -> list[Span]:
    """Content words; in scripts without spaces each two letters in a row."""
    return [span for area in _areas(text) for span in _words_in(text, area)]


def _words_in(text: str, area: Span) -> Iterator[Span]:
    small = _small_words()
    for found in _WORD.finditer(text, *area):
        begin, end = found.span()
        if _UNSPACED.match(found[0]):
            yield from ((at, min(at + 2, end)) for at in range(begin, max(begin + 1, end - 1)))
        elif found[0].casefold() not in small:
            yield begin, end


@cache
def _small_words() -> frozenset[str]:
    from outrider.assertions.library.languages import SMALL_WORDS

    return frozenset(word for words in SMALL_WORDS.values() for word in words.split())
