"""Cases of one template: chosen combinations, and columns computed on demand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .patterns import Fixed, Node, Text, compiled, rows_of

Picks = tuple[NDArray[Any], ...]
"""Index of each slot's value in its list: one integer array of shape (rows,) per slot."""
_MOST_ROWS = 10_000_000
_LARGEST = 2**62  # beyond it the number of a combination is not an int64


@dataclass(frozen=True, slots=True)
class Space:
    """Combinations of slot values, numbered with the last slot fastest.

    Parameters
    ----------
    sizes
        Number of values in each slot's list.
    earlier
        For each slot, the earlier slots that take values from the same list.
    """

    sizes: tuple[int, ...]
    earlier: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, sizes: Sequence[int], lists: Sequence[str]) -> "Space":
        """Combinations of slots with these list sizes and list names.

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
        """Number of free choices per slot, given earlier slots' choices."""
        return tuple(
            max(0, size - len(earlier)) for size, earlier in zip(self.sizes, self.earlier, strict=True)
        )

    @property
    def total(self) -> int:
        """Number of combinations."""
        return prod(self.radices)

    def picks(self, numbers: range) -> Picks:
        """Value indices of consecutive combinations."""
        if numbers and numbers[-1] >= _LARGEST:  # few by necessity: a range that long cannot be expanded
            digits = [self._digits(number) for number in numbers]
            return self._free_picks(
                [np.array(column, dtype=np.int64) for column in zip(*digits, strict=True)]
            )
        small = self.total < 2**31  # half the memory to move
        left = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int32 if small else np.int64)
        return self._free_picks(self._columns(left))

    def sample(self, rows: int, rng: np.random.Generator) -> Picks:
        """Value indices of ``rows`` distinct, equally likely combinations in random order."""
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
        """Value indices from free choices: d means the d-th value that no earlier slot of the list uses."""
        picks: list[NDArray[Any]] = []
        for digit, earlier in zip(digits, self.earlier, strict=True):
            pick = digit
            if earlier:
                for taken in np.sort(np.stack([picks[slot] for slot in earlier]), axis=0):
                    pick = pick + (pick >= taken)
            picks.append(pick)
        return tuple(picks)


Slots: TypeAlias = Mapping[str, Any]
"""Value of each slot in one case."""


@dataclass(frozen=True, slots=True)
class SlottedPattern:
    """Pattern with slots, and the values of each slot."""

    pattern: Any
    choices: Mapping[str, Sequence[Any]]
    """Values by slot name."""
    sources: Mapping[str, str]
    """List name by slot name: slots ``key`` and ``key1`` share the list ``key``."""
    labels: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    node: Node = field(init=False, repr=False, compare=False)
    space: Space = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "node", compiled(self.pattern))
        sizes = [len(values) for values in self.choices.values()]
        object.__setattr__(self, "space", Space.of(sizes, [self.sources[name] for name in self.choices]))


