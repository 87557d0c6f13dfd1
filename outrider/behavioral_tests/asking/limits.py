"""Limits on requests to a server: rate limit, and pauses after failures."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 3
FIRST_REST_S = 10.0
LONGEST_REST_S = 300.0


class RateLimit:
    """Rate limit in questions per second, with a burst; None is unlimited.

    Examples
    --------
    >>> waits = []
    >>> limit = RateLimit(2.0, clock=lambda: 0.0, sleep=waits.append)
    >>> for _ in range(3):
    ...     limit.wait()
    >>> waits
    [0.5, 1.0]
    >>> now = 0.0
    >>> limit = RateLimit(2.0, burst=2.0, clock=lambda: now)
    >>> limit.take(5), limit.take(5)
    (2, 0)
    >>> now = 1.5
    >>> limit.take(5)
    2
    """

    def __init__(
        self,
        per_s: float | None,
        *,
        burst: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._per_s, self._burst = per_s, burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._left, self._at = burst, clock()

    def wait(self, questions: int = 1) -> None:
        """Wait until ``questions`` more may be asked."""
        if self._per_s is None:
            return
        with self._lock:
            self._refill(self._per_s)
            wait_s = (1.0 - self._left) / self._per_s
            self._left -= questions
        if wait_s > 0:
            self._sleep(wait_s)

    def take(self, questions: int) -> int:
        """Number of ``questions`` allowed now; the rest is dropped."""
        if self._per_s is None:
            return questions
        with self._lock:
            self._refill(self._per_s)
            taken = min(questions, int(self._left))
            self._left -= taken
        return taken

    def _refill(self, per_s: float) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * per_s)
        self._at = now


@dataclass(slots=True)
class Breaker:
    """Circuit breaker: opens after consecutive failures, longer each time.

    Examples
    --------
    >>> now = 0.0
    >>> breaker = Breaker(clock=lambda: now)
    >>> for _ in range(3):
    ...     breaker.failed()
    >>> breaker.allows()
    False
    >>> now = 11.0
    >>> breaker.allows()
    True
    """

    clock: Callable[[], float] = time.monotonic
    failures: int = FAILURES
    first_rest_s: float = FIRST_REST_S
    longest_rest_s: float = LONGEST_REST_S
    _failures: int = 0
    _until: float = 0.0

    def allows(self) -> bool:
        """True if a request may be made now."""
        return self._failures < self.failures or self.clock() >= self._until

    def failed(self) -> None:
        """Record that a request failed."""
        self._failures += 1
        if self._failures >= self.failures:
            doublings = min(self._failures - self.failures, 64)  # thousands, after days, overflow
            self._until = self.clock() + min(self.first_rest_s * 2.0**doublings, self.longest_rest_s)

    def answered(self) -> None:
        """Record that a request was answered."""
        self._failures = 0
