"""Halving search for records that a model cannot take."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch.columns import from_values
from outrider.errors import ServerError

from .asks import Outputs, Poison

PLAIN = frozenset(map(np.dtype, ("f4", "f8", "i4", "i8", "?")))
MOST_ALONE = 16
"""Records far apart that raise while none is answered: then the model fails, not a record."""

Part = TypeVar("Part")


def is_model(poison: int, rows: int) -> bool:
    return poison > min(rows // 2, MOST_ALONE)


def detail_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def around_poison(
    call: Callable[[int, int], Part], rows: int
) -> tuple[list[tuple[int, int, Part]], list[Poison]]:
    """Results of ``call(start, stop)`` over all rows, and poisoned ones raising alone.

    Behind each poisoned row the search goes on as far away as it can: a model that fails altogether is told
    from one with bad neighbours after few calls. Then there is no part at all, and the reason is that of the
    first call: an endpoint has none for those that follow.

    Examples
    --------
    >>> parts, poison = around_poison(lambda start, stop: [12 // n for n in range(start, stop)], 4)
    >>> sorted(parts), [record.row for record in poison]
    ([(1, 2, [12]), (2, 4, [6, 4])], [0])
    """
    parts: list[tuple[int, int, Part]] = []
    poison: list[Poison] = []
    first = ""
    pending = deque([(0, rows)])
    while pending and (parts or not is_model(len(poison), rows)):
        start, stop = pending.pop()
        try:
            parts.append((start, stop, call(start, stop)))
        except ServerError as error:  # a server that does not answer has refused no record
            return [], [Poison(start, detail_of(error))]
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the record keeps the reason
            first = first or detail_of(error)
            if stop - start == 1:
                poison.append(Poison(start, detail_of(error)))
                pending.rotate(-1)
            else:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]
    if not parts:
        poison = [replace(record, detail=first) for record in poison]
    return parts, sorted(poison, key=lambda record: record.row)


def checked(outputs: Outputs, rows: int) -> Outputs:
    """Answers as storable arrays, one value per record and output; ValueError otherwise."""
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    for name, values in arrays.items():
        if not name or values.shape[:1] != (rows,):
            raise ValueError(f"outputs.{name}: first dimension {rows} expected, got shape {values.shape}")
        if values.dtype not in PLAIN or 0 in values.shape:
            from_values(values)
    return arrays


def joined(parts: Sequence[tuple[int, int, Outputs]], rows: int) -> Outputs:
    """Answers of ranges in row order; rows without one repeat another's."""
    names = parts[0][2].keys()
    if any(part.keys() != names for _, _, part in parts):
        raise ValueError("the model answers with other outputs from call to call")
    if len(parts) == 1 and parts[0][:2] == (0, rows):
        return parts[0][2]
    source = sources([(start, stop) for start, stop, _ in parts], rows)
    return {name: np.concatenate([part[name] for _, _, part in parts])[source] for name in names}


def sources(ranges: Sequence[tuple[int, int]], rows: int) -> NDArray[np.intp]:
    source = np.zeros(rows, dtype=np.intp)
    at = 0
    for start, stop in ranges:
        source[start:stop] = np.arange(at, at + stop - start)
        at += stop - start
    return source


def first_reason(poison: Sequence[Poison]) -> str:
    return poison[0].detail if poison else "raises on every record"


def answered_around(answer: Callable[[int, int], Any], rows: int) -> tuple[Outputs | None, list[Poison], str]:
    parts, poison = around_poison(lambda start, stop: checked(answer(start, stop), stop - start), rows)
    if not parts:
        return None, [], first_reason(poison)
    if len(parts) == 1 and parts[0][:2] == (0, rows):
        return parts[0][2], poison, ""
    try:
        return checked(joined(parts, rows), rows), poison, ""
    except Exception as error:  # noqa: BLE001 - answers that differ from call to call in name or shape
        return None, [], detail_of(error)
