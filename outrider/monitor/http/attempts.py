"""Attempts to log in: failures of an address are bounded."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

MOST = 10
WITHIN_S = 60.0
MOST_ADDRESSES = 4096
_HOST_BITS = 64


class LoginAttempts:
    """Failures to log in, per address or network of an IPv6 site; ``now`` is a monotonic clock in seconds."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, address: str) -> int:
        recent = self._recent(address)
        return ceil(recent[-MOST] + WITHIN_S - self._now()) if len(recent) >= MOST else 0

    def failed(self, address: str) -> None:
        site = _site(address)
        with self._lock:
            self._failures[site] = [*self._recent(address), self._now()][-MOST:]
            self._failures.move_to_end(site)
            if len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = self._now() - WITHIN_S
        return [at for at in self._failures.get(_site(address), []) if at > since]


def _site(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(int(found) >> _HOST_BITS)
    return address
