"""Typing errors: two neighbouring characters change places.

The commonest slip of a hand on a keyboard. Texts are cut and joined, never taken apart into lists of
characters: one swap costs the same few copies whatever the length, which is what makes it fast.
"""

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng

from .columns import text_column, texts_of


def typos(name: str = "text", *, count: int = 1) -> Perturbation:
    """Swap ``count`` pairs of neighbouring, different characters.

    Not applicable where there are none.

    References
    ----------
    CheckList's ``Perturb.add_typos``; unlike it, never swaps two equal characters.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}; it is the number of swaps in each text")

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        draws = rng.random((len(texts), count))
        return texts_of(with_typos(texts.tolist(), draws.tolist()))

    return text_column(name, change)


def with_typos(texts: Iterable[str], draws: Iterable[list[float]]) -> list[str]:
    """Texts with one swap for each of their draws.

    Unchanged where no two neighbours differ.

    Parameters
    ----------
    draws
        Numbers in [0, 1) for each text: where along the text each swap falls.

    Examples
    --------
    >>> with_typos(["kind", "eel", "ooo"], [[0.0], [0.0], [0.0]])
    ['iknd', 'ele', 'ooo']
    """
    return [_swapped(text, row) for text, row in zip(texts, draws, strict=True)]


def _swapped(text: str, draws: list[float]) -> str:
    changed = text
    for draw in draws:
        changed = _swap(changed, draw)
    # Two swaps can undo each other; then the first alone is the change.
    return changed if changed != text or len(draws) == 1 else _swap(text, draws[0])


def _swap(text: str, draw: float) -> str:
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
