"""Queue of mirrored requests: without journal, keys and models."""

import queue
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.monitor.http.limits import BodyBounds, ClientGone, Message, Receive, Scope, Send, read_body
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.responses import send_problem

WAITING = 1000
"""Waiting copies at most; further ones are counted as shed."""
BODIES = BodyBounds(10_485_760, 100, "a mirrored request")
WAIT_S = 0.5
_OWN = b"x-outrider-shadow"
_SECRETS = (b"authorization", b"cookie", b"proxy-authorization", b"x-api-key", b"api-key")
_NO_CONTENT: tuple[Message, ...] = (
    {"type": "http.response.start", "status": 204, "headers": []},
    {"type": "http.response.body", "body": b""},
)


class MirroredRequest(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class MirrorQueue:
    """ASGI application that takes copies of requests and answers 204 at once.

    ``own`` counts copies of a comparison's own questions.
    """

    received: int = 0
    own: int = 0
    shed: int = 0
    refused: int = 0
    _waiting: "queue.Queue[MirroredRequest]" = field(default_factory=lambda: queue.Queue(WAITING))

    def waiting(self) -> Iterator[list[MirroredRequest]]:
        while True:
            found = []
            until = time.monotonic() + WAIT_S
            try:
                found.append(self._waiting.get(timeout=WAIT_S))
                while time.monotonic() < until:
                    found.append(self._waiting.get_nowait())
            except queue.Empty:
                pass
            yield found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            body = await read_body(receive, headers, BODIES)
        except ClientGone:
            return
        except ProblemError as error:
            self.refused += 1
            await send_problem(send, error.problem)
            return
        if _OWN in headers:  # asked through the gateway that copies: taken, it would be asked for ever
            self.own += 1
        else:
            self._take(scope["path"], headers, body)
        for message in _NO_CONTENT:
            await send(message)

    def _take(self, path: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        kept = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers.items()
            if name not in _SECRETS
        }
        try:
            self._waiting.put_nowait(MirroredRequest(path, kept, body))
            self.received += 1
        except queue.Full:
            self.shed += 1
