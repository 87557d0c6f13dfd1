"""Embedding distance from which one exchanged number or word is detected."""

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
"""Maximum number of answers used to calibrate the distance."""
LEAST = 1e-4
"""Smallest distance of unit vectors that counts; single precision is noise below."""
PART = 0.5
"""Factor on the smallest observed distance: later answers may be longer."""
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
    """Embedding distance above which two answers differ.

    Fixed from production's first answers: a part of the smallest distance that one exchanged number or word
    caused. The smallest and not a quantile, which would leave out the longest answers. On at most ``MOST``
    answers it counts those in which an exchange would stay below the distance and so go unnoticed.

    Parameters
    ----------
    rng
        Chooses the words and numbers to exchange.

    Attributes
    ----------
    distance
        The fixed distance; ``LEAST`` before the first answers.
    answers
        Number of answers tried.
    below
        Number of these in which an exchanged number or word stays below ``distance``.

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
        """Share of answers that would hide an exchanged word, 1.0 without any."""
        return self.below / self.answers if self.answers else 1.0

    def exchanged(self, texts: Sequence[str]) -> list[tuple[int, str]]:
        """Texts with one number or content word exchanged, with their rows.

        At most two per text; none for a text with neither, or after ``MOST`` answers.

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
        """Fix the distance with the first answers; test later answers.

        Parameters
        ----------
        distances
            Distance of each answer from its nearest exchanged form, NaN without a vector, shape (n,).
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
        """Word of another answer that ``text`` does not contain."""
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
    """Spans of a text that carry content: for JSON its values."""
    if json_of(text) is None:
        return [(0, len(text))]
    return [found.span() for found in _LEAF.finditer(text) if found["leaf"]]


def _numbers(text: str) -> list[Span]:
    return [found.span() for area in _areas(text) for found in _NUMBER.finditer(text, *area)]


def _words(text: str) -> list[Span]:
    """Spans of content words; in scripts without spaces each two consecutive letters."""
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