class TemplateRows:
    """Rows of one template. ``chosen`` holds combination numbers, or the value indices of its slots."""

    def __init__(self, template: SlottedPattern, chosen: range | Picks) -> None:
        self.template = template
        self.chosen = chosen

    @property
    def rows(self) -> int:
        """Number of cases."""
        if isinstance(self.chosen, range):
            return len(self.chosen)
        return len(self.chosen[0])

    @cached_property
    def picks(self) -> dict[str, NDArray[Any]]:
        """Index of each slot's value in its list, shape (rows,)."""
        chosen = self.chosen
        if isinstance(chosen, range):
            if len(chosen) > _MOST_ROWS:
                raise ValueError(
                    f"{len(chosen):,} combinations are too many to write out (at most {_MOST_ROWS:,}); "
                    "take .sample(rows) or .product(limit=…) of the template"
                )
            chosen = self.template.space.picks(chosen)
        return dict(zip(self.template.choices, chosen, strict=True))

    def take(self, rows: NDArray[np.intp]) -> "TemplateRows":
        """Selected rows, by index."""
        if not self.template.choices:  # no slot, no picks: all rows are one and the same
            return TemplateRows(self.template, range(len(rows)))
        return TemplateRows(self.template, tuple(column[rows] for column in self.picks.values()))

    def slice(self, rows: slice) -> "TemplateRows":
        """Selected rows, by slice. Combination numbers stay unexpanded."""
        if isinstance(self.chosen, range):
            return TemplateRows(self.template, self.chosen[rows])
        return TemplateRows(self.template, tuple(column[rows] for column in self.chosen))

    def texts(self) -> pa.Array:
        """Filled text of each row. The pattern must be a text."""
        node = self.template.node
        if isinstance(node, Text):
            return self.text(node)
        if isinstance(node, Fixed) and isinstance(node.value, str):
            return self._leaf(node.value)
        raise TypeError(
            f"texts expected, the pattern is a {type(self.template.pattern).__name__}; see values"
        )

    def text(self, text: Text) -> pa.Array:
        """One text of the pattern, filled for each row."""
        return text.column(self.template.choices, self.picks)

    def slot(self, name: str) -> NDArray[Any]:
        """Value of one slot in each row, shape (rows,), dtype object."""
        if name not in self.picks:
            raise KeyError(f"no slot {name!r}; there are {', '.join(self.picks) or 'none'}")
        return _taken(self.template.choices[name], self.picks[name])

    def slots(self) -> list[Slots]:
        """Slot values of each row."""
        columns = [self.slot(name).tolist() for name in self.picks]
        if not columns:
            return [{} for _ in range(self.rows)]
        return [dict(zip(self.picks, row, strict=True)) for row in zip(*columns, strict=True)]

    def values(self) -> list[Any]:
        """Filled pattern of each row."""
        return rows_of(self.template.node, self.rows, self.text)

    def labels(self) -> list[Any] | None:
        """Label of each row."""
        given = self.template.labels
        return None if given is None else self._each(given)

    def meta(self) -> dict[str, list[Any]]:
        """Notes of each row, by name."""
        return {name: self._each(given) for name, given in self.template.meta.items()}

    def keys(self) -> pa.Array:
        """Text key per row; equal for equal filled patterns."""
        leaves: list[pa.Array] = []
        form = _form(self.template.node, lambda text: leaves.append(self._leaf(text)))
        columns: list[Any] = [pa.scalar(form)]
        for leaf in leaves:
            columns += [pc.utf8_length(leaf).cast(pa.string()), leaf]
        joined = pc.binary_join_element_wise(*columns, "\0")
        return joined if isinstance(joined, pa.Array) else pa.repeat(joined, self.rows)

    def _leaf(self, text: Text | str) -> pa.Array:
        return self.text(text) if isinstance(text, Text) else pa.repeat(pa.scalar(text), self.rows)

    def _each(self, given: Any) -> list[Any]:
        if callable(given):
            return [given(slots) for slots in self.slots()]
        node = compiled(given)
        if isinstance(node, Text) and node.is_one_slot:
            (piece,) = node.pieces
            shown = [piece.value(value) for value in self.template.choices[piece.slot]]
            taken: list[Any] = _taken(shown, self.picks[piece.slot]).tolist()
            return taken
        return rows_of(node, self.rows, self.text)


def _taken(values: Sequence[Any], picks: NDArray[Any]) -> NDArray[Any]:
    if len(values) > len(picks):
        used, picks = np.unique(picks, return_inverse=True)
        values = [values[pick] for pick in used.tolist()]
    taken: NDArray[Any] = np.fromiter(values, dtype=object, count=len(values))[picks]
    return taken


def _form(node: Node, leaf: Callable[[Text | str], None]) -> str:
    """Structure around the texts, which are passed to ``leaf``."""
    if isinstance(node, Text):
        leaf(node)
        return "text"
    if isinstance(node, Fixed):
        if isinstance(node.value, str):
            leaf(node.value)
            return "text"
        return f"{type(node.value).__name__} {node.value!r}"
    if isinstance(node, dict):
        return f"{{{', '.join(f'{key!r}: {_form(part, leaf)}' for key, part in node.items())}}}"
    return f"{type(node).__name__}({', '.join(_form(part, leaf) for part in node)})"
