"""The gate before all routes: keys, sessions, scopes, names."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from outrider.dataops.access.store import JobTokenRow

from .body_places import KEYLESS, BodyPlace, BodyPlaces, has_body, set_holder
from .error_page import is_browser, send_error
from .hosts import HostNames, TrustedProxies
from .keyring import SESSION_S, Holder, Keyring, csrf_token, is_csrf_token, is_job_token
from .limits import ASGIApp, Message, Receive, Scope, Send
from .model_scopes import models_fault, reads_body
from .problem import Problem, ProblemError, problem
from .responses import send_problem
from .routes import RouteScopes, ScopedRoute
from .visitors import GOES_ON, Visitor, wrong_token

log = logging.getLogger("outrider.access")

COOKIE = "outrider"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = b"x-csrf-token"
LOGIN = "/login"
_OF_BROWSERS = (LOGIN, "/metrics")
"""Open to everybody under a name of ours; probes of a cluster ask by whatever name they like."""
_FORM_BYTES = 262_144
_PLACES = 256
_SAFE = ("GET", "HEAD", "OPTIONS")


class KeyGate:
    """ASGI middleware that asks every request for its key and scope.

    What lets a browser in also sets ``scope["state"]["csrf_token"]`` for the pages. A browser's unsafe
    request needs the CSRF token as a form field or a header. Changes are in the log before they are answered.

    Parameters
    ----------
    app
        What is guarded.
    keyring
        Who may pass.
    routes
        Which scope each route asks for.
    open_paths
        Further paths served to everybody.
    is_keyless
        Which other requests pass without the key.
    names
        What the service is called: browsers that call it otherwise are sent away.
    proxies
        Whose word on sender and TLS is taken.
    places
        Of bodies under way, for each key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        *,
        routes: RouteScopes,
        open_paths: frozenset[str] = frozenset(),
        is_keyless: Callable[[Scope], bool] = lambda _: False,
        names: HostNames | None = None,
        proxies: TrustedProxies | None = None,
        places: BodyPlaces | None = None,
    ) -> None:
        self._app = app
        self._places = places or BodyPlaces(_PLACES)
        self._keyring = keyring
        self._routes = routes
        self._open_paths = open_paths
        self._is_keyless = is_keyless
        self._names = names or HostNames([])
        self._proxies = proxies or TrustedProxies([])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 401, 403, 404, 405 or 421."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        route = self._routes.find(scope["method"], scope["path"], headers)
        holder = self._keyring.by_header(headers.get(b"authorization", b""))
        if not has_body(headers):
            await self._admit(scope, receive, send, headers, route, holder)
            return
        place = BodyPlace(self._places, receive, scope)
        try:
            await self._admit(scope, place, send, headers, route, holder)
        except ProblemError as error:  # of a body that the gate itself reads
            await send_problem(send, error.problem)
        finally:
            place.give()

    async def _admit(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        route: ScopedRoute | None,
        holder: Holder | None,
    ) -> None:
        if holder is None and is_job_token(headers.get(b"authorization", b"")):
            await self._of_job(scope, receive, send, headers, route)
            return
        if holder is None:
            await self._unkeyed(scope, receive, send, headers, route)
            return
        holder.is_used = True
        set_holder(scope, f"key {holder.name!r}")
        is_intake = route is not None and route.is_intake and route.missing(holder.rights) is None
        if is_intake and holder.models is None:
            scope.setdefault("state", {})["meter"] = holder.meter
            await self._app(scope, receive, send)
            return
        await self._keyed(scope, receive, send, Visitor(self._address(scope, headers), holder), route)

    async def _unkeyed(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        route: ScopedRoute | None,
    ) -> None:
        """Pass what needs no key, and browsers with a session."""
        path = scope["path"]
        is_keyless = self._is_keyless(scope)
        if not (is_keyless or path in self._open_paths or has_body(headers)):
            # a body that comes slowly would wait, too, and hold its connection
            route = route or await self._routes.when_there(scope["method"], path, headers)
        is_open = path in self._open_paths or (route is not None and not route.needs)
        if is_keyless:
            set_holder(scope, KEYLESS)
        if is_keyless or (is_open and path not in _OF_BROWSERS):
            await self._app(scope, receive, send)
            return
        if b"host" in headers and not self._names.has(headers[b"host"]):
            is_told = is_open or b"cookie" in headers or is_browser(headers)
            await send_problem(send, _misdirected(headers[b"host"]) if is_told else unauthorized())
            return
        if self._proxies.is_tls(scope, headers):
            scope["scheme"] = "https"
        cookie = _cookie(headers.get(b"cookie", b""))
        session = self._keyring.by_cookie(cookie) if cookie else None
        visitor = Visitor(self._address(scope, headers), session.holder if session else None, session)
        state = scope.setdefault("state", {})
        state["visitor"] = visitor
        if session is not None:
            session.is_used = session.holder.is_used = True
            set_holder(scope, f"key {session.holder.name!r}")
            state["csrf_token"] = csrf_token(cookie)
        if is_open:
            await self._app(scope, receive, send)
        elif session is None:
            await self._refuse(scope, receive, send, headers, unauthorized())
        elif scope["method"] in _SAFE:
            await self._keyed(scope, receive, send, visitor, route)
        else:
            await self._unsafe(scope, receive, send, headers, cookie, visitor, route)

    async def _of_job(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        route: ScopedRoute | None,
    ) -> None:
        """Let the token of a job through to the routes of its job, which look at the names themselves."""
        token = await asyncio.to_thread(self._keyring.job_token, headers[b"authorization"])
        if token is not None:
            route = route or await self._routes.when_there(scope["method"], scope["path"], headers)
        if route is None:
            await send_problem(send, self._nowhere(scope) if token else wrong_token("there is no such token"))
        elif (fault := _token_fault(token, route, self._keyring.now_us())) or token is None:
            await send_problem(send, wrong_token(fault))
        else:
            visitor = Visitor(self._address(scope, headers), token=token)
            set_holder(scope, f"job {token.job!r}")
            state = scope.setdefault("state", {})
            state["visitor"], state["meter"] = visitor, None
            is_change = scope["method"] not in _SAFE
            noting = self._noting(scope, send, visitor, route) if is_change else send
            await self._app(scope, receive, noting)

    async def _keyed(
        self, scope: Scope, receive: Receive, send: Send, visitor: Visitor, route: ScopedRoute | None
    ) -> None:
        """Hold a visitor to the scopes of its key, and note what it changes."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        holder = visitor.holder
        if holder is not None:
            route = route or await self._routes.when_there(scope["method"], scope["path"], headers)
        if holder is None:
            await self._refuse(scope, receive, send, headers, unauthorized())
        elif route is None:
            await send_error(scope, send, self._nowhere(scope))
        elif (missing := route.missing(holder.rights)) is not None:
            await self._refuse(scope, receive, send, headers, forbidden(holder.name, missing))
        else:
            if holder.models is not None:
                body = await _small_body(receive) if reads_body(route) else b""
                receive = _replay(body, receive) if reads_body(route) else receive
                query = scope.get("query_string", b"")
                if fault := models_fault(route, holder.models, path=scope["path"], query=query, body=body):
                    why = problem(403, f"key {holder.name!r} {fault}", key=holder.name)
                    await self._refuse(scope, receive, send, headers, why)
                    return
            state = scope.setdefault("state", {})
            state["visitor"], state["meter"], state["models"] = visitor, holder.meter, holder.models
            is_change = not route.is_intake and scope["method"] not in _SAFE
            noting = self._noting(scope, send, visitor, route) if is_change else send
            await self._app(scope, receive, noting)

    async def _unsafe(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        cookie: str,
        visitor: Visitor,
        route: ScopedRoute | None,
    ) -> None:
        token = headers.get(CSRF_HEADER, b"").decode("latin-1")
        if not token and headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
            body = await _small_body(receive)
            token = parse_qs(body.decode("utf-8", "replace")).get(CSRF_FIELD, [""])[0]
            receive = _replay(body, receive)
        if is_csrf_token(cookie, token):
            await self._keyed(scope, receive, send, visitor, route)
        else:
            why = problem(403, f"the form lacks its {CSRF_FIELD}: load the page again and repeat")
            await self._refuse(scope, receive, send, headers, why)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes], why: Problem
    ) -> None:
        """A problem; for a browser the page of the login, which says the same."""
        if not is_browser(headers):
            await send_problem(send, why)
            return
        if self._routes.find("GET", LOGIN, {}) is None:
            await send_error(scope, send, why)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "") if scope["method"] in _SAFE else "/"
        state: dict[str, Any] = {**scope.get("state", {}), "refusal": why, "wanted": wanted}
        page = {"method": "GET", "path": LOGIN, "raw_path": LOGIN.encode(), "query_string": b""}
        await self._app({**scope, **page, "state": state}, receive, send)

    def _nowhere(self, scope: Scope) -> Problem:
        methods = self._routes.methods(scope["path"])
        if methods:
            allowed = ", ".join(methods)
            return problem(405, f"{scope['path']} answers {allowed}", headers={"allow": allowed})
        if self._routes.is_loading:
            why = self._routes.load_fault or "queries and pages are still loading"
            return problem(503, why, headers={"retry-after": "1"})
        return problem(404, f"no route or object at {scope['path']}")

    def _noting(self, scope: Scope, send: Send, visitor: Visitor, route: ScopedRoute) -> Send:
        """Send that writes a change to the log before its answer.

        Refusals changed nothing, and what goes on was written when it began.
        """

        async def noting(message: Message) -> None:
            is_change = message["type"] == "http.response.start" and not 400 <= message["status"] < 500
            if is_change and not scope["state"].get(GOES_ON, False):
                await asyncio.to_thread(self._note, scope, visitor, route, message["status"])
            await send(message)

        return noting

    def _note(self, scope: Scope, visitor: Visitor, route: ScopedRoute, status: int) -> None:
        session = visitor.session.row.id if visitor.session else ""
        try:
            self._keyring.note_write(
                visitor.name,
                route.action,
                scope["path"],
                status=status,
                address=visitor.address,
                session=session,
            )
        except Exception:  # the change is made: an answer that denied it would be a lie
            log.exception("not in the log of writes: %s by %s", route.action, visitor.name)

    def _address(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        return self._proxies.sender(scope, headers)


def unauthorized() -> Problem:
    """The 401 of every guarded route."""
    return problem(
        401,
        "no valid key: send 'Authorization: Bearer <key>'; `outrider keys create` makes one, and that of the"
        " owner stands in the file 'key' of the data folder. For a browser, `outrider login` prints a link",
        headers={"www-authenticate": 'Bearer realm="outrider"'},
    )


def forbidden(key: str, missing: frozenset[str]) -> Problem:
    """The 403 of a key without the scope of a route."""
    needed = " or ".join(sorted(missing))
    return problem(403, f"key {key!r} lacks the scope {needed}", key=key, scope=needed)


def _token_fault(token: JobTokenRow | None, route: ScopedRoute, now_us: int) -> str:
    """Reason against a token; empty for none."""
    if token is None:
        return "there is no such token"
    if not route.jobs:
        return f"it is for {token.job} alone: its dataset, its champion, its progress and one version"
    if token.version is not None:  # its sender may have missed the answer
        return (
            "" if route.jobs == "ended" else f"version {token.version} was uploaded with it, and one is all"
        )
    if token.until_us <= now_us:
        ended = datetime.fromtimestamp(token.until_us / 1e6, UTC).isoformat(timespec="seconds")
        return f"it is late: the deadline of {token.job} was {ended}"
    if token.status != "waiting":
        return f"{token.job} is {token.status} and waits for no version"
    return ""


def session_cookie(session: str, *, secure: bool) -> str:
    """Set-Cookie header of a session; an empty one ends there."""
    flags = "; Secure" if secure else ""
    kept_s = SESSION_S if session else 0
    return f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={kept_s}{flags}"


def _misdirected(host: bytes) -> Problem:
    told = host[:200].decode("latin-1")
    return problem(
        421,
        f"this service is not called {told!r}: open it by its address, or add the name to server.names in"
        " outrider.toml",
    )


def _cookie(header: bytes) -> str:
    if not header:
        return ""
    try:
        morsel = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


async def _small_body(receive: Receive) -> bytes:
    body = b""
    while len(body) <= _FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
