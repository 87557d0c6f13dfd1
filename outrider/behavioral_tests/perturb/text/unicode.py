"""Characters that look alike, mean the same, or are invisible."""

import string
from typing import Literal

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .characters import next_of
from .columns import check_count, drawn, mapped

Style = Literal["fullwidth", "bold", "italic"]

# Cyrillic letters that Unicode's confusables.txt (UTS 39) gives for these Latin ones.
_CONFUSABLES = {
    "a": "\u0430",
    "c": "\u0441",
    "e": "\u0435",
    "i": "\u0456",
    "j": "\u0458",
    "o": "\u043e",
    "p": "\u0440",
    "s": "\u0455",
    "x": "\u0445",
    "y": "\u0443",
    "A": "\u0410",
    "B": "\u0412",
    "C": "\u0421",
    "E": "\u0415",
    "H": "\u041d",
    "I": "\u0406",
    "J": "\u0408",
    "K": "\u041a",
    "M": "\u041c",
    "O": "\u041e",
    "P": "\u0420",
    "S": "\u0405",
    "T": "\u0422",
    "X": "\u0425",
    "Y": "\u0423",
}
_INVISIBLE = ("\N{ZERO WIDTH SPACE}", "\N{ZERO WIDTH NON-JOINER}", "\N{WORD JOINER}")
_WORD = frozenset(string.ascii_letters + string.digits)
_STARTS: dict[Style, tuple[int, int]] = {
    "fullwidth": (0xFF21, 0xFF41),
    "bold": (0x1D400, 0x1D41A),
    "italic": (0x1D608, 0x1D622),
}


def confusables(name: str = "text", *, count: int = 1) -> Perturbation:
    """Write ``count`` Latin letters as Cyrillic ones that look the same (homoglyphs).

    References
    ----------
    Boucher et al., "Bad Characters: Imperceptible NLP Attacks", IEEE S&P 2022.
    """
    check_count(count, "homoglyphs")

    def change(text: str, draws: list[float]) -> str:
        for draw in draws:
            at = next_of(text, draw, _CONFUSABLES)
            if at >= 0:
                text = text[:at] + _CONFUSABLES[text[at]] + text[at + 1 :]
        return text

    return drawn(name, change, draws=count)


def zero_width(name: str = "text", *, count: int = 1) -> Perturbation:
    """Put ``count`` invisible characters of no width behind letters or digits."""
    check_count(count, "invisible characters")

    def change(text: str, draws: list[float]) -> str:
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            at = next_of(text, place, _WORD)
            if at >= 0:
                text = text[: at + 1] + _INVISIBLE[int(choice * len(_INVISIBLE))] + text[at + 1 :]
        return text

    return drawn(name, change, draws=2 * count)


def compatibility(name: str = "text", *, style: Style = "fullwidth") -> Perturbation:
    """Write Latin letters in a Unicode style that NFKC turns back."""
    if style not in _STARTS:
        raise ValueError(f"style must be one of {', '.join(_STARTS)}, got {style!r}")
    upper, lower = _STARTS[style]
    table = {ord("A") + at: upper + at for at in range(26)} | {ord("a") + at: lower + at for at in range(26)}
    return mapped(name, lambda text: text.translate(table))
