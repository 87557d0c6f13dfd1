"""Limits of a key: records a second, bytes a day."""

import math
import time
from collections.abc import Callable

from outrider.dataops.access.store import KeyLimits

from .problem import Problem, ProblemError, problem

BURST_S = 10.0
"""Time whose records may come at once without a bound of the key's own."""
DAY_S = 86_400


class QuotaExceeded(ProblemError):  # noqa: N818 - reads as the state it is
    ...


class Meter:
    """Traffic of a key, checked once per request.

    A token bucket: a request passes while a token is left and takes one per accepted record, so a large
    one may go into debt. Days are UTC.
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
        most = self.limits.bytes_per_day
        if most is not None:
            if self._bytes_today() + size > most:
                raise self._too_many_bytes(most)
            self.day_bytes += size

    def spend(self, records: int) -> None:
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
