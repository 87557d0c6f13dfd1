"""Cases of templates: text, slots, labels and notes as lazy columns."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .part import Slots, TemplateRows
from .patterns import Fixed, Text

_RECORD_PARTS = ("inputs", "id", "label")


class Filled(Sequence[Any]):
    """Cases of one or more templates, as a sequence of filled patterns.

    Made by :meth:`Template.product`, :meth:`Template.sample` and :meth:`Template.zip`; ``a + b`` joins two,
    ``a - b`` drops the cases of ``a`` whose filled pattern is one of ``b``.

    Examples
    --------
    >>> from outrider.behavioral_tests import template
    >>> all_pairs = template("{x}{y}", x=["a", "b"], y=["a", "b"]).product()
    >>> (all_pairs - template("{x}{x}", x=["a", "b"]).product()).values
    ('ab', 'ba')
    >>> all_pairs.slots[1], all_pairs.slot("y").tolist()
    ({'x': 'a', 'y': 'b'}, ['a', 'b', 'a', 'b'])
    """

    def __init__(self, parts: Iterable[TemplateRows]) -> None:
        self.parts = tuple(parts)
        self._values: tuple[Any, ...] | None = None
        self._labels: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> "Filled": ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return self._cut(row)
        return self._one(row).values()[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filled):
            return NotImplemented
        same = len(self) == len(other) and self.keys().equals(other.keys())
        return same and self.labels == other.labels and self.meta == other.meta

    __hash__ = None  # type: ignore[assignment]  # compared by content, which is too large to hash

    def __repr__(self) -> str:
        return f"Filled({len(self)} cases of {len(self.parts)} templates)"

    def __add__(self, other: "Filled") -> "Filled":
        """Cases of both, in order.

        Raises
        ------
        ValueError
            If only one of them has labels.
        """
        labelled = {part.template.labels is not None for part in self.parts + other.parts}
        if len(labelled) > 1:
            raise ValueError("both or neither of two sets of cases must have labels")
        return Filled(self.parts + other.parts)

    def __sub__(self, other: "Filled") -> "Filled":
        known = pc.is_in(self.keys(), value_set=other.keys())
        return self.take(np.flatnonzero(~known.to_numpy(zero_copy_only=False)))

    @property
    def values(self) -> tuple[Any, ...]:
        """Filled pattern of each case, as Python values."""
        if self._values is None:
            self._values = tuple(chain.from_iterable(part.values() for part in self.parts))
        return self._values

    @property
    def slots(self) -> Sequence[Slots]:
        """Slot values of each case, by name. Computed when accessed."""
        return _SlotRows(self)

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """Label of each case; None if the templates have none."""
        if self._labels is None and self.parts and self.parts[0].template.labels is not None:
            self._labels = tuple(chain.from_iterable(part.labels() or () for part in self.parts))
        return self._labels

    @property
    def meta(self) -> dict[str, tuple[Any, ...]]:
        """Notes of each case by name. None where a template lacks one."""
        noted = [part.meta() for part in self.parts]
        names = dict.fromkeys(chain.from_iterable(noted))
        return {
            name: tuple(
                chain.from_iterable(
                    columns.get(name) or [None] * part.rows
                    for columns, part in zip(noted, self.parts, strict=True)
                )
            )
            for name in names
        }

    def slot(self, name: str) -> NDArray[Any]:
        """Value of one slot in each case, shape (cases,), dtype object.

        Raises
        ------
        KeyError
            If a template has no slot of that name.
        """
        empty = np.empty(0, dtype=object)
        return np.concatenate([empty, *(part.slot(name) for part in self.parts)])

    def texts(self) -> pa.Array:
        """Filled texts as an Arrow column.

        Raises
        ------
        TypeError
            If a pattern is not a text.
        """
        columns = [part.texts() for part in self.parts]
        return columns[0] if len(columns) == 1 else pa.concat_arrays([pa.array([], pa.string()), *columns])

    def keys(self) -> pa.Array:
        """Text key per case; equal for equal filled patterns."""
        return pa.concat_arrays([pa.array([], pa.string()), *(part.keys() for part in self.parts)])

    def take(self, rows: NDArray[np.intp]) -> "Filled":
        """Selected cases, sorted by row number."""
        rows = np.sort(rows)
        ends = np.cumsum([part.rows for part in self.parts])
        bounds = np.searchsorted(rows, ends)
        starts = [0, *bounds[:-1].tolist()]
        return Filled(
            part.take(rows[start:stop] - (end - part.rows))
            for part, start, stop, end in zip(self.parts, starts, bounds, ends, strict=True)
        )

    def unique(self) -> "Filled":
        """First case of each distinct filled pattern.

        Examples
        --------
        >>> from outrider.behavioral_tests import template
        >>> template("{x}", x=["a", "b", "a"]).product().unique().values
        ('a', 'b')
        """
        codes = self.keys().dictionary_encode().indices.to_numpy()
        return self.take(np.unique(codes, return_index=True)[1])

    def without_repeats(self) -> "Filled":
        """Cases whose slots all show different texts (CheckList's ``remove_duplicates``).

        Examples
        --------
        >>> from outrider.behavioral_tests import template
        >>> template("{x} or {y}", x=["tea"], y=["tea", "coffee"]).product().without_repeats().values
        ('tea or coffee',)
        """
        masks = [_repeats(part) for part in self.parts]
        return self.take(np.flatnonzero(~np.concatenate([np.zeros(0, dtype=np.bool_), *masks])))

    def _one(self, row: int) -> TemplateRows:
        """Rows of the template that contains this case."""
        at = row + len(self) if row < 0 else row
        for part in self.parts:
            if 0 <= at < part.rows:
                return part.slice(slice(at, at + 1))
            at -= part.rows
        raise IndexError(f"case {row} of {len(self)}")

    def _cut(self, rows: slice) -> "Filled":
        if len(self.parts) == 1:
            return Filled([self.parts[0].slice(rows)])
        if (rows.step or 1) < 0:
            raise ValueError("cases of several templates cannot be taken backwards")
        return self.take(np.arange(len(self))[rows])


class _SlotRows(Sequence[Slots]):
    """Slot values of the cases, computed when accessed."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled

    def __len__(self) -> int:
        return len(self._filled)

    def __iter__(self) -> Iterator[Slots]:
        for part in self._filled.parts:
            yield from part.slots()

    @overload
    def __getitem__(self, row: int) -> Slots: ...
    @overload
    def __getitem__(self, row: slice) -> "_SlotRows": ...
    def __getitem__(self, row: int | slice) -> "Slots | _SlotRows":
        if isinstance(row, slice):
            return _SlotRows(self._filled[row])
        return self._filled._one(row).slots()[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as Filled


def _repeats(part: TemplateRows) -> NDArray[np.bool_]:
    shown = [
        np.array([str(value) for value in part.slot(name)], dtype=object) for name in part.template.choices
    ]
    repeats = np.zeros(part.rows, dtype=np.bool_)
    for one, other in combinations(shown, 2):
        repeats |= one == other
    return repeats


def input_columns(filled: Filled) -> dict[str, pa.Array] | None:
    """Arrow columns ``inputs.*`` of filled texts or dictionaries; None if nested.

    Examples
    --------
    >>> from outrider.behavioral_tests import template
    >>> filled = template({"ask": "Where is {x}?", "answer": "{x}"}, x=["Rome"]).product()
    >>> {name: column.to_pylist() for name, column in input_columns(filled).items()}
    {'inputs.ask': ['Where is Rome?'], 'inputs.answer': ['Rome']}
    """
    columns = [_of_part(part) for part in filled.parts]
    known = [each for each in columns if each is not None]
    if not known or len(known) < len(columns) or len({tuple(each) for each in known}) > 1:
        return None
    joined: dict[str, pa.Array] = {}
    for name in known[0]:
        pieces = [each[name] for each in known]
        if len({piece.type for piece in pieces}) > 1:
            return None
        joined[name] = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return joined


def _of_part(part: TemplateRows) -> dict[str, pa.Array] | None:
    node = part.template.node
    if isinstance(node, Text):
        return {"inputs.text": part.text(node)}
    if not isinstance(node, dict) or any(name in _RECORD_PARTS for name in node):
        return None
    columns = {f"inputs.{name}": _of_field(part, field) for name, field in node.items()}
    return None if any(column is None for column in columns.values()) else columns


def _of_field(part: TemplateRows, field: Any) -> pa.Array | None:
    if isinstance(field, Text):
        return part.text(field)
    if isinstance(field, Fixed) and isinstance(field.value, str | int | float | bool):
        return pa.repeat(pa.scalar(field.value), part.rows)
    return None
