"""Indefinite article by sound, from a word's spelling."""

import re

# Spelled with a vowel, spoken with a consonant: "a user", "a European", "a one-off", "a US firm".
_SOUNDS_LIKE_YOU = re.compile(r"u(ni([^nmd]|$)|nanim|biq|kr|gan|[srt][aeiou]|topia)|eu|ewe|one\b|once\b")
_SILENT_H = ("hour", "honest", "honor", "honour", "heir")
_CAPITALS = re.compile(r"([A-Z]+)(?![a-z])")
_SPELLED_WITH_A_VOWEL = frozenset("AEFHILMNORSX")  # "an F", "an SMS"


def article(word: str, *, capital: bool = False) -> str:
    """``a`` or ``an``.

    Examples
    --------
    >>> [article(word) for word in ("engineer", "user", "umbrella", "hour", "X-ray", "SMS", "NASA", "8")]
    ['an', 'a', 'an', 'an', 'an', 'an', 'a', 'an']
    """
    found = "an" if _starts_with_a_vowel(word) else "a"
    return found.capitalize() if capital else found


def _starts_with_a_vowel(word: str) -> bool:
    letters = _CAPITALS.match(word)
    if letters and letters[1] not in ("A", "I") and _is_spelled_out(letters[1]):
        return letters[1][0] in _SPELLED_WITH_A_VOWEL
    lower = word.lower()
    if lower.startswith(_SILENT_H):
        return True
    if lower[:1].isdigit():  # eight, eleven, eighteen, eighty
        return lower.startswith("8") or re.match(r"1[18](?!\d)", lower) is not None
    return lower[:1] in tuple("aeiou") and not _SOUNDS_LIKE_YOU.match(lower)


def _is_spelled_out(capitals: str) -> bool:
    """Single letters, capitals without a vowel, and those that begin with U ("a US firm")."""
    return len(capitals) == 1 or not set(capitals) & set("AEIOU") or capitals[0] == "U"
