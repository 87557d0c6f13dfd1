"""Faults of texts of any kind: language, length, repetition, personal data."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.texts.words import has_unspaced, word_counts, words

from .languages import detect_language, language
from .personal import find_personal_data, personal_data
from .texts import has_text, split_column, text_column, words_of

__all__ = ["detect_language", "find_personal_data", "language", "length", "personal_data", "repetition"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unit = Literal["characters", "words"]

GRAM = 4
"""Number of words of a phrase: shorter ones repeat in good prose."""


def _sizes(column: pa.Array, unit: Unit) -> Ints:
    is_words = unit == "words"
    sizes = word_counts(column) if is_words else pc.utf8_length(pc.utf8_trim_whitespace(column))
    counts: Ints = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def length(
    *,
    text: str = "outputs.answer",
    shortest: int | None = None,
    longest: int | None = None,
    reference: Sequence[str] | None = None,
    tail: float = 0.001,
    unit: Unit = "characters",
    name: str = "length",
    level: Level = "warning",
) -> Assertion:
    """Texts that are empty, cut short, or far longer than usual.

    Finds
    -----
    Lengths outside [``shortest``, ``longest``]. A missing bound is taken from ``reference`` texts, as the
    length that a share ``tail`` of them lies beyond; without a reference, ``shortest`` is 1 (nothing but
    white space fires) and ``longest`` has no bound. The severity is 1 plus the number of halvings or
    doublings beyond the bound. A null or absent text is not judged (``required`` finds it).

    Cost
    ----
    0.2 µs per record.

    Measured
    --------
    An exact check: it fires if and only if the length is outside the bounds.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.answer": ["  ", "Yes.", "no " * 400]}, model="helpdesk")
    >>> length(longest=600).severities(batch).round(1).tolist()
    [2.0, 0.0, 2.0]
    """
    if reference is not None and not len(reference):
        raise ValueError("reference must hold at least one text, got none; leave it out to give the limits")
    if reference is not None:
        sizes = _sizes(pa.array(reference, pa.string()), unit)
        shortest = math.floor(np.quantile(sizes, tail)) if shortest is None else shortest
        longest = math.ceil(np.quantile(sizes, 1 - tail)) if longest is None else longest
    low, high = 1 if shortest is None else shortest, math.inf if longest is None else longest
    if not 0 <= low <= high:
        raise ValueError(f"0 <= shortest <= longest expected, got {low} and {high}")

    @assertion(name=name, level=level, description=f"{text} has not {low} to {high} {unit}.")
    def judge(batch: Batch) -> Floats:
        size = _sizes(text_column(batch, text), unit)
        past = np.maximum((low + 1) / (size + 1), (size + 1) / (high + 1))
        wrong = has_text(batch, text) & ((size < low) | (size > high))
        return np.where(wrong, 1.0 + np.log2(np.maximum(past, 1.0)), 0.0)

    return judge


def _repeated_share(items: Ints, row: Ints, rows: int) -> Floats:
    """Share of a row's items that occurred earlier in the row, shape (rows,); 0.0 without items."""
    total = np.bincount(row, minlength=rows)
    pairs = np.unique(row * (items.max(initial=0) + 1) + items)
    distinct = np.bincount(pairs // (items.max(initial=0) + 1), minlength=rows)
    share: Floats = np.where(total > 0, 1.0 - distinct / np.maximum(total, 1), 0.0)
    return share


def _codes(items: pa.Array) -> Ints:
    codes: Ints = items.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def repeated_phrases(texts: pa.Array) -> Floats:
    """Share of repeated four-word phrases, shape (rows,)."""
    spoken, row = words_of(texts, numbers=True)
    if has_unspaced(texts):
        encoded = spoken.dictionary_encode()
        lists = pa.array([words(each) for each in encoded.dictionary.to_pylist()], pa.list_(pa.string()))
        spoken, run = split_column(lists.take(encoded.indices))
        row = row[run]
    word = _codes(spoken)
    last = max(0, len(word) - GRAM + 1)
    start = np.flatnonzero(row[:last] == row[GRAM - 1 :])  # words of a row are adjacent
    gram = word[start]
    for step in range(1, GRAM):
        # Renumbered at each step, so that the product never overflows.
        gram = np.unique(gram * len(word) + word[start + step], return_inverse=True)[1].astype(np.int64)
    return _repeated_share(gram, row[start], len(texts))


def repeated_sentences(texts: pa.Array) -> Floats:
    """Share of repeated sentences (and lines), shape (rows,)."""
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    parts, row = split_column(pc.split_pattern_regex(plain, "[.!?\n\u3002\uff01\uff1f\uff61]+\\s*"))
    is_long = pc.greater(pc.utf8_length(parts), 3).to_numpy(zero_copy_only=False)
    return _repeated_share(_codes(parts.filter(pa.array(is_long))), row[is_long], len(texts))


def repetition(
    *,
    text: str = "outputs.answer",
    above: float = 0.3,
    name: str = "repetition",
    level: Level = "warning",
) -> Assertion:
    """Texts that repeat phrases or sentences.

    Finds
    -----
    Loops: a text in which a share above ``above`` of the phrases (four words in a row) or of the sentences
    repeats earlier ones. The severity is the larger of the two shares. A word or line that occurs twice in a
    short text stays below.

    Cost
    ----
    About 80 µs per record: a text of 500 characters, 20 µs per tweet; the whole column at once.

    Measured
    --------
    It fires on 9 of 4,507 ChatGPT answers, most of them tables and songs, on 1 of 14,427 tweets and 0 of
    23,695 requests to an assistant (`python -m benchmarks.assertions.llm`).

    Examples
    --------
    >>> answers = ["The refund takes five days. Write to us if it does not come.", "I am not sure. " * 5]
    >>> batch = Batch.from_columns({"outputs.answer": answers}, model="helpdesk")
    >>> repetition().severities(batch).round(1).tolist()
    [0.0, 0.8]
    """
    if not 0 <= above < 1:
        raise ValueError(f"above must lie in [0, 1), got {above}; it is a share of phrases")

    @assertion(name=name, level=level, description=f"More than {above:.0%} of {text} was said before in it.")
    def judge(batch: Batch) -> Floats:
        column = text_column(batch, text)
        share = np.maximum(repeated_phrases(column), repeated_sentences(column))
        return np.where(share > above, share, 0.0)

    return judge
