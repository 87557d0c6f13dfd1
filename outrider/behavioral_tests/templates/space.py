"""Each slot's pick in every numbered combination of a template.

Slots of one list never make the same pick. The first slot of a list of n values has n picks to choose from,
the second n - 1 (falling factorials), so every number below ``total`` is one allowed combination: sampling
rejects nothing and is exactly uniform, however many combinations the rule forbids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Picks = tuple[NDArray[Any], ...]
"""Position in its list of each slot's value, one array of integers of shape (rows,) per slot."""
_LARGEST = 2**62  # beyond it the number of a combination is not an int64


@dataclass(frozen=True, slots=True)
class Space:
    """Combinations in the order of nested loops, last slot fastest.

    Parameters
    ----------
    sizes
        Number of values of each slot's list.
    earlier
        Slots before each one that take their values from the same list.
    """

    sizes: tuple[int, ...]
    earlier: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, sizes: Sequence[int], lists: Sequence[str]) -> "Space":
        """Space of slots with these sizes and names of lists.

        Examples
        --------
        >>> space = Space.of([3, 3], ["name", "name"])
        >>> space.total, [column.tolist() for column in space.picks(range(6))]
        (6, [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        """
        earlier = tuple(
            tuple(before for before in range(slot) if lists[before] == lists[slot])
            for slot in range(len(lists))
        )
        return cls(tuple(sizes), earlier)

    @property
    def radices(self) -> tuple[int, ...]:
        """Free picks of each slot, after the picks of earlier slots."""
        return tuple(
            max(0, size - len(earlier)) for size, earlier in zip(self.sizes, self.earlier, strict=True)
        )

    @property
    def total(self) -> int:
        """Number of combinations."""
        return prod(self.radices)

    def picks(self, numbers: range) -> Picks:
        """Picks of consecutive combinations."""
        if numbers and numbers[-1] >= _LARGEST:  # few by necessity: a range that long cannot be expanded
            digits = [self._digits(number) for number in numbers]
            return self._free_picks(
                [np.array(column, dtype=np.int64) for column in zip(*digits, strict=True)]
            )
        small = self.total < 2**31  # half the memory to move
        left = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int32 if small else np.int64)
        return self._free_picks(self._columns(left))

    def sample(self, rows: int, rng: np.random.Generator) -> Picks:
        """Picks of ``rows`` different combinations, all equally likely, in random order."""
        if self.total < _LARGEST:
            numbers = rng.choice(self.total, rows, replace=False)
            return self._free_picks(self._columns(numbers))
        digits = np.zeros((0, len(self.sizes)), dtype=np.int64)
        while len(digits) < rows:  # repeats are redrawn; among so many there is hardly ever one
            more = rng.integers(0, self.radices, size=(rows - len(digits), len(self.sizes)))
            digits = np.concatenate([digits, more])
            _, first = np.unique(digits, axis=0, return_index=True)
            digits = digits[np.sort(first)]
        return self._free_picks(list(digits.T))

    def _digits(self, number: int) -> list[int]:
        digits: list[int] = []
        for radix in reversed(self.radices):
            number, digit = divmod(number, radix)
            digits.append(digit)
        return digits[::-1]

    def _columns(self, numbers: NDArray[Any]) -> list[NDArray[Any]]:
        columns: list[NDArray[Any]] = []
        for radix in reversed(self.radices):
            rest = numbers // max(radix, 1)
            columns.append(numbers - rest * radix)
            numbers = rest
        return columns[::-1]

    def _free_picks(self, digits: list[NDArray[Any]]) -> Picks:
        """Digit d becomes the d-th value that no earlier slot of the list has taken."""
        picks: list[NDArray[Any]] = []
        for digit, earlier in zip(digits, self.earlier, strict=True):
            pick = digit
            if earlier:
                for taken in np.sort(np.stack([picks[slot] for slot in earlier]), axis=0):
                    pick = pick + (pick >= taken)
            picks.append(pick)
        return tuple(picks)
