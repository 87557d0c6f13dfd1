"""Reader of bodies before API and pages: bounded, decompressed, whole."""

from collections.abc import Callable
from dataclasses import dataclass

from .body_places import has_body, holder_of
from .limits import (
    ASGIApp,
    BodyBounds,
    ByteBudget,
    ClientGone,
    Message,
    Receive,
    Scope,
    Send,
    check_json,
    read_body,
)
from .problem import ProblemError
from .responses import send_problem

FORM = b"application/x-www-form-urlencoded"
_FORM_BOUNDS = BodyBounds(65_536, 100, "a form")
_REPLACED = (b"content-encoding", b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class WholeBodies:
    """ASGI middleware that passes on whole, plain bodies within bounds.

    ``bounds`` of a path are None where the route streams its body itself; ``max_parsed`` bounds the
    objects of a JSON body, ``budget`` the bodies in memory.
    """

    app: ASGIApp
    bounds: Callable[[str], BodyBounds | None]
    max_parsed: int
    budget: ByteBudget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"]) if scope["type"] == "http" else {}
        bounds = self.bounds(scope["path"]) if has_body(headers) else None
        if bounds is None:
            await self.app(scope, receive, send)
            return
        if headers.get(b"content-type", b"").startswith(FORM):
            bounds = _FORM_BOUNDS
        held = 0

        holder = holder_of(scope)

        def take(size: int) -> None:
            nonlocal held
            self.budget.take(size, holder)
            held += size

        try:
            try:
                body = await read_body(receive, headers, bounds, take=take)
                check_json(body, self.max_parsed)
            except ClientGone:
                return
            except ProblemError as error:
                await send_problem(send, error.problem)
                return
            plain = [(name, value) for name, value in scope["headers"] if name not in _REPLACED]
            plain.append((b"content-length", str(len(body)).encode()))
            await self.app({**scope, "headers": plain}, _replay(body, receive), send)
        finally:
            self.budget.give(held, holder)


def _replay(body: bytes, receive: Receive) -> Receive:
    rest = [body]

    async def replay() -> Message:
        if not rest:
            return await receive()
        return {"type": "http.request", "body": rest.pop(), "more_body": False}

    return replay
