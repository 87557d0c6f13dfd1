"""Circuit breaker with growing backoff for an endpoint."""

import time
from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 3
"""Requests in a row without an answer that open the breaker, unless it is said otherwise."""
FIRST_REST_S = 10.0
LONGEST_REST_S = 300.0


@dataclass(slots=True)
class Breaker:
    """Endpoint's circuit breaker: three failures open 10 s, then doubling.

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
    """How many in a row open it."""
    first_rest_s: float = FIRST_REST_S
    longest_rest_s: float = LONGEST_REST_S
    """``first_rest_s`` and ``longest_rest_s``: how long it then rests, and at most."""
    _failures: int = 0
    _until: float = 0.0

    def allows(self) -> bool:
        """True while a request may be made."""
        return self._failures < self.failures or self.clock() >= self._until

    def failed(self) -> None:
        """A request got no answer."""
        self._failures += 1
        if self._failures >= self.failures:
            rest_s = min(self.first_rest_s * 2.0 ** (self._failures - self.failures), self.longest_rest_s)
            self._until = self.clock() + rest_s

    def answered(self) -> None:
        """A request got its answer."""
        self._failures = 0
