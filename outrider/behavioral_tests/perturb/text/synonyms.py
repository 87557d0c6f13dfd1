"""Words of the same meaning."""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import check_count, drawn, like
from .word_lists import rows

_WORD = re.compile(r"(?<![\w@#'\u2019-])[A-Za-z]+(?![\w'\u2019-])")
_VOWELS = frozenset("aeiouAEIOU")


def synonyms(
    name: str = "text", *, count: int = 1, mapping: Mapping[str, Iterable[str]] | None = None
) -> Perturbation:
    """Replace ``count`` words by words of the same meaning.

    Capitals and "a" / "an" are adapted.

    Parameters
    ----------
    mapping
        Synonyms by lower-case word, in the same form. None uses a small list (``word_lists/synonyms.txt``) of
        words that are interchangeable in most sentences; context is not considered.
    """
    check_count(count, "words replaced")
    known = _default() if mapping is None else {word.lower(): tuple(to) for word, to in mapping.items() if to}

    def change(text: str, draws: list[float]) -> str:
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            hits = [match for match in _WORD.finditer(text) if match[0].lower() in known]
            if not hits:
                return text
            hit = hits[int(place * len(hits))]
            options = known[hit[0].lower()]
            text = _put_word(text, hit.start(), hit.end(), options[int(choice * len(options))])
        return text

    return drawn(name, change, draws=2 * count)


def _put_word(text: str, start: int, end: int, word: str) -> str:
    """Text with ``word`` for ``text[start:end]``, and the article before it adapted."""
    old, head = text[start:end], text[:start]
    if (old[0] in _VOWELS) != (word[0] in _VOWELS):
        head = re.sub(r"\b([Aa])(n?)(\s)$", lambda m: m[1] + ("n" if word[0] in _VOWELS else "") + m[3], head)
    return head + like(old, word) + text[end:]


@cache
def _default() -> dict[str, tuple[str, ...]]:
    known: dict[str, list[str]] = {}
    for group in rows("synonyms"):
        for word in group:
            known.setdefault(word, []).extend(other for other in group if other != word)
    return {word: tuple(others) for word, others in known.items()}
