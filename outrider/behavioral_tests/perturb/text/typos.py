"""Typing errors: two neighbouring characters change places."""

from typing import Any

from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column

from .columns import texts_of


def typos(name: str = "text", *, count: int = 1) -> Perturbation:
    """Swap ``count`` pairs of neighbouring, different characters; not applicable where there are none.

    References
    ----------
    CheckList's ``Perturb.add_typos``; unlike it, never swaps two equal characters.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}; it is the number of swaps in each text")

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        draws = rng.random((len(texts), count))
        return texts_of(_swapped(text, row) for text, row in zip(texts, draws.tolist(), strict=True))

    return column(name, change)


def _swapped(text: str, draws: list[float]) -> str:
    characters = list(text)
    length = len(characters) - 1
    for draw in draws:
        start = int(draw * length)
        for offset in range(length):  # nearly always the first; walks on over pairs like "ee"
            at = (start + offset) % length
            if characters[at] != characters[at + 1]:
                characters[at], characters[at + 1] = characters[at + 1], characters[at]
                break
    changed = "".join(characters)
    # Two swaps can undo each other; then the first alone is the change.
    return changed if changed != text or len(draws) == 1 else _swapped(text, draws[:1])
