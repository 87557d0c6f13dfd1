"""Near-duplicate texts by MinHash of character 4-grams, compared by Jaccard index.

Broder, "On the resemblance and containment of documents", 1997; Leskovec, Rajaraman and Ullman, "Mining of
Massive Datasets", chapter 3. Each row meets a few members of its bucket: one partner is enough.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch.columns import mix
from outrider.assertions.texts.words import UNSPACED

from .neighbours import MatchedRows, Rows, UInts, neighbours

LETTERS = 4
BANDS, BAND_HASHES = 40, 4
"""A pair of likeness 0.55 shares a band in 98 of 100 cases, one of 0.1 in 1 of 250."""
HASHES = BANDS * BAND_HASHES
SLACK = 0.12
"""Three standard errors of an estimate from 160 hashes."""
REACH = 3
_STEP_SHINGLES = 65_536
_STEP_PAIRS = 65_536
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WORDS = re.compile(rf"[\w{UNSPACED}]+")  # \w lacks the vowel signs of Thai, Khmer and Burmese
_APOSTROPHES = str.maketrans("", "", "'`\u2019\u02bc")


def normalised(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    return " ".join(_WORDS.findall(folded))


@dataclass(frozen=True, slots=True)
class TextSketch:
    texts: Sequence[str]
    """Normalised."""
    digests: UInts
    """Of the normalised texts, shape (rows,); 0 for those without a word."""
    signatures: NDArray[np.uint32]
    """Least hashes, shape (rows, HASHES)."""


def sketch_texts(texts: Sequence[str]) -> TextSketch:
    """Equal texts are hashed once."""
    plain = [normalised(text) for text in texts]
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(text, len(numbers)) for text in plain], dtype=np.intp)
    digests = np.array([_digest(text) for text in numbers], dtype=np.uint64)
    signatures = _signatures(list(numbers))
    return TextSketch(plain, digests[codes], signatures[codes])


def near_texts(left: TextSketch, right: TextSketch, *, least: float, is_own: bool = False) -> MatchedRows:
    """One near-duplicate on the right for each text that has any."""
    best = np.full(len(left.texts), -1, dtype=np.intp)
    estimate = np.zeros(len(left.texts))
    there = np.flatnonzero(right.digests).astype(np.intp)
    for band in range(-1, BANDS):
        rows = np.flatnonzero((left.digests != 0) & (estimate < least + SLACK)).astype(np.intp)
        sides = ((left, rows), (right, there))
        keys = [side.digests[at] if band < 0 else band_keys(side.signatures[at], band) for side, at in sides]
        order = [side.signatures[at, (band + 1) * BAND_HASHES % HASHES].astype(float) for side, at in sides]
        pairs = neighbours(keys[0], keys[1], order=(order[0], order[1]), reach=REACH)
        for found, at in pairs:
            asking, others = rows[found], there[at]
            if is_own:
                asking, others = asking[asking != others], others[asking != others]
            shared = _estimate(left.signatures, right.signatures, asking, others)
            better = shared > estimate[asking]  # a row stands once among these
            best[asking[better]], estimate[asking[better]] = others[better], shared[better]
    rows = np.flatnonzero((best >= 0) & (estimate >= least - SLACK)).astype(np.intp)
    likeness = _likeness(left.texts, right.texts, rows, best[rows])
    is_near = likeness >= least
    return MatchedRows(rows[is_near], best[rows[is_near]], likeness[is_near])


def _estimate(
    left: NDArray[np.uint32], right: NDArray[np.uint32], rows: Rows, others: Rows
) -> NDArray[np.float64]:
    found = np.empty(len(rows))
    for start in range(0, len(rows), _STEP_PAIRS):
        step = slice(start, start + _STEP_PAIRS)
        found[step] = (left[rows[step]] == right[others[step]]).mean(axis=1)
    return found


def _likeness(left: Sequence[str], right: Sequence[str], rows: Rows, others: Rows) -> NDArray[np.float64]:
    found = np.empty(len(rows))
    for at, (row, other) in enumerate(zip(rows.tolist(), others.tolist(), strict=True)):
        found[at] = text_likeness(left[row], right[other])
    return found


def text_likeness(one: str, other: str) -> float:
    if one == other:
        return 1.0
    grams, others = _grams(one), _grams(other)
    return len(grams & others) / max(len(grams | others), 1)


def _grams(text: str) -> set[str]:
    padded = _padded(text)
    return {padded[at : at + LETTERS] for at in range(len(padded) - LETTERS + 1)}


def _padded(text: str) -> str:
    return f" {text} ".ljust(LETTERS)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") if text else 0


def band_keys(signatures: NDArray[Any], band: int) -> UInts:
    keys = np.full(len(signatures), band, dtype=np.uint64)
    for column in range(band * BAND_HASHES, (band + 1) * BAND_HASHES):
        keys = mix(keys ^ signatures[:, column].astype(np.uint64))
    return keys


def _signatures(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Least of each hash over the shingles of each text, shape (texts, HASHES)."""
    rng = np.random.default_rng(20_260_105)
    factors = rng.integers(0, 2**31, HASHES, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    offsets = rng.integers(0, 2**32, HASHES, dtype=np.uint32)
    signatures = np.empty((len(texts), HASHES), dtype=np.uint32)
    padded = [_padded(text) for text in texts]
    lengths = np.array([len(text) for text in padded], dtype=np.int64)
    ends = np.cumsum(lengths)
    start = 0
    while start < len(texts):
        reached = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, reached + _STEP_SHINGLES)), start + 1)
        hashes, firsts = _shingles(padded[start:stop], lengths[start:stop])
        for number in range(HASHES):
            hashed = (hashes ^ offsets[number]) * factors[number]
            signatures[start:stop, number] = np.minimum.reduceat(hashed, firsts)
        start = stop
    return signatures


def _shingles(padded: Sequence[str], lengths: NDArray[np.int64]) -> tuple[NDArray[np.uint32], Rows]:
    """Hashes of all shingles, and where those of each text begin."""
    letters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    keys = np.zeros(len(letters) - LETTERS + 1, dtype=np.uint64)
    for at in range(LETTERS):
        keys = keys * _ODD + letters[at : len(keys) + at]
    hashes = (mix(keys) >> np.uint64(32)).astype(np.uint32)
    begins = np.cumsum(lengths) - lengths
    inside = np.ones(len(letters), dtype=np.bool_)
    for back in range(1, LETTERS):  # the last letters of a text begin none
        inside[begins + lengths - back] = False
    counts = lengths - (LETTERS - 1)
    return hashes[inside[: len(hashes)]], (np.cumsum(counts) - counts).astype(np.intp)
