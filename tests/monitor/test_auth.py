"""Keys, one-time links, sessions and CSRF tokens."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import ConfigError
from outrider.monitor.http.auth import KeyGate, Keyring, load_or_create_key, session_cookie


def test_the_key_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    keys: list[str] = []
    threads = [
        threading.Thread(target=lambda: keys.append(load_or_create_key(tmp_path / "data" / "key")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert len(keys[0]) > 40
    assert (tmp_path / "data" / "key").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "data") == ["key"]


def test_a_key_file_that_others_may_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_or_create_key(tmp_path / "key")
    (tmp_path / "key").write_text("")
    with pytest.raises(ConfigError, match="empty"):
        load_or_create_key(tmp_path / "key")


def test_a_link_opens_one_session_within_its_time() -> None:
    now = [1000.0]
    keyring = Keyring("k", now=lambda: now[0])
    link, late = keyring.make_link_token(), keyring.make_link_token()
    session = keyring.open_session(link)
    assert session is not None
    assert keyring.is_session(session)
    assert keyring.open_session(link) is None
    now[0] += 901
    assert keyring.open_session(late) is None
    assert keyring.is_session(session)
    now[0] += 8 * 24 * 3600
    assert not keyring.is_session(session)


def test_nothing_forged_or_of_another_purpose_is_let_in() -> None:
    keyring = Keyring("k")
    link = keyring.make_link_token()
    session = keyring.open_session(link)
    assert session is not None
    for token in ("", "x", "9999999999.x.y", link, link[:-1], "ü", session.replace(".", ".9", 1)):
        assert not keyring.is_session(token)
    assert keyring.open_session(session) is None
    assert not Keyring("other").is_session(session)
    assert not keyring.is_key("")
    assert not keyring.is_csrf_token(session, "")


def call(gate: KeyGate, method: str = "GET", path: str = "/x", body: bytes = b"", **headers: str) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": fields}
    asyncio.run(gate(scope, receive, send))
    status: int = sent[0]["status"]
    return status


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200 if body != b"lost" else 500, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_the_gate_wants_a_key_everywhere_but_on_open_paths() -> None:
    gate = KeyGate(echo, Keyring("k"), open_paths=frozenset({"/healthz"}))
    assert call(gate) == 401
    assert call(gate, authorization="Bearer wrong") == 401
    assert call(gate, authorization="Basic k") == 401
    assert call(gate, authorization="bearer k") == 200
    assert call(gate, path="/healthz") == 200
    assert call(gate, path="/healthz/../x") == 401


def test_a_session_reads_and_needs_the_csrf_token_to_write() -> None:
    keyring = Keyring("k")
    gate = KeyGate(echo, keyring, open_paths=frozenset())
    session = keyring.open_session(keyring.make_link_token())
    assert session is not None
    cookie = session_cookie(session, secure=False)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    cookie = cookie.partition(";")[0]
    token = keyring.csrf_token(session)
    form = "application/x-www-form-urlencoded"
    assert call(gate, cookie=cookie) == 200
    assert call(gate, "POST", cookie=cookie) == 403
    assert call(gate, "POST", cookie=cookie, x_csrf_token="wrong") == 403
    assert call(gate, "POST", cookie=cookie, x_csrf_token=token) == 200
    assert (
        call(gate, "POST", body=f"a=1&csrf_token={token}".encode(), cookie=cookie, content_type=form) == 200
    )
    assert call(gate, "POST", body=b"a=1&csrf_token=wrong", cookie=cookie, content_type=form) == 403
    assert call(gate, cookie="outrider=forged") == 401
