"""Places for bodies under way, shared among keys, so that a slow sender leaves the others theirs."""

from collections.abc import Mapping

from .limits import Message, Receive, Scope
from .problem import ProblemError, problem

STRANGERS = "requests without a key"
"""Holder of the bodies without an owner, as those of the login."""
KEYLESS = "networks without a key"
"""Holder of the bodies of the trusted networks, all together."""
_PLACE = "body_place"


class BodyPlaces:
    """Bodies under way of each key, from their first awaited byte to their last."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: dict[str, int] = {}

    def take(self, holder: str) -> None:
        taken = self._taken.get(holder, 0)
        if taken >= self.most:
            detail = (
                f"{holder}: {self.most} bodies are under way, and no more may be at once"
                " (connections.bodies_per_key); send again later, or each body at once"
            )
            raise ProblemError(problem(429, detail, headers={"retry-after": "1"}))
        self._taken[holder] = taken + 1

    def give(self, holder: str) -> None:
        left = self._taken[holder] - 1
        if left:
            self._taken[holder] = left
        else:
            del self._taken[holder]


class BodyPlace:
    """ASGI receive that holds a place while its body is under way; ``holder`` is set before the body
    is awaited."""

    __slots__ = ("_is_held", "_is_over", "_places", "_receive", "holder")

    def __init__(self, places: BodyPlaces, receive: Receive, scope: Scope) -> None:
        self.holder = STRANGERS
        self._places = places
        self._receive = receive
        self._is_held = self._is_over = False
        scope.setdefault("state", {})[_PLACE] = self

    async def __call__(self) -> Message:
        if not (self._is_held or self._is_over):
            self._places.take(self.holder)
            self._is_held = True
        message = await self._receive()
        if self._is_held and not message.get("more_body", False):
            self.give()
        return message

    def give(self) -> None:
        """Return a held place, and take none any more."""
        self._is_over = True
        if self._is_held:
            self._is_held = False
            self._places.give(self.holder)


def set_holder(scope: Scope, holder: str) -> None:
    place: BodyPlace | None = scope.get("state", {}).get(_PLACE)
    if place is not None:
        place.holder = holder


def holder_of(scope: Scope) -> str:
    place: BodyPlace | None = scope.get("state", {}).get(_PLACE)
    return "" if place is None else place.holder


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
