"""Bounds on connections: bytes and time of a header, pace, number.

These hold before a key is checked; uvicorn's protocol has none. Times are checked once a second for all
connections.
"""

import asyncio
import ipaddress
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from outrider.monitor.http.limits import ASGIApp, Receive, Scope, Send
from outrider.monitor.http.problem import CONTENT_TYPE, problem
from outrider.monitor.http.responses import send_problem
from outrider.monitor.settings.sections import ConnectionSettings

EXTRA = 32
"""Connections beyond the bound, for health checks."""
STATUS_PATHS = frozenset(("/healthz", "/readyz", "/metrics"))
_OTHER_DESCRIPTORS = 256
"""Files and sockets of the process besides its connections."""
_LEAST = 64
_PIPELINED = 32
_SWEEP_S = 1.0
_LATE_SWEEPS = 3
_LINGER_S = 2.0
_LET_FALL_BYTES = 1_048_576
"""Largest unread remainder of a refused sender that still writes."""
_FRAMING = 8
"""Bytes of chunked framing for every byte of body: one-byte chunks need five."""

Cause: TypeAlias = Literal["header", "framing", "slow", "crowded"]
"""Reason for closing: a bad, long or late header, a bad body, a slow pace, too many connections."""


def connections_that_fit(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + EXTRA + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(_LEAST, min(wanted, wanted if soft == resource.RLIM_INFINITY else soft - needed + wanted))


@dataclass(slots=True)
class _Pool:
    members: dict["BoundedProtocol", None] = field(default_factory=dict)
    new: dict["BoundedProtocol", None] = field(default_factory=dict)
    """Connections without a complete header so far."""

    def add(self, one: "BoundedProtocol") -> None:
        self.members[one] = self.new[one] = None

    def remove(self, one: "BoundedProtocol") -> None:
        self.members.pop(one, None)
        self.new.pop(one, None)

    def longest_waiting(self) -> "BoundedProtocol | None":
        if self.new:
            return next(iter(self.new))
        idle = (one for one in self.members if one.is_waiting)
        return min(idle, key=lambda one: one.waits_since, default=None)


class Connections:
    """Open connections, their bounds, and the sweep through their times.

    ``closed`` is called with the reason.
    """

    def __init__(
        self, limits: ConnectionSettings, *, total: int, closed: Callable[[Cause], None] = lambda _: None
    ) -> None:
        self.limits = limits
        self.closed = closed
        self.now = 0.0
        """Time of the last sweep or arrival; coarse, so that it costs nothing."""
        self._total = total
        self._pool = _Pool()
        self._extra = _Pool()
        self._of_address: dict[str, _Pool] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._pool.members) + len(self._extra.members)

    def protocol(self) -> type[HttpToolsProtocol]:
        return type("Bounded", (BoundedProtocol,), {"register": self})

    def admit(self, one: "BoundedProtocol") -> bool:
        """Count a new connection in; at the bound a waiting one gives way, and False turns it away."""
        self.now = one.loop.time()
        if self._timer is None:
            self._timer = one.loop.call_later(_SWEEP_S, self._sweep, one.loop)
        own = self._of_address.get(one.address)
        if own is not None and len(own.members) >= self.limits.per_address:
            one.is_extra = not self._make_room(own)
        elif len(self._pool.members) >= self._total:
            one.is_extra = not self._make_room(self._pool)
        if not one.is_extra:
            self._pool.add(one)
            self._of_address.setdefault(one.address, _Pool()).add(one)
            return True
        if len(self._extra.members) >= EXTRA and not self._make_room(self._extra):
            self.closed("crowded")
            return False
        self._extra.add(one)
        return True

    def has_asked(self, one: "BoundedProtocol") -> None:
        for pool in self._pools(one):
            pool.new.pop(one, None)

    def remove(self, one: "BoundedProtocol") -> None:
        for pool in self._pools(one):
            pool.remove(one)
        own = self._of_address.get(one.address)
        if own is not None and not own.members:
            del self._of_address[one.address]

    def _pools(self, one: "BoundedProtocol") -> list[_Pool]:
        if one.is_extra:
            return [self._extra]
        return [self._pool, self._of_address.get(one.address, self._pool)]

    def _make_room(self, pool: _Pool) -> bool:
        oldest = pool.longest_waiting()
        if oldest is None:
            return False
        self.closed("crowded")
        self.remove(oldest)
        oldest.transport.abort()
        return True

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        before, self.now = self.now, loop.time()
        self._timer = loop.call_later(_SWEEP_S, self._sweep, loop) if len(self) else None
        if self.now - before > _LATE_SWEEPS * _SWEEP_S:
            return  # this process did not run: what its senders sent meanwhile has still to be read
        for one in [*self._pool.members, *self._extra.members]:
            one.check_times(self.now)


