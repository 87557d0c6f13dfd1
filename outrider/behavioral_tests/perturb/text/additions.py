"""Additions before or after a text: link, handle, emoji, phrase.

A blank text is not applicable.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn

Place: TypeAlias = Literal["start", "end", "either"]

_CODE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_EMOJI = ("📌", "🗓️", "📍", "💬", "🔁", "👀", "➡️", "🔹")


def url(name: str = "text", *, at: Place = "end") -> Perturbation:
    """Add a short link, ``https://t.co/`` and ten random characters (CheckList)."""
    return _added(name, at, lambda draws: f"https://t.co/{_code(draws, 10)}", draws=10)


def handle(name: str = "text", *, at: Place = "start") -> Perturbation:
    """Add a user name, ``@`` and six random characters (CheckList)."""
    return _added(name, at, lambda draws: f"@{_code(draws, 6)}", draws=6)


def emoji(name: str = "text", *, options: Sequence[str] = _EMOJI, at: Place = "end") -> Perturbation:
    """Add an emoji; the default ones are neutral."""
    return phrase(name, options, at=at)


def phrase(name: str = "text", phrases: str | Sequence[str] = (), *, at: Place = "end") -> Perturbation:
    """Add a phrase, one of several at random.

    Parameters
    ----------
    phrases
        One or several phrases; the caller chooses what they mean for the answer.
    at
        Place: before the text, after it, or either at random; separated by a space.

    Examples
    --------
    >>> praise = phrase("text", ["I would fly with you again.", "You are great."])
    """
    options = [phrases] if isinstance(phrases, str) else list(phrases)
    if not options or not all(option.strip() for option in options):
        raise ValueError(f"at least one phrase that is not blank expected, got {options!r}")
    return _added(name, at, lambda draws: options[int(draws[0] * len(options))], draws=1)


def _added(name: str, at: Place, make: Callable[[list[float]], str], *, draws: int) -> Perturbation:
    if at not in ("start", "end", "either"):
        raise ValueError(f"at must be start, end or either, got {at!r}")

    def change(text: str, numbers: list[float]) -> str:
        if not text.strip():
            return text
        made = make(numbers[1:])
        if at == "start" or (at == "either" and numbers[0] < 0.5):
            return f"{made} {text}"
        return f"{text} {made}"

    return drawn(name, change, draws=draws + 1)


def _code(draws: list[float], length: int) -> str:
    return "".join(_CODE[int(draw * len(_CODE))] for draw in draws[:length])
