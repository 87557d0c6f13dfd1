"""Authentication: one generated key, one-time browser links, CSRF tokens."""

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs

from outrider.errors import ConfigError

from .limits import ASGIApp, Message, Receive, Scope, Send
from .problem import Problem, problem
from .responses import send_problem

COOKIE = "outrider"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = b"x-csrf-token"
LINK_S = 900
SESSION_S = 7 * 24 * 3600
_FORM_BYTES = 262_144
_SAFE = ("GET", "HEAD", "OPTIONS")


def load_or_create_key(path: Path) -> str:
    """Read, or generate, the key file, owner-readable only (mode 0600).

    Raises
    ------
    ConfigError
        If the file is empty, or others may read it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("or_" + secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: its key counts
            os.link(draft, path)
        draft.unlink()
    key = path.read_text().strip()
    if not key:
        raise ConfigError(f"{path} is empty: delete it to have a new key generated")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError(f"{path} can be read by others: chmod 600 {path}")
    return key


class Keyring:
    """Keys, one-time links, sessions and CSRF tokens, from one key.

    Sessions are signed, not stored: they survive a restart, and a new key ends them all.

    Parameters
    ----------
    key
        The API key.
    now
        Clock, seconds since the epoch.

    Examples
    --------
    >>> keyring = Keyring("or_secret")
    >>> keyring.is_key("or_secret"), keyring.is_key("or_guess")
    (True, False)
    >>> session = keyring.open_session(keyring.make_link_token())
    >>> keyring.is_session(session)
    True
    """

    def __init__(self, key: str, *, now: Callable[[], float] = time.time) -> None:
        self._key = key.encode()
        self._now = now
        self._used: dict[str, float] = {}

    def is_key(self, candidate: str) -> bool:
        """Test for the API key, compared in constant time."""
        return hmac.compare_digest(candidate.encode("utf-8", "replace"), self._key)

    def make_link_token(self) -> str:
        """Token for ``/login?token=…``, by whoever has the key: once, 15 minutes."""
        return self._sign("link", int(self._now()) + LINK_S)

    def open_session(self, token: str) -> str | None:
        """Exchange a fresh link token for the session cookie's value, or None."""
        if not self._is_signed("link", token) or token in self._used:
            return None
        now = self._now()
        self._used = {used: until for used, until in self._used.items() if until > now}
        self._used[token] = now + LINK_S
        return self._sign("session", int(now) + SESSION_S)

    def is_session(self, session: str) -> bool:
        """Test a session cookie's value."""
        return self._is_signed("session", session)

    def csrf_token(self, session: str) -> str:
        """CSRF token of this session, field ``csrf_token`` or X-CSRF-Token header."""
        return self._mac(f"csrf|{session}")

    def is_csrf_token(self, session: str, token: str) -> bool:
        """Test a form's token against its session."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.csrf_token(session).encode())

    def _sign(self, purpose: Literal["link", "session"], until: int) -> str:
        text = f"{until}.{secrets.token_urlsafe(12)}"
        return f"{text}.{self._mac(f'{purpose}|{text}')}"

    def _is_signed(self, purpose: Literal["link", "session"], token: str) -> bool:
        text, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(f"{purpose}|{text}").encode()):
            return False
        return int(text.partition(".")[0]) > self._now()

    def _mac(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class KeyGate:
    """ASGI middleware that requires key or session for everything behind.

    What lets a browser in also sets ``scope["state"]["session"]`` and ``["csrf_token"]`` for the pages. A
    browser's unsafe request needs the CSRF token as a form field or a header.

    Parameters
    ----------
    app
        What is guarded.
    keyring
        Who may pass.
    open_paths
        Paths served to everybody.
    is_keyless
        Which other requests pass without the key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        *,
        open_paths: frozenset[str],
        is_keyless: Callable[[Scope], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._open_paths = open_paths
        self._is_keyless = is_keyless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 401 or 403."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        session = _cookie(headers.get(b"cookie", b""))
        state = scope.setdefault("state", {})
        if session and self._keyring.is_session(session):
            state["session"], state["csrf_token"] = session, self._keyring.csrf_token(session)
        else:
            session = ""
        if scope["path"] in self._open_paths or self._has_key(headers) or self._is_keyless(scope):
            await self._app(scope, receive, send)
        elif not session:
            await send_problem(send, unauthorized())
        elif scope["method"] in _SAFE:
            await self._app(scope, receive, send)
        else:
            await self._unsafe(scope, receive, send, session)

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        return scheme.lower() == "bearer" and self._keyring.is_key(key.strip())

    async def _unsafe(self, scope: Scope, receive: Receive, send: Send, session: str) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        token = headers.get(CSRF_HEADER, b"").decode("latin-1")
        if not token and headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
            body = await _small_body(receive)
            token = parse_qs(body.decode("utf-8", "replace")).get(CSRF_FIELD, [""])[0]
            receive = _replay(body, receive)
        if self._keyring.is_csrf_token(session, token):
            await self._app(scope, receive, send)
        else:
            await send_problem(
                send, problem(403, f"the form lacks its {CSRF_FIELD}: load the page again and repeat")
            )


def unauthorized() -> Problem:
    """The 401 of every guarded route."""
    return problem(
        401,
        "no valid key: send 'Authorization: Bearer <key>'; the key stands in the file 'key' of the data"
        " folder. For a browser, open the link that `outrider serve` printed",
        headers={"www-authenticate": 'Bearer realm="outrider"'},
    )


def session_cookie(session: str, *, secure: bool) -> str:
    """Set-Cookie header of a session."""
    flags = "; Secure" if secure else ""
    return f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={SESSION_S}{flags}"


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
