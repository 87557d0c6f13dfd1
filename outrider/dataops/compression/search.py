"""Search among compositions under a budget, single steps first."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def best_first(
    root: Thing,
    neighbours: Callable[[Thing], Iterable[Thing]],
    evaluate: Callable[[Thing], Found],
    score: Callable[[Found], float | None],
    *,
    budget: int,
) -> list[Found]:
    """Evaluate from a root outwards, next a neighbour of the best.

    Parameters
    ----------
    root
        Not evaluated itself: where the search begins.
    neighbours
        What has one step more, the most promising first; one that was reached before is not tried again.
    score
        Of what an evaluation found, higher is better; None where it could not be evaluated, which costs
        nothing of the budget and leads nowhere.

    Returns
    -------
    list
        What was found, in the order of the evaluations.

    References
    ----------
    Pearl, "Heuristics", 1984, section 2.3 (best-first search); the priority of a thing is its parent's score.

    Examples
    --------
    >>> def beside(n): return [n + 1, n * 2] if n else [1, 2, 3]
    >>> best_first(0, beside, lambda n: n, lambda n: float(n), budget=5)
    [1, 2, 3, 6, 7]
    """
    found: list[Found] = []
    seen = {root}
    waiting: list[tuple[float, int, Thing]] = []  # less the parent's score, order of arrival, thing

    def add(parent: float, things: Iterable[Thing]) -> None:
        for thing in things:
            if thing not in seen:
                seen.add(thing)
                waiting.append((-parent, len(seen), thing))

    add(float("inf"), neighbours(root))
    left = budget
    while waiting and left > 0:
        waiting.sort(key=lambda each: each[:2])
        _, _, thing = waiting.pop(0)
        made = evaluate(thing)
        found.append(made)
        worth = score(made)
        if worth is not None:
            left -= 1
            add(worth, neighbours(thing))
    return found