class BoundedProtocol(HttpToolsProtocol):
    register: ClassVar[Connections]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.address = ""
        self.is_extra = False
        self._running: RequestResponseCycle | None = None
        self._has_asked = False
        self._refusal: tuple[int, str] | None = None
        self._fed = 0
        self._heads = 0
        self._header_since: float | None = None
        """None without a header under way."""
        self._header_bytes = 0
        self._body_since: float | None = None
        """None without a body under way."""
        self._body_bytes = self._body_fed = 0
        self._idle_since = 0.0
        self._unread: tuple[float, int] | None = None
        """Time since which an answer waits to be read, and its bytes then."""
        self._refused_at: float | None = None
        self._let_fall = 0

    @property
    def is_waiting(self) -> bool:
        return not self.pipeline and (self._running is None or self._running.response_complete)

    @property
    def waits_since(self) -> float:
        return self._idle_since if self._header_since is None else self._header_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.address = _address(self.client)
        if not self.register.admit(self):
            transport.abort()
            return
        self._header_since = self._idle_since = self.register.now
        if self.is_extra:
            self.app = _status_only(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self.register.remove(self)
        if self._running is not None and not self._running.response_complete:
            _drop(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused_at is not None:
            self._let_fall += len(data)
            if self._let_fall > _LET_FALL_BYTES:
                self.flow.pause_reading()
            return
        self._fed = size = len(data)
        heads, is_between = self._heads, self._body_since is None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # what follows would be another protocol
        except httptools.HttpParserError:
            status, detail = self._refusal or (400, "not a valid HTTP request")
            self._refuse(status, detail)
            return
        if heads != self._heads:  # what belongs to which message is not known, and it is one read at most
            return
        if self._header_since is not None:
            self._header_bytes += size if is_between else 0
            self._check_header()
        elif self._body_since is not None:
            self._body_fed += size
            self._check_framing()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _PIPELINED:
            self._stop(400, f"more than {_PIPELINED} requests at once on one connection")
        super().on_message_begin()
        self._header_bytes = 0
        if self._header_since is None:
            self._header_since = self.register.now

    def on_headers_complete(self) -> None:
        limits = self.register.limits
        size = self._header_bytes + self._fed
        if size > limits.header_bytes:  # with what else came at once
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > limits.header_bytes or len(self.headers) > limits.header_fields:
            self._stop(*self._too_large())
        super().on_headers_complete()
        self.headers = []  # trailers come next: they are no headers of this request
        self._heads += 1
        self._header_since = None
        self._body_since = self.register.now
        self._body_bytes = self._body_fed = 0
        if not self._has_asked:
            self._has_asked = True
            self.register.has_asked(self)
        if self.is_extra:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # As uvicorn does it, without its timer per answer.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._idle_since = self.register.now
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def check_times(self, now: float) -> None:
        limits = self.register.limits
        if self._is_unread(now):
            self._end("slow")
        elif self.transport.is_closing():
            return
        elif self._refused_at is not None:
            if now - self._refused_at > _LINGER_S and self.is_waiting:
                self.transport.abort()
        elif self._header_since is not None:
            if now - self._header_since > limits.header_s:
                self._end_header()
        elif self.is_waiting:
            # A body that nobody wants any more is let fall for a while, so that its sender reads the answer.
            if now - self._idle_since > (limits.idle_s if self._body_since is None else limits.header_s):
                self.transport.close()
        elif self._body_since is not None:
            self._check_pace(now, self._body_since)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _is_unread(self, now: float) -> bool:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
            return False
        if self._unread is None or left > self._unread[1]:
            self._unread = now, left
            return False
        since, before = self._unread
        limits = self.register.limits
        return now - since > limits.idle_s + (before - left) / limits.bytes_per_s

    def _end_header(self) -> None:
        if not self._header_bytes:  # it never said a thing
            self._end("header")
        else:
            limit = self.register.limits.header_s
            self._refuse(408, f"the header was not complete after {limit:g} s (connections.header_s)")

    def _check_pace(self, now: float, since: float) -> None:
        limits = self.register.limits
        if self.flow.read_paused:  # we are slow, not the sender
            self._body_since = since + _SWEEP_S
        elif now - since > limits.body_s + self._body_bytes / limits.bytes_per_s:
            detail = (
                f"{self._body_bytes} bytes of the body came in {now - since:.0f} s; all of it expected in"
                f" {limits.body_s:g} s, or {limits.bytes_per_s} bytes a second (connections.body_s)"
            )
            self._refuse(408, detail)

    def _check_header(self) -> None:
        limits = self.register.limits
        if self._header_bytes > limits.header_bytes or len(self.headers) > limits.header_fields:
            self._refuse(*self._too_large())

    def _check_framing(self) -> None:
        """Bound chunk extensions and trailers, which are part of no body."""
        limits = self.register.limits
        framing = self._body_fed - self._body_bytes
        if framing > limits.header_bytes + _FRAMING * self._body_bytes:
            self._refuse(400, f"{framing} bytes of chunk extensions and trailers")
        elif len(self.headers) > limits.header_fields:
            self._refuse(431, f"more than {limits.header_fields} trailers (connections.header_fields)")

    def _too_large(self) -> tuple[int, str]:
        limits = self.register.limits
        return 431, (
            f"a header of at most {limits.header_bytes} bytes and {limits.header_fields} fields expected"
            " (connections.header_bytes, connections.header_fields)"
        )

    def _stop(self, status: int, detail: str) -> None:
        """Stop parsing; `data_received` refuses."""
        self._refusal = status, detail
        raise ValueError(detail)

    def _refuse(self, status: int, detail: str) -> None:
        """Take nothing more of this connection; earlier requests get their answers first."""
        self.register.closed("header" if self._body_since is None else "slow" if status == 408 else "framing")
        self._refused_at = self.register.now
        if self._body_since is not None and self.pipeline:
            self.pipeline.popleft()  # its body will never be complete
        last = self.pipeline[0][0] if self.pipeline else self._running
        if last is None or last.response_complete:
            self._answer(status, detail)
        elif last is self.cycle and self._body_since is not None:
            _drop(last)
            if last.response_started:
                self.transport.abort()
            else:
                self._answer(status, detail)
        else:
            last.keep_alive = False

    def _answer(self, status: int, detail: str) -> None:
        body = problem(status, detail).body()
        head = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (
            CONTENT_TYPE,
            len(body),
        )
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.write_eof()

    def _end(self, cause: Cause) -> None:
        self.register.closed(cause)
        if self._running is not None:
            _drop(self._running)
        self.transport.abort()


def _drop(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True
    cycle.message_event.set()


def _status_only(app: Any) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in STATUS_PATHS:
            await app(scope, receive, send)
        else:
            detail = "too many connections (connections.total, connections.per_address): send again later"
            await send_problem(send, problem(503, detail, headers={"retry-after": "1"}))

    return answer


def _address(client: tuple[str, int] | None) -> str:
    """Address of a client; of IPv6 the network, which is as much as one customer has."""
    if client is None or ":" not in client[0]:
        return client[0] if client else ""
    try:
        address = ipaddress.IPv6Address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
