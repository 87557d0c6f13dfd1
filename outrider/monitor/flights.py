"""Asks under way: who waits for which answers."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .engine.asks import AGAIN, Answer, Ask, Outputs, Poison, Priority
from .engines import Ended, Engines, Loaded


@dataclass(slots=True)
class Flight:
    """One ask under way.

    Attributes
    ----------
    answers
        By version, as they come.
    """

    number: int
    versions: tuple[str, ...]
    again: bool
    answers: dict[str, Answer] = field(default_factory=dict)

    def has(self, version: str) -> bool:
        """Whether a version has answered; the first one of an ask twice, where that was wanted."""
        is_first = version == self.versions[0]
        return version in self.answers and (not (self.again and is_first) or AGAIN in self.answers)

    @property
    def nbytes(self) -> int:
        """Bytes of the answers so far."""
        return sum(
            values.nbytes
            for answer in self.answers.values()
            if answer.outputs is not None
            for values in answer.outputs.values()
        )


class Flights:
    """All asks of one worker."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self._numbers = itertools.count(1)
        self._under_way: dict[int, Flight] = {}

    def begin(
        self,
        versions: Sequence[str],
        batch: Batch,
        *,
        priority: Priority = Priority.LIVE,
        again: bool = False,
    ) -> Flight:
        """Ask versions of one group about records, of which there is at least one."""
        flight = Flight(next(self._numbers), tuple(versions), again)
        self._under_way[flight.number] = flight
        self.engines.submit(Ask(flight.number, batch.model, flight.versions, batch, priority, again))
        return flight

    def forget(self, flight: Flight) -> None:
        """Nobody waits for it any more."""
        self._under_way.pop(flight.number, None)

    def take_in(self) -> list[Loaded | Ended]:
        """Give the answers that have come to who waits for them; what else has come."""
        others: list[Loaded | Ended] = []
        for one in self.engines.news():
            if not isinstance(one, Answer):
                others.append(one)
            elif (flight := self._under_way.get(one.number)) is not None:
                flight.answers[one.version] = one
                if all(map(flight.has, flight.versions)):
                    del self._under_way[one.number]
        return others


@dataclass(frozen=True, slots=True)
class Said:
    """What a version answers to the records of a batch.

    Attributes
    ----------
    poison
        Records that it cannot take: what stands in their rows is never read.
    again
        The same in another batch shape, where that was asked for.
    seconds
        Time of the passes that these answers took.
    """

    outputs: Outputs | None = None
    poison: tuple[Poison, ...] = ()
    again: Outputs | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, flight: Flight | None, version: str | None) -> "Said":
        """What a flight brought of a version; nothing where there was none."""
        if flight is None or version is None:
            return NOTHING_SAID
        answer, again = flight.answers[version], None
        if flight.again and version == flight.versions[0]:
            second = flight.answers[AGAIN]
            again = None if answer.poison or second.poison else second.outputs
        poison = answer.poison if answer.outputs is not None else ()
        return cls(answer.outputs, poison, again, answer.seconds)

    def take(self, rows: NDArray[np.intp]) -> "Said":
        """What it says of these records: of each at most once, in their order."""
        if self.outputs is None or not len(rows):
            return NOTHING_SAID
        every = len(next(iter(self.outputs.values()), rows))
        if len(rows) == every:
            return self  # all of them
        detail = {poison.row: poison.detail for poison in self.poison}
        poison = [Poison(at, detail[row]) for at, row in enumerate(rows.tolist()) if row in detail]
        again = None if self.again is None else {name: values[rows] for name, values in self.again.items()}
        outputs = {name: values[rows] for name, values in self.outputs.items()}
        return Said(outputs, tuple(poison), again, self.seconds * len(rows) / every)


NOTHING_SAID = Said()
