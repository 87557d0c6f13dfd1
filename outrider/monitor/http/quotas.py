"""KeyLimits of a key: records a second, bytes a day."""

import math
import time
from collections.abc import Callable

from outrider.dataops.access.store import KeyLimits

from .problem import Problem, ProblemError, problem

BURST_S = 10.0
"""Time whose records may come at once, where a key has no bound of its own."""
DAY_S = 86_400


class QuotaExceeded(ProblemError):  # noqa: N818 - reads as the state it is
    """A key has reached its limit for now."""


class Meter:
    """Traffic of a key, held to its limits once per request.

    A token bucket: a request is let in while a token is left, and takes one per record that was accepted. A
    large one may go into debt, which later ones wait for: over time a key sends no more than its rate.

    Parameters
    ----------
    name
        Of the key.
    limits
        At least one of them is given.
    now
        Monotonic clock, in seconds.
    epoch
        Wall clock, in seconds: a day is one of UTC.

    Examples
    --------
    >>> clock = [0.0]
    >>> meter = Meter("web", KeyLimits(records_per_s=10, burst_records=20), now=lambda: clock[0])
    >>> meter.admit(); meter.spend(40)
    >>> try: meter.admit()
    ... except QuotaExceeded as error: error.problem.headers
    {'retry-after': '3'}
    >>> clock[0] += 3
    >>> meter.admit()
    """

    def __init__(
        self,
        name: str,
        limits: KeyLimits,
        *,
        now: Callable[[], float] = time.monotonic,
        epoch: Callable[[], float] = time.time,
        day: int = 0,
        day_bytes: int = 0,
    ) -> None:
        self._name = name
        self.limits = limits
        self._now = now
        self._epoch = epoch
        self.day, self.day_bytes = day, day_bytes
        self._at = now()
        self._tokens = self._most

    def admit(self) -> None:
        """Let a request in, or raise QuotaExceeded (429)."""
        rate, most_bytes = self.limits.records_per_s, self.limits.bytes_per_day
        if rate is not None:
            now = self._now()
            self._tokens = min(self._most, self._tokens + rate * (now - self._at))
            self._at = now
            if self._tokens <= 0:
                wait_s = (min(1.0, self._most) - self._tokens) / rate
                raise self._refusal(f"{rate:g} records a second", "records_per_s", wait_s)
        if most_bytes is not None and self._bytes_today() >= most_bytes:
            raise self._too_many_bytes(most_bytes)

    def take(self, size: int) -> None:
        """Count the bytes of a body, or raise QuotaExceeded (429)."""
        most = self.limits.bytes_per_day
        if most is not None:
            if self._bytes_today() + size > most:
                raise self._too_many_bytes(most)
            self.day_bytes += size

    def spend(self, records: int) -> None:
        """Count records that were accepted."""
        self._tokens -= records

    @property
    def _most(self) -> float:
        rate, burst = self.limits.records_per_s, self.limits.burst_records
        return float(burst) if burst is not None else (rate or 0.0) * BURST_S

    def _bytes_today(self) -> int:
        today = int(self._epoch() // DAY_S)
        if today != self.day:
            self.day, self.day_bytes = today, 0
        return self.day_bytes

    def _too_many_bytes(self, most: int) -> QuotaExceeded:
        return self._refusal(f"{most} bytes a day (UTC)", "bytes_per_day", DAY_S - self._epoch() % DAY_S)

    def _refusal(self, limit: str, field: str, wait_s: float) -> QuotaExceeded:
        wait = str(max(1, math.ceil(wait_s)))
        detail = f"key {self._name!r} may send {limit}: send again in {wait} s"
        return QuotaExceeded(_problem(detail, field, self._name, wait))


def _problem(detail: str, field: str, key: str, wait: str) -> Problem:
    return problem(429, detail, headers={"retry-after": wait}, limit=field, key=key)
