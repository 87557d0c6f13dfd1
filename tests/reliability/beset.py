"""A service under attack beside one that is left alone: both answer, and nothing acknowledged is lost."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import PATIENCE_S

from .running import Running, running

MIB = 1_048_576
GROWTH = 512 * MIB
CLOSED = (ConnectionError, BrokenPipeError)


@dataclass
class Pulse:
    """How long a service took to answer, asked again and again."""

    service: Running
    slowest_s: float = 0.0
    statuses: set[int] = field(default_factory=set)

    def ask(self) -> None:
        """Ask once."""
        since = time.perf_counter()
        self.statuses.add(self.service.get("/healthz"))
        self.slowest_s = max(self.slowest_s, time.perf_counter() - since)


@dataclass
class Pair:
    """The service that is attacked, and its control."""

    attacked: Running
    control: Running
    numbers: Iterator[int] = field(default_factory=itertools.count)
    acknowledged: int = 0

    def second_client(self) -> None:
        """Send a record as somebody who is no attacker; it must be taken."""
        assert self.attacked.send(f"r{next(self.numbers)}") == 202
        self.acknowledged += 1

    @contextlib.contextmanager
    def attack(self, most: int = GROWTH) -> Iterator[Running]:
        """Whatever happens meanwhile, the attacked answers like its control and stays within ``most``."""
        pulses = Pulse(self.attacked), Pulse(self.control)
        stop = threading.Event()

        def ask() -> None:
            while True:
                for pulse in pulses:
                    pulse.ask()
                if stop.wait(0.01):
                    return

        before = self.attacked.resident_bytes
        self.attacked.forget_most()
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield self.attacked
            self.second_client()
        finally:
            stop.set()
            asking.join(PATIENCE_S)
        attacked, control = pulses
        grown = self.attacked.most_bytes - before
        told = f"{grown / MIB:.0f} MiB, {attacked.slowest_s:.2f} s, control {control.slowest_s:.2f} s"
        assert attacked.statuses == control.statuses == {200}
        assert grown < most, told
        # What the machine does to one it does to the other; a stall of the loop is longer.
        assert attacked.slowest_s < 2.0 + 5 * control.slowest_s, told
        assert self.attacked.stored() == self.acknowledged


@contextlib.contextmanager
def pair(folder: Path, config: str, *, is_whole: bool = False) -> Iterator[Pair]:
    """Two services of one configuration."""
    with (
        running(folder / "attacked", config, is_whole=is_whole) as attacked,
        running(folder / "control", config, is_whole=is_whole) as control,
    ):
        found = Pair(attacked, control)
        found.second_client()  # all that is loaded once is loaded
        yield found
