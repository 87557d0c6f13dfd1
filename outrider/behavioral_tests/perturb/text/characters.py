"""Changes of characters: typing errors, look-alikes, case, white space, punctuation."""

import re
import string
from collections.abc import Callable, Container
from typing import Literal

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import check_count, drawn, mapped

Case = Literal["lower", "upper", "title", "swap"]
Style = Literal["fullwidth", "bold", "italic"]

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LETTERS = frozenset(string.ascii_letters)
# Cyrillic letters that Unicode's confusables.txt (UTS 39) gives for these Latin ones.
_CONFUSABLES = dict(
    zip(
        "aceijopsxyABCEHIJKMOPSTXY",
        "\u0430\u0441\u0435\u0456\u0458\u043e\u0440\u0455\u0445\u0443\u0410\u0412\u0421\u0415\u041d\u0406"
        "\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423",
        strict=True,
    )
)
_INVISIBLE = ("\N{ZERO WIDTH SPACE}", "\N{ZERO WIDTH NON-JOINER}", "\N{WORD JOINER}")
_STARTS: dict[Style, tuple[int, int]] = {
    "fullwidth": (0xFF21, 0xFF41),
    "bold": (0x1D400, 0x1D41A),
    "italic": (0x1D608, 0x1D622),
}
_RUN = re.compile(r"\s+")
_SPACES = ("  ", "   ", "\t", "\n", "\N{NO-BREAK SPACE}", " \n")


def _neighbours() -> dict[str, str]:
    """Adjacent keys of each key on a QWERTY keyboard, in its row and the rows above and below."""
    found = {}
    for line, row in enumerate(_ROWS):
        for at, key in enumerate(row):
            same_row = row[max(0, at - 1) : at] + row[at + 1 : at + 2]
            above = _ROWS[line - 1][at : at + 2] if line else ""
            below = _ROWS[line + 1][max(0, at - 1) : at + 1] if line + 1 < len(_ROWS) else ""
            found[key] = same_row + above + below
    return found | {key.upper(): keys.upper() for key, keys in found.items()}


_NEIGHBOURS = _neighbours()


def keyboard(name: str = "text", *, count: int = 1) -> Perturbation:
    """Replace ``count`` letters by adjacent keys (QWERTY). Not applicable without Latin letters."""

    def put(letter: str, draw: float) -> str:
        keys = _NEIGHBOURS[letter]
        return keys[int(draw * len(keys))]

    return _put(name, count, "wrong keys", _LETTERS, put)


def insert_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Insert ``count`` random letters, each next to a letter."""

    def put(letter: str, draw: float) -> str:
        more = string.ascii_lowercase[int(draw * 26)]
        return letter + (more.upper() if letter.isupper() else more)

    return _put(name, count, "letters typed too many", _LETTERS, put)


def delete_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Delete ``count`` letters. A text of one character is not applicable."""
    return _put(name, count, "letters left out", _LETTERS, lambda *_: "")


def repeat_characters(name: str = "text", *, count: int = 1) -> Perturbation:
    """Double ``count`` letters."""
    return _put(name, count, "letters typed twice", _LETTERS, lambda letter, _: 2 * letter)


def confusables(name: str = "text", *, count: int = 1) -> Perturbation:
    """Replace ``count`` Latin letters by identical-looking Cyrillic ones (homoglyphs).

    References
    ----------
    Boucher et al., "Bad Characters: Imperceptible NLP Attacks", IEEE S&P 2022.
    """
    check_count(count, "homoglyphs")

    def change(text: str, draws: list[float]) -> str:
        for draw in draws:
            at = _next_of(text, draw, _CONFUSABLES)
            if at >= 0:
                text = text[:at] + _CONFUSABLES[text[at]] + text[at + 1 :]
        return text

    return drawn(name, change, draws=count)


def zero_width(name: str = "text", *, count: int = 1) -> Perturbation:
    """Insert ``count`` zero-width characters after letters or digits."""

    def put(sign: str, draw: float) -> str:
        return sign + _INVISIBLE[int(draw * len(_INVISIBLE))]

    return _put(name, count, "invisible characters", _LETTERS | set(string.digits), put)


