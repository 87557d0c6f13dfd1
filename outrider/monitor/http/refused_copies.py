"""Refused copies of requests, remembered for the page, because a mirror discards the answers."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .limits import ASGIApp, Message, Receive, Scope, Send

_NO_KEY = (
    "without a valid key: let the proxy put Outrider's key into Authorization, or name the network of the "
    "proxy in intake.keyless_networks"
)
_ADVICE = {
    401: _NO_KEY,
    403: _NO_KEY,
    404: "at addresses that are not understood: mirror V2 infer, chat completions and completions alone",
    413: "with larger bodies than limits.body_bytes allows",
    421: "without the header x-outrider-mirror: 1 (or a Host that ends in -shadow): let the proxy set it",
}
_OTHER = "with contents that could not be taken: send one by hand, the answer says why"
_SHOWN_S = 600.0


@dataclass(frozen=True, slots=True)
class RefusedCopy:
    """Requests refused for one reason without ten quiet minutes; ``reason`` has words of ours alone."""

    count: int
    first_us: int
    last_us: int
    reason: str


class RefusedCopies:
    """Application that notes which copies the application behind it refuses; before the key check,
    keeping only counts and times."""

    def __init__(
        self,
        app: ASGIApp,
        is_copy: Callable[[str, str, Mapping[bytes, bytes]], bool],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._is_copy = is_copy
        self._now = now
        self._found: dict[str, RefusedCopy] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_watched(scope):
            await self._app(scope, receive, send)
            return

        async def look(message: Message) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                self._note(message["status"])
            await send(message)

        await self._app(scope, receive, look)

    def newest(self) -> list[RefusedCopy]:
        """Reasons of the last ten minutes, newest first."""
        since = (self._now() - _SHOWN_S) * 1e6
        found = [one for one in tuple(self._found.values()) if one.last_us >= since]
        return sorted(found, key=lambda one: -one.last_us)

    def _is_watched(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] == "/v1/records":
            return False
        return self._is_copy("POST", scope["path"], dict(scope["headers"]))

    def _note(self, status: int) -> None:
        if status == 429:  # the sender is asked to wait, and nothing is wrong with the request
            return
        reason, now_us = _ADVICE.get(status, _OTHER), int(self._now() * 1e6)
        before = self._found.get(reason)
        if before is None or now_us - before.last_us > _SHOWN_S * 1e6:
            before = RefusedCopy(0, now_us, now_us, reason)
        self._found[reason] = RefusedCopy(before.count + 1, before.first_us, now_us, reason)
