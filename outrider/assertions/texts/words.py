"""Words of texts, in every script.

Words are separated by white space. In scripts without it (Chinese, Japanese, Thai, Lao, Khmer, Burmese,
Tibetan and others), each two consecutive letters are a word: no dictionary is needed, and one changed letter
changes two words. Case, and forms of a letter that are equal under Unicode's NFKC, are ignored.
"""

import itertools
import re
import unicodedata
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_RANGES = (
    *("\u0e01\u0e3a", "\u0e40\u0e4e", "\u0e81\u0ece", "\u0edc\u0edf"),  # Thai, Lao
    *("\u0f0b\u0f0c", "\u0f40\u0fbc"),  # Tibetan
    *("\u1000\u103f", "\u104c\u108f", "\u109a\u109d", "\ua9e0\ua9ef", "\uaa60\uaa7f"),  # Burmese
    *("\u1780\u17d3", "\u17d7\u17d7", "\u17dc\u17dd"),  # Khmer
    *(
        "\u1950\u19cf",
        "\u1a20\u1a7f",
        "\u1b00\u1b4f",
        "\ua980\ua9c0",
        "\uaa80\uaadf",
    ),  # Tai, Balinese, Javanese
    *("\u2e80\u2fdf", "\u3005\u3007", "\u3021\u3029", "\u3031\u3035", "\u3038\u303b", "\u3400\u4dbf"),  # Han
    *("\u4e00\u9fff", "\uf900\ufaff", "\U00020000\U0003ffff"),
    *("\u3041\u309f", "\u30a1\u30fa", "\u30fc\u30ff", "\u31f0\u31ff", "\U0001aff0\U0001b122"),  # kana
    *("\u3105\u312f", "\u31a0\u31bf", "\ua000\ua48c"),  # Bopomofo, Yi
)
UNSPACED = "".join(f"{ends[0]}-{ends[1]}" for ends in _RANGES)
"""Letters of scripts without spaces, for a regular expression class (Python's or RE2)."""
_MAY_CHANGE = (
    f"[{UNSPACED}\xa8\xaf\xb4\xb8\u02d8-\u02dd\u037a\u0384\u0385\u1fbd-\u1ffe\u2017\u203e\u3000-\u33ff"
    "\ufc5e-\ufdfb\ufe30-\uffef\U0001f200-\U0001f2ff]"
)
"""Letters without spaces between their words, and characters that NFKC changes or maps to white space."""
_PARTS = re.compile(rf"([{UNSPACED}]+)|([^\s{UNSPACED}]+)")
IN_WORD = rf"[^\W{UNSPACED}]"
"""Letter next to which no word starts or ends, as a regular expression."""
DISTINCT = 0.5
"""Minimum share of distinct values of a text column, in scripts whose shortest labels have many words."""


def words(text: str) -> list[str]:
    """Words of a text, in their order.

    Examples
    --------
    >>> words("The  Parcel\u00a0left."), words("\u9000\u6b3e\uff13\u5929\u5185")
    (['the', 'parcel', 'left.'], ['退款', '3', '天内'])
    """
    if text.isascii():
        return text.lower().split()
    found: list[str] = []
    for letters, other in _PARTS.findall(_plain(text)):
        if other or len(letters) == 1:
            found.append(other or letters)
        else:
            found += map("".join, itertools.pairwise(letters))
    return found


def named(text: str, names: tuple[str, ...]) -> list[str]:
    """Names that a text holds as whole words.

    The longest at each position, in the order of ``names``.

    Examples
    --------
    >>> named("It is Ham.", ("spam", "ham")), named("这是退款", ("退款", "款"))
    (['ham'], ['退款'])
    """
    found = {*_any_of(names, text.isascii()).findall(_plain(text))}
    return [name for name in names if _plain(name) in found]


@lru_cache(64)
def _any_of(names: tuple[str, ...], is_ascii: bool) -> re.Pattern[str]:
    longest = sorted(map(_plain, filter(None, names)), key=len, reverse=True)
    letter = r"\w" if is_ascii else IN_WORD
    return re.compile(f"(?<!{letter})(?:{'|'.join(map(re.escape, longest))})(?!{letter})")


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def word_counts(texts: pa.Array) -> pa.Array:
    """Number of :func:`words` of each text of a column; null of null.

    Examples
    --------
    >>> word_counts(pa.array(["The  Parcel left.", None, "\u9000\u6b3e\u5929"])).to_pylist()
    [3, None, 2]
    """
    if not has_unspaced(texts):
        return _spaced_counts(texts)
    plain = pc.utf8_normalize(texts, "NFKC")
    letters = pc.count_substring_regex(plain, f"[{UNSPACED}]")
    runs = pc.count_substring_regex(plain, f"[{UNSPACED}]{{2,}}")
    others = _spaced_counts(pc.replace_substring_regex(plain, f"[{UNSPACED}]+", " "))
    return pc.add(pc.subtract(letters, runs), others)


def _spaced_counts(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    counts = pc.list_value_length(pc.utf8_split_whitespace(trimmed))
    return pc.subtract(counts, pc.equal(trimmed, "").cast(counts.type))  # an empty text is one part


def has_unspaced(texts: pa.Array) -> bool:
    """True if a text may contain words without spaces between them."""
    other = pc.invert(pc.string_is_ascii(texts))
    if not pc.any(other).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(texts.filter(other), _MAY_CHANGE)).as_py())


def are_texts(column: pa.Array, *, least: float) -> bool:
    """True for a column of texts, False for categories. Texts have at least ``least`` words on average."""
    mean = pc.mean(word_counts(column)).as_py()
    if mean is None or mean < least:
        return False
    known = len(column) - column.null_count
    return not has_unspaced(column) or pc.count_distinct(column).as_py() >= DISTINCT * known