def typos(name: str = "text", *, count: int = 1) -> Perturbation:
    """Swap ``count`` pairs of neighbouring, different characters.

    Not applicable if there are none.

    References
    ----------
    CheckList's ``Perturb.add_typos``, which may also swap two equal characters.
    """
    check_count(count, "swaps")
    return drawn(name, _swapped, draws=count)


def whitespace(name: str = "text", *, count: int = 1) -> Perturbation:
    """Change the white space in ``count`` places.

    For example to two spaces, a tab, a line break or a no-break space. A text of one word gets a space at the
    end; an empty text is not applicable.
    """
    check_count(count, "places")

    def change(text: str, draws: list[float]) -> str:
        if not _RUN.search(text):
            return f"{text} " if text else text
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            runs = [match.span() for match in _RUN.finditer(text)]
            start, end = runs[int(place * len(runs))]
            others = [spaces for spaces in _SPACES if spaces != text[start:end]]
            text = text[:start] + others[int(choice * len(others))] + text[end:]
        return text

    return drawn(name, change, draws=2 * count)


def case(name: str = "text", *, to: Case = "lower") -> Perturbation:
    """Change the case of all letters to ``lower``, ``upper``, ``title`` or ``swap``."""
    functions = {"lower": str.lower, "upper": str.upper, "title": str.title, "swap": str.swapcase}
    if to not in functions:
        raise ValueError(f"to must be one of {', '.join(functions)}, got {to!r}")
    return mapped(name, functions[to])


def compatibility(name: str = "text", *, style: Style = "fullwidth") -> Perturbation:
    """Write Latin letters in another Unicode style. NFKC normalization reverses the change."""
    if style not in _STARTS:
        raise ValueError(f"style must be one of {', '.join(_STARTS)}, got {style!r}")
    upper, lower = _STARTS[style]
    table = {ord("A") + at: upper + at for at in range(26)} | {ord("a") + at: lower + at for at in range(26)}
    return mapped(name, lambda text: text.translate(table))


def punctuation(name: str = "text") -> Perturbation:
    """Remove the punctuation at the end, or add a full stop."""

    def change(text: str) -> str:
        bare = text.rstrip(string.punctuation + string.whitespace)
        return (bare if bare != text.rstrip() else f"{bare}.") if bare else text

    return mapped(name, change)


def _put(
    name: str, count: int, what: str, wanted: Container[str], put: Callable[[str, float], str]
) -> Perturbation:
    """Perturbation that changes wanted characters, but leaves no text empty."""
    check_count(count, what)

    def change(text: str, draws: list[float]) -> str:
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            at = _next_of(text, place, wanted)
            if at >= 0:
                text = text[:at] + put(text[at], choice) + text[at + 1 :] or text
        return text

    return drawn(name, change, draws=2 * count)


def _next_of(text: str, draw: float, wanted: Container[str]) -> int:
    """Index of the first wanted character from a random place on, cyclically; -1 if there is none."""
    length = len(text)
    start = int(draw * length)
    for at in range(start, start + length):
        if text[at % length] in wanted:
            return at % length
    return -1


def _swapped(text: str, draws: list[float]) -> str:
    """Text with one swap per number in [0, 1), its relative position in the text.

    Examples
    --------
    >>> [_swapped(text, [0.0]) for text in ("kind", "eel", "ooo")]
    ['iknd', 'ele', 'ooo']
    """
    changed = text
    for draw in draws:
        changed = _swap(changed, draw)
    # Two swaps can undo each other; then the first alone is the change.
    return changed if changed != text or len(draws) == 1 else _swap(text, draws[0])


def _swap(text: str, draw: float) -> str:
    """Text with one pair of characters swapped; slicing keeps it cheap for long texts."""
    last = len(text) - 1
    if last < 1:
        return text
    at = int(draw * last)
    if text[at] == text[at + 1]:  # walk on over pairs like "ee"
        places = (step % last for step in range(at + 1, at + last))
        at = next((place for place in places if text[place] != text[place + 1]), -1)
        if at < 0:
            return text
    return f"{text[:at]}{text[at + 1]}{text[at]}{text[at + 2 :]}"
