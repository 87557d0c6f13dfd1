"""Bounds on questions a second, one for each server."""

import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


class RateLimit:
    """Rate limit that waits: questions are evenly spaced, whoever asks.

    Parameters
    ----------
    per_s
        Questions a second; None waits for nothing.

    Examples
    --------
    >>> waits = []
    >>> limit = RateLimit(2.0, clock=lambda: 0.0, sleep=waits.append)
    >>> for _ in range(3):
    ...     limit.wait()
    >>> waits
    [0.5, 1.0]
    """

    def __init__(
        self,
        per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._per_s = per_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, questions: int = 1) -> None:
        """Wait until so many more may be asked."""
        if self._per_s is None:
            return
        with self._lock:
            now = self._clock()
            due = max(now, self._next)
            self._next = due + questions / self._per_s
        if due > now:
            self._sleep(due - now)


class RateLimits:
    """Rate limits by server, shared by all askers of one."""

    def __init__(self) -> None:
        self._limits: dict[str, RateLimit] = {}
        self._lock = threading.Lock()

    def of(self, url: str, per_s: float | None) -> RateLimit:
        """Limit of the server of an address.

        Examples
        --------
        >>> limits = RateLimits()
        >>> limits.of("http://A/v1", 5.0) is limits.of("http://a:80/v2/models/m", 5.0)
        True
        """
        with self._lock:
            parts = urlsplit(url)
            place = f"{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"
            return self._limits.setdefault(place, RateLimit(per_s))
