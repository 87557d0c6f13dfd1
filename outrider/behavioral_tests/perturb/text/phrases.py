"""Search for a word list's entries, with one look-up per word."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Hit:
    """Entry of the list found in a text, as ``text[start:end]``."""

    start: int
    end: int
    phrase: str


class PhraseList:
    """Phrases by their first word.

    Examples
    --------
    >>> PhraseList(["York", "New York"]).find("from New York's port")
    [Hit(start=5, end=13, phrase='New York')]
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_word: dict[str, list[str]] = {}
        for phrase in phrases:
            first = _WORD.search(phrase)
            if first is not None:
                self._by_word.setdefault(first[0], []).append(phrase)
        for options in self._by_word.values():
            options.sort(key=len, reverse=True)

    def find(self, text: str) -> list[Hit]:
        """Entries from left to right, longest first.

        Entries inside other entries or words are left out.
        """
        if self._by_word.keys().isdisjoint(_WORD.findall(text)):  # most texts; the loop costs much more
            return []
        found: list[Hit] = []
        free = 0
        for match in _WORD.finditer(text):
            start = match.start()
            options = self._by_word.get(match[0], ()) if start >= free else ()
            phrase = next((option for option in options if _ends_at_word(text, start, option)), None)
            if phrase is not None:
                free = start + len(phrase)
                found.append(Hit(start, free, phrase))
        return found


def _ends_at_word(text: str, start: int, phrase: str) -> bool:
    end = start + len(phrase)
    after = text[end : end + 1]
    return text.startswith(phrase, start) and not (after.isalnum() or after == "_")
