"""Typing errors: neighbouring key, one too many, left out, or twice."""

import string
from collections.abc import Callable, Container

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import check_count, drawn

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LETTERS = frozenset(string.ascii_letters)


def _neighbours() -> dict[str, str]:
    """Keys beside each key of a QWERTY keyboard, in its row and the rows above and below."""
    found = {}
    for line, row in enumerate(_ROWS):
        for at, key in enumerate(row):
            beside = row[max(0, at - 1) : at] + row[at + 1 : at + 2]
            above = _ROWS[line - 1][at : at + 2] if line else ""
            below = _ROWS[line + 1][max(0, at - 1) : at + 1] if line + 1 < len(_ROWS) else ""
            found[key] = beside + above + below
    return found | {key.upper(): keys.upper() for key, keys in found.items()}


_NEIGHBOURS = _neighbours()


def keyboard(name: str = "text", *, count: int = 1) -> Perturbation:
    """Hit the key beside the right one (QWERTY) ``count`` times. Not applicable without Latin letters."""

    def change(text: str, at: int, draw: float) -> str:
        keys = _NEIGHBOURS[text[at]]
        return text[:at] + keys[int(draw * len(keys))] + text[at + 1 :]

    return _at_letters(name, count, change, "wrong keys")


def insert_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Type ``count`` random letters too many, each beside a letter."""

    def change(text: str, at: int, draw: float) -> str:
        letter = string.ascii_lowercase[int(draw * 26)]
        return text[: at + 1] + (letter.upper() if text[at].isupper() else letter) + text[at + 1 :]

    return _at_letters(name, count, change, "letters typed too many")


def delete_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Leave out ``count`` letters; a text of one character is not applicable."""

    def change(text: str, at: int, draw: float) -> str:  # noqa: ARG001 - the place alone is drawn
        return text[:at] + text[at + 1 :] if len(text) > 1 else text

    return _at_letters(name, count, change, "letters left out")


def repeat_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Type ``count`` letters twice."""

    def change(text: str, at: int, draw: float) -> str:  # noqa: ARG001
        return text[: at + 1] + text[at:]

    return _at_letters(name, count, change, "letters typed twice")


def _at_letters(name: str, count: int, change: Callable[[str, int, float], str], what: str) -> Perturbation:
    check_count(count, what)

    def change_text(text: str, draws: list[float]) -> str:
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            at = next_of(text, place, _LETTERS)
            if at >= 0:
                text = change(text, at, choice)
        return text

    return drawn(name, change_text, draws=2 * count)


def next_of(text: str, draw: float, wanted: Container[str]) -> int:
    """First wanted character from a random place on, cyclically, else -1."""
    length = len(text)
    start = int(draw * length)
    for at in range(start, start + length):
        if text[at % length] in wanted:
            return at % length
    return -1
