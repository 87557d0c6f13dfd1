"""Pauses of the engine on a shared device after each pass."""

import time
from collections.abc import Callable


class Pacer:
    """Keeps passes to a share of the time.

    Behind a pass of t seconds the device stays free for t * (1 - duty) / duty, so the share holds over every
    stretch that is longer than a pass, and nothing unused is saved up: after an idle hour there is no burst.

    Parameters
    ----------
    duty
        Share of the time, in (0, 1].

    Raises
    ------
    ValueError
        If duty lies outside (0, 1].

    Examples
    --------
    >>> now = 10.0
    >>> pacer = Pacer(0.25, clock=lambda: now)
    >>> pacer.ran(0.01)
    >>> round(pacer.pause_s(), 3)
    0.03
    """

    def __init__(self, duty: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        if not 0.0 < duty <= 1.0:
            raise ValueError(f"duty: a share of the time in (0, 1] expected, got {duty}")
        self._rest = (1.0 - duty) / duty
        self._clock = clock
        self._free_at = 0.0

    def ran(self, seconds: float) -> None:
        if self._rest:
            self._free_at = self._clock() + seconds * self._rest

    def pause_s(self) -> float:
        return max(0.0, self._free_at - self._clock()) if self._rest else 0.0
