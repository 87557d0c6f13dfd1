"""Cache detection by answers seen before."""

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .questions import members_of, value_of

REMEMBERED = 20_000
"""Maximum number of answers whose digests are kept."""
_HIT = re.compile(r"\bhit\b|_hit\b", re.IGNORECASE)


class KnownAnswers:
    """Digests of past answers, shared by threads, to detect a cache by byte-equal answers."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._givers: OrderedDict[bytes, str] = OrderedDict()
        self._ids: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def meets(self, name: str, question: bytes, answer: bytes, id_: Any) -> tuple[bool, str]:
        """Record an answer; return if it came from a cache, and which other system gave it before
        (empty for none)."""
        found = hashlib.sha256(answer).digest()
        key = name, hashlib.sha256(question).digest()
        with self._lock:
            ids = self._ids.setdefault(name, set())
            if isinstance(id_, str) and len(ids) < 2:
                ids.add(id_)
            before = self._bodies.get(key)
            self._bodies[key] = found
            giver = self._givers.setdefault(found, name)
            for kept in (self._bodies, self._givers):
                if len(kept) > REMEMBERED:
                    kept.popitem(last=False)
            has_distinct_ids = len(ids) > 1 and isinstance(id_, str)
        other = giver if has_distinct_ids and giver != name else ""
        # One id for all answers proves nothing; without ids, equal bytes of sampled answers do.
        is_proof = has_distinct_ids or (id_ is None and _is_drawn(question))
        return bool(other) or (before == found and is_proof), other


def _is_drawn(question: bytes) -> bool:
    temperature = value_of(members_of(question), "temperature")
    return isinstance(temperature, int | float) and temperature > 0


def is_cache_hit(headers: Mapping[str, str]) -> bool:
    """True if the response headers report a cache hit.

    Examples
    --------
    >>> is_cache_hit({"x-cache": "HIT from edge"}), is_cache_hit({"age": "0"}), is_cache_hit({"age": "7"})
    (True, False, True)
    """
    for name, value in headers.items():
        lower = name.lower()
        if lower == "x-litellm-cache-key" or (lower == "age" and value.strip().lstrip("0").isdigit()):
            return True
        if "cache" in lower and _HIT.search(value):
            return True
    return False
