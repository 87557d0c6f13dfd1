"""Answers given before, by which a cache is known."""

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .questions import members_of, value_of

REMEMBERED = 20_000
"""Answers whose digests are kept."""
_HIT = re.compile(r"\bhit\b|_hit\b", re.IGNORECASE)


class KnownAnswers:
    """Digests of all answers, to tell a cache by equal bytes."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._givers: OrderedDict[bytes, str] = OrderedDict()
        self._ids: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def meets(self, name: str, question: bytes, answer: bytes, id_: Any) -> tuple[bool, str]:
        """Test for an answer of a cache; then the other system that gave it before, with its id."""
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
            names_anew = len(ids) > 1 and isinstance(id_, str)
        other = giver if names_anew and giver != name else ""
        # One id for all answers says nothing of any; without an id, equal bytes of drawn answers do.
        tells = names_anew or (id_ is None and _is_drawn(question))
        return bool(other) or (before == found and tells), other


def _is_drawn(question: bytes) -> bool:
    temperature = value_of(members_of(question), "temperature")
    return isinstance(temperature, int | float) and temperature > 0


def is_cache_hit(headers: Mapping[str, str]) -> bool:
    """Test for an answer that a cache gave, by its headers.

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
