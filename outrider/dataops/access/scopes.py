"""Scopes of keys: rights, and which include which."""

from collections.abc import Iterable
from typing import Literal, get_args

Right = Literal["ingest", "read", "label", "review", "promote", "admin"]
SCOPES: tuple[Right, ...] = get_args(Right)
_LADDER: tuple[Right, ...] = ("read", "label", "review", "promote")
"""Each includes those before it."""


def rights_of(scopes: Iterable[Right]) -> frozenset[Right]:
    """``ingest`` includes nothing else, ``admin`` everything."""
    found: set[Right] = set()
    for scope in scopes:
        if scope == "admin":
            return frozenset(SCOPES)
        found |= {"ingest"} if scope == "ingest" else set(_LADDER[: _LADDER.index(scope) + 1])
    return frozenset(found)
