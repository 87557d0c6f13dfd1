"""Stated versions that are counted by name; the others are one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from .minutes import DAY_US, minute_of

OTHERS = "__other__"
MOST_STATED = 50
"""Versions of a day that senders state and nobody registered."""


@dataclass(slots=True)
class VersionNames:
    """Versions that one model's counts name: registered ones and some stated.

    A stated version has a place for as long as it is met; where all are taken, new ones are counted under
    ``OTHERS``. Decided per block, in the order of the journal, so however this is cut.

    Examples
    --------
    >>> names = VersionNames(most=1)
    >>> names.register(["7"])
    >>> names.meet("a", 0), names.meet("b", 60_000_000), names.meet("7", 60_000_000)
    (True, False, True)
    >>> names.meet("b", 60_000_000 + DAY_US), "a" in names
    (True, False)
    """

    most: int = MOST_STATED
    kept_us: int = DAY_US
    """Time for which one that is not met keeps its place."""
    registered: frozenset[str] = frozenset()
    _met: dict[str, int] = field(default_factory=dict)
    """Minute in which each stated version was last met."""
    _full_until_us: int = -1
    """No place is given up before."""

    @classmethod
    def stored(
        cls, connection: Connection, model: str, *, table: str = "record_count", most: int = MOST_STATED,
        kept_us: int = DAY_US,
    ) -> "VersionNames":  # fmt: skip
        """Names as the counts of a table leave them, for a restart."""
        newest = connection.exec_driver_sql(
            f"SELECT max(minute_us) FROM {table} WHERE model = ?", (model,)
        ).scalar()
        query = f"SELECT version, max(minute_us) FROM {table} WHERE model = ? AND minute_us > ? GROUP BY 1"
        rows = connection.exec_driver_sql(query, (model, (newest or 0) - kept_us)).all()
        return cls(most, kept_us, _met={version: us for version, us in rows if version not in ("", OTHERS)})

    def register(self, versions: Iterable[str]) -> None:
        """Name these versions from now on, without a place for each."""
        registered = frozenset(versions)
        if registered != self.registered:
            self.registered, self._full_until_us = registered, -1
            self._met = {name: us for name, us in self._met.items() if name not in registered}

    def __contains__(self, version: object) -> bool:
        return version in self.registered or version in self._met

    def meet(self, version: str | None, minute_us: int) -> bool:
        """True for a version counted by name once met, and for None."""
        if not version or version in self.registered:
            return True
        last = self._met.get(version)
        if version == OTHERS or (last is None and not self._has_room(minute_us)):
            return False
        self._met[version] = minute_us if last is None else max(minute_us, last)
        # A clock that was set back: a place taken then is given up sooner.
        self._full_until_us = min(self._full_until_us, minute_us + self.kept_us)
        return True

    def _has_room(self, minute_us: int) -> bool:
        if len(self._met) < self.most:
            return True
        if minute_us >= self._full_until_us:
            self._met = {name: us for name, us in self._met.items() if minute_us - us < self.kept_us}
            self._full_until_us = min(self._met.values(), default=minute_us) + self.kept_us
        return len(self._met) < self.most

    def unnamed(
        self, versions: Sequence[str | None], seq: NDArray[np.int64], received: Mapping[int, int]
    ) -> list[bool] | None:
        """Mask of the records counted under ``OTHERS``; None for none.

        Parameters
        ----------
        versions, seq
            Version and journal block of each record, in order.
        received
            Receive time of each block in µs.
        """
        pairs = list(zip(seq.tolist(), versions, strict=True))
        minutes = {block: minute_of(us) for block, us in received.items()}
        folded = {pair for pair in dict.fromkeys(pairs) if not self.meet(pair[1], minutes[pair[0]])}
        return [pair in folded for pair in pairs] if folded else None
