"""Integer codes and times of the open entities of a stream."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np

from .arrivals import NEVER, Ints
from .entity_rows import grown


class Entities:
    """Codes of entities, from 0, reused after an entity ends.

    Attributes
    ----------
    last, newest, reach, floor
        By code, in µs: receipt of the last record, latest ``ts``, latest ``ts`` that may move the watermark,
        and ``ts`` up to which all records were released.
    held
        By code: number of records held back.
    is_open
        By code: whether it is in use.
    """

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._names: list[Any] = []
        self._free: list[int] = []
        self.last = self.newest = self.reach = self.floor = self.held = np.zeros(0, dtype=np.int64)
        self.is_open = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def size(self) -> int:
        """Number of codes allocated so far, ended entities included."""
        return len(self._names)

    @property
    def codes(self) -> Ints:
        """Codes in use, ascending."""
        return np.flatnonzero(self.is_open)

    def find(self, names: list[Any]) -> Ints:
        """Code of each name, -1 for unknown names, shape (names,)."""
        return np.fromiter(map(self._codes.get, names, repeat(-1)), dtype=np.int64, count=len(names))

    def name(self, code: int) -> Any:
        """Name that has a code."""
        return self._names[code]

    def known(self, codes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """``last``, ``newest``, ``reach`` and ``floor`` of codes; arbitrary for -1."""
        safe = np.maximum(codes, 0)
        last, newest, reach, floor = (
            values[safe] if len(values) else np.zeros(len(safe), dtype=np.int64)
            for values in (self.last, self.newest, self.reach, self.floor)
        )
        return last, newest, reach, floor

    def add(self, names: Iterable[Any]) -> Ints:
        """Assign a code to each name; all names must be new."""
        given = []
        for name in names:
            if self._free:
                code = self._free.pop()
            else:
                code = len(self._names)
                self._names.append(None)
            self._names[code] = name
            self._codes[name] = code
            given.append(code)
        self.last, self.newest, self.reach, self.floor, self.held = (
            grown(values, self.size) for values in (self.last, self.newest, self.reach, self.floor, self.held)
        )
        self.is_open = np.append(self.is_open, np.zeros(len(self.last) - len(self.is_open), dtype=np.bool_))
        codes = np.array(given, dtype=np.int64)
        self.is_open[codes] = True
        return codes

    def end(self, codes: Ints) -> None:
        """Forget entities and free their codes."""
        self.is_open[codes] = False
        self.held[codes] = 0
        for code in codes.tolist():
            del self._codes[self._names[code]]
            self._names[code] = None
            self._free.append(code)

    def silence_longest(self, count: int) -> None:
        """Mark the ``count`` least recently seen entities to end next."""
        codes = self.codes
        self.last[codes[np.argsort(self.last[codes], kind="stable")[:count]]] = NEVER
