"""Expectations of texts, such as answers of language models.

A missing answer fails all of them.
"""

import json
import re
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import overlap
from outrider.assertions.texts.words import UNSPACED, words

from .reading import Floats, answer, judged, missing
from .rule import Rule, named

_WORD = re.compile(rf"[\w{UNSPACED}]+")  # \w lacks the vowel signs of Thai, Khmer and Burmese


@named
def contains(*parts: str, field: str = "answer", ignore_case: bool = False) -> Rule:
    """Expect all of ``parts`` in the text. The severity is the share of missing parts.

    Examples
    --------
    >>> answered = Batch.from_records([{"outputs": {"answer": "Paris, in France"}}], model="m")
    >>> contains("paris", "Lyon", ignore_case=True)(answered, answered)
    array([0.5])
    """
    wanted = _parts("contains", parts, ignore_case)
    return _each(
        field, lambda text: sum(part not in _fold(text, ignore_case) for part in wanted) / len(wanted)
    )


@named
def not_contains(*parts: str, field: str = "answer", ignore_case: bool = False) -> Rule:
    """Expect none of ``parts`` in the text. The severity is the share of parts found."""
    banned = _parts("not_contains", parts, ignore_case)
    return _each(field, lambda text: sum(part in _fold(text, ignore_case) for part in banned) / len(banned))


@named
def matches(pattern: str, *, field: str = "answer") -> Rule:
    r"""Expect a match of a regular expression in the text.

    Use ``^…\Z`` to match the whole text, ``(?i)`` to ignore case.

    Raises
    ------
    ValueError
        If the pattern is not a regular expression.

    Examples
    --------
    >>> answered = Batch.from_records([{"outputs": {"answer": "in 2024"}}], model="m")
    >>> matches(r"\b\d{4}\b")(answered, answered)
    array([0.])
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression expected, got {pattern!r}: {error}") from error
    return _each(field, lambda text: float(compiled.search(text) is None))


@named
def length(
    field: str = "answer",
    *,
    low: int = 0,
    high: int | None = None,
    unit: Literal["characters", "words"] = "characters",
) -> Rule:
    """Expect ``low`` to ``high`` characters or words. The severity is the distance from that range."""
    if unit not in ("characters", "words"):
        raise ValueError(f"unit must be 'characters' or 'words', got {unit!r}")
    most = np.inf if high is None else high
    if not 0 <= low <= most:
        raise ValueError(f"0 <= low <= high expected, got {low} and {high}")

    def off(text: str) -> float:
        size = len(text) if unit == "characters" else len(words(text))
        return max(0.0, low - size, size - most)

    return _each(field, off)


@named
def valid_json(field: str = "answer", *, keys: tuple[str, ...] = ()) -> Rule:
    """Expect a text that is JSON. With ``keys``, an object with these keys is required.

    Examples
    --------
    >>> answered = Batch.from_records([{"outputs": {"answer": '{"a": 1}'}}], model="m")
    >>> valid_json(keys=("a",))(answered, answered), valid_json(keys=("b",))(answered, answered)
    (array([0.]), array([1.]))
    """

    def broken(text: str) -> float:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return 1.0
        return float(bool(keys) and not (isinstance(value, dict) and all(key in value for key in keys)))

    return _each(field, broken)


@named
def similar(field: str = "answer", *, at_least: float, by: Literal["words", "characters"] = "words") -> Rule:
    """Expect a text similar to the original answer.

    The severity is ``at_least`` less the similarity.

    Parameters
    ----------
    at_least
        Minimum similarity in (0, 1]; 1.0 is the same text.
    by
        ``words``: F1 of the common words, ignoring order, case and punctuation, as in SQuAD. ``characters``:
        share of characters that keep their order (``difflib``; slow for texts of thousands).

    References
    ----------
    Rajpurkar et al., "SQuAD: 100,000+ questions for machine comprehension of text", EMNLP 2016, section 6.1.

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"answer": "It opens at nine."}}], model="m")
    >>> answered = Batch.from_records([{"outputs": {"answer": "At nine it opens"}}], model="m")
    >>> similar(at_least=0.9)(asked, answered)
    array([0.])
    >>> similar(at_least=0.9, by="characters")(asked, answered).round(2)
    array([0.48])
    """
    if not 0.0 < at_least <= 1.0:
        raise ValueError(f"at_least is a share in (0, 1], got {at_least}")
    if by not in ("words", "characters"):
        raise ValueError(f"by must be 'words' or 'characters', got {by!r}")
    likeness = _same_words if by == "words" else _same_characters

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = _texts(before, field, before), _texts(after, field, before)
        known = ~missing(was) & ~missing(now)
        short = np.zeros(len(was))
        pairs = zip(was[known].tolist(), now[known].tolist(), strict=True)
        short[known] = [
            max(0.0, at_least - (1.0 if one == other else likeness(one, other))) for one, other in pairs
        ]
        return judged(short, was, now)

    return Rule(judge)


def _same_words(one: str, other: str) -> float:
    return overlap(*(" ".join(_WORD.findall(text)) for text in (one, other)))


def _same_characters(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _each(field: str, severity: Callable[[str], float]) -> Rule:
    """Rule from a function of one text."""

    def judge(before: Batch, after: Batch) -> Floats:
        given = _texts(after, field, before)
        known = ~missing(given)
        found = np.ones(len(given))
        found[known] = [severity(text) for text in given[known].tolist()]
        return found

    return Rule(judge)


def _texts(batch: Batch, field: str, original: Batch) -> NDArray[Any]:
    values = answer(batch, field, original=original)
    other = next((value for value in values[~missing(values)].tolist() if not isinstance(value, str)), None)
    if other is not None:
        raise TypeError(f"texts expected in {field!r}, got {other!r}")
    return values


def _fold(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text


def _parts(name: str, parts: tuple[str, ...], ignore_case: bool) -> list[str]:
    if not parts or not all(parts):
        raise ValueError(f"{name} needs at least one text that is not empty, got {list(parts)}")
    return [_fold(part, ignore_case) for part in parts]
