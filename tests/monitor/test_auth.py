"""Keys, one-time links, sessions, CSRF tokens, and the gate that asks for them."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.dataops.access.store import LINK_US, MOST_SESSIONS, AccessStore, KeyLimits, digest_of
from outrider.errors import ConfigError
from outrider.monitor.http.auth import KeyGate, session_cookie
from outrider.monitor.http.hosts import HostNames, TrustedProxies
from outrider.monitor.http.keyring import (
    SESSION_S,
    FileKey,
    Holder,
    Keyring,
    csrf_token,
    is_csrf_token,
    load_or_create_key,
)
from outrider.monitor.http.quotas import Meter, QuotaExceeded
from outrider.monitor.http.routes import RouteScopes, ScopedRoute
from tests.databases import place_database
from tests.keyrings import keyring_in, link_of, logged_in, owner_key
from tests.scopes import every_scope

HERE = {"address": "127.0.0.1", "agent": "a test"}


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = keyring_in(tmp_path)
    yield made
    made.close()


def holder_of(keyring: Keyring, key: str) -> Holder:
    found = keyring.by_key(key)
    assert found is not None
    return found


def make(keyring: Keyring, name: str, *scopes: Any, limits: KeyLimits | None = None) -> str:
    key = keyring.add_key(name, scopes=scopes, limits=limits or KeyLimits(), by="owner")
    assert key is not None
    return key


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


def test_no_secret_stands_in_the_database(keyring: Keyring, tmp_path: Path) -> None:
    key = make(keyring, "anna", "read")
    link = link_of(keyring, key)
    session = keyring.open_session(holder_of(keyring, key), **HERE)
    keyring.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    for secret in (key, link, session, owner_key(tmp_path), csrf_token(session)):
        assert secret.encode() not in stored
    assert digest_of(key).encode() in stored


def test_keys_of_the_files_are_in_force_without_a_database(tmp_path: Path) -> None:
    keyring = Keyring.of_folder(tmp_path)
    assert holder_of(keyring, owner_key(tmp_path)).name == "owner"
    assert keyring.by_header(f"bearer {owner_key(tmp_path)}".encode()) is not None
    sender = (tmp_path / "key.ingest").read_text().strip()
    assert holder_of(keyring, sender).rights == {"ingest"}
    assert (tmp_path / "key.ingest").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "state.db").exists()
    place_database(tmp_path / "state.db")  # it is made meanwhile
    keyring.refresh()
    assert [row.name for row in keyring.list_keys()] == ["owner", "ingest"]
    assert holder_of(keyring, sender).id > 0


def test_a_database_that_cannot_be_read_keeps_nobody_with_a_file_key_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.joinpath("state.db").write_bytes(b"no database" * 1000)
    keyring = Keyring.of_folder(tmp_path)
    assert "those of the files are in force alone" in caplog.text
    assert holder_of(keyring, owner_key(tmp_path)).rights >= {"admin"}
    with pytest.raises(sqlite3.DatabaseError):
        keyring.refresh()
    keyring.close()


def test_a_key_is_in_force_until_it_is_revoked_in_every_process(tmp_path: Path) -> None:
    here, there = keyring_in(tmp_path), Keyring.of_folder(tmp_path)
    key = make(here, "anna", "label", "ingest")
    assert make(here, "ben", "read") != key
    assert here.add_key("anna", scopes=["read"], limits=KeyLimits(), by="owner") is None
    assert holder_of(here, key).rights == {"ingest", "label", "read"}
    there.refresh()
    assert holder_of(there, key).name == "anna"
    assert here.revoke_key("anna", by="owner")
    assert not here.revoke_key("anna", by="owner")
    assert here.by_key(key) is None
    there.refresh()
    assert there.by_key(key) is None
    assert make(here, "anna", "read") != key
    revoked = [row for row in here.list_keys(with_revoked=True) if row.revoked_us is not None]
    assert [(row.name, row.revoked_by) for row in revoked] == [("anna", "owner")]
    for one in (here, there):
        one.close()


def test_another_key_file_ends_the_key_before_it_and_its_sessions(tmp_path: Path) -> None:
    before = keyring_in(tmp_path)
    old = owner_key(tmp_path)
    session = before.open_session(holder_of(before, old), **HERE)
    before.close()
    (tmp_path / "key").unlink()
    after = Keyring.of_folder(tmp_path)
    assert after.by_key(old) is None
    assert after.by_cookie(session) is None
    assert holder_of(after, owner_key(tmp_path)).rights >= {"admin"}
    assert [row.name for row in after.list_keys()] == ["ingest", "owner"]
    after.close()


def test_a_revoked_sender_key_loses_its_file_and_the_next_start_makes_another(tmp_path: Path) -> None:
    keyring = keyring_in(tmp_path)
    old = (tmp_path / "key.ingest").read_text().strip()
    keyring.limit_key("ingest", KeyLimits(records_per_s=5))
    assert keyring.revoke_key("ingest", by="owner")
    assert not (tmp_path / "key.ingest").exists()
    keyring.close()
    again = Keyring.of_folder(tmp_path)
    assert again.by_key(old) is None
    new = holder_of(again, (tmp_path / "key.ingest").read_text().strip())
    assert new.meter is not None  # what it may send stays as it was
    again.close()


def test_a_link_opens_one_session_within_its_time_and_over_restarts(tmp_path: Path) -> None:
    place_database(tmp_path / "state.db")
    now = [1000.0]
    files = [FileKey("owner", "or_secret", ("admin",), "key")]

    def start() -> Keyring:
        return Keyring(AccessStore(tmp_path / "state.db"), files, epoch=lambda: now[0])

    keyring = start()
    link, late, other = (link_of(keyring, "or_secret") for _ in range(3))
    holder = keyring.use_link(link)
    assert holder is not None
    session = keyring.open_session(holder, **HERE)
    assert keyring.by_cookie(session) is not None
    assert keyring.use_link(link) is None
    keyring.close()
    keyring = start()  # used links stay used, others stay fresh, sessions go on
    assert keyring.use_link(link) is None
    assert keyring.use_link(other) is not None
    assert keyring.by_cookie(session) is not None
    now[0] += LINK_US / 1e6 + 1
    assert keyring.use_link(late) is None
    assert keyring.by_cookie(session) is not None
    now[0] += SESSION_S
    assert keyring.by_cookie(session) is None
    assert keyring.list_sessions() == []
    keyring.close()


def test_nothing_forged_or_of_another_purpose_is_let_in(keyring: Keyring, tmp_path: Path) -> None:
    owner = owner_key(tmp_path)
    link = link_of(keyring, owner)
    session = keyring.open_session(holder_of(keyring, owner), **HERE)
    for token in ("", "x", link, owner, session[:-1], session + "x", "ü", digest_of(session), "a\0b"):
        assert keyring.by_cookie(token) is None
    for token in ("", session, owner, link[:-1], digest_of(link)):
        assert keyring.use_link(token) is None
    for key in ("", session, link, digest_of(owner), owner[:-1], f"{owner}x"):
        assert keyring.by_key(key) is None
    for header in (b"", b"Bearer", b"Bearer ", b"Basic " + owner.encode(), owner.encode(), b"\xff \xff"):
        assert keyring.by_header(header) is None
    assert not is_csrf_token(session, "")
    assert not is_csrf_token("", csrf_token(session))


def test_a_key_has_no_more_than_so_many_sessions(keyring: Keyring, tmp_path: Path) -> None:
    holder = holder_of(keyring, owner_key(tmp_path))
    sessions = [keyring.open_session(holder, **HERE) for _ in range(MOST_SESSIONS + 3)]
    in_force = [session for session in sessions if keyring.by_cookie(session)]
    assert len(in_force) == MOST_SESSIONS
    assert sessions[-1] in in_force


def test_a_revoked_key_ends_its_sessions_and_links(keyring: Keyring) -> None:
    key = make(keyring, "anna", "review")
    session, link = keyring.open_session(holder_of(keyring, key), **HERE), link_of(keyring, key)
    keyring.revoke_key("anna", by="owner")
    assert keyring.by_cookie(session) is None
    assert keyring.use_link(link) is None


def test_the_last_use_is_written_once_a_minute_at_most(tmp_path: Path) -> None:
    place_database(tmp_path / "state.db")
    now = [1000.0]
    files = [FileKey("owner", "or_secret", ("admin",), "key")]
    keyring = Keyring(AccessStore(tmp_path / "state.db"), files, epoch=lambda: now[0])
    written = []

    def stored() -> int | None:
        return keyring.store.list_keys()[0].used_us

    for _ in range(150):
        holder_of(keyring, "or_secret").is_used = True
        keyring.note_use()
        written.append(stored())
        now[0] += 1.0
    assert len(set(written)) == 3
    assert written[0] == 1000 * 10**6
    assert keyring.list_keys()[0].used_us == 1149 * 10**6  # who asks for it sees the last one
    keyring.close()


def test_the_log_of_writes_is_only_added_to(keyring: Keyring, tmp_path: Path) -> None:
    keyring.note_write("anna", "POST /v1/reviews", "/v1/reviews", status=201, address="::1")
    database = sqlite3.connect(tmp_path / "state.db")
    for change in (
        "UPDATE write_log SET key = 'ben'",
        "DELETE FROM write_log",
        "DELETE FROM write_log WHERE 1",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="only added to"):
            database.execute(change)
    database.close()
    assert [row.key for row in keyring.store.list_writes(limit=9)] == ["anna"]


def test_a_meter_holds_a_key_to_its_records_and_bytes() -> None:
    now, epoch = [0.0], [86_400.0 * 3 - 10]
    limits = KeyLimits(records_per_s=100, burst_records=200, bytes_per_day=1000)
    meter = Meter("web", limits, now=lambda: now[0], epoch=lambda: epoch[0])
    accepted = 0
    for _ in range(1000):  # ten seconds, a request of 7 records every 10 ms: seven times what it may
        with contextlib.suppress(QuotaExceeded):
            meter.admit()
            meter.spend(7)
            accepted += 7
        now[0] += 0.01
    assert 200 + 1000 - 7 <= accepted <= 200 + 1000 + 7
    meter.take(600)
    with pytest.raises(QuotaExceeded) as refused:
        meter.take(401)
    assert refused.value.problem.headers == {"retry-after": "10"}
    assert "'web' may send 1000 bytes a day" in refused.value.problem.detail
    now[0] += 60
    meter.take(400)
    with pytest.raises(QuotaExceeded):
        meter.admit()
    epoch[0] += 10
    meter.admit()
    meter.take(1000)


def test_counted_bytes_outlast_a_restart(tmp_path: Path) -> None:
    keyring = keyring_in(tmp_path)
    key = make(keyring, "web", "ingest", limits=KeyLimits(bytes_per_day=1000))
    before = holder_of(keyring, key)
    assert before.meter is not None
    before.meter.admit()
    before.meter.take(900)
    before.is_used = True
    keyring.close()
    keyring = Keyring.of_folder(tmp_path)
    after = holder_of(keyring, key).meter
    assert after is not None
    with pytest.raises(QuotaExceeded):
        after.take(101)
    keyring.limit_key("web", KeyLimits(bytes_per_day=2000))
    more = holder_of(keyring, key).meter
    assert more is not None
    more.take(1100)
    keyring.close()


def call(gate: KeyGate, method: str = "GET", path: str = "/", body: bytes = b"", **headers: str) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": fields,
        "scheme": "http",
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(gate(scope, receive, send))
    status: int = sent[0]["status"]
    return status


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200 if body != b"lost" else 500, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_the_gate_wants_a_key_everywhere_but_on_open_paths(keyring: Keyring, tmp_path: Path) -> None:
    gate = KeyGate(echo, keyring, routes=every_scope())
    key = owner_key(tmp_path)
    assert call(gate) == 401
    assert call(gate, authorization="Bearer wrong") == 401
    assert call(gate, authorization=f"Basic {key}") == 401
    assert call(gate, authorization=f"bearer {key}") == 200
    assert call(gate, path="/healthz") == 200
    assert call(gate, path="/healthz/../x") == 401
    assert call(gate, path="/metrics") == 401
    assert (
        call(
            KeyGate(echo, keyring, routes=every_scope(), open_paths=frozenset(["/metrics"])), path="/metrics"
        )
        == 200
    )


def test_a_route_without_a_scope_is_refused(keyring: Keyring, tmp_path: Path) -> None:
    gate = KeyGate(echo, keyring, routes=every_scope())
    key = f"Bearer {owner_key(tmp_path)}"
    assert call(gate, "POST", "/v1/brand-new", authorization=key) == 404
    assert call(gate, "DELETE", "/v1/flags", authorization=key) == 405
    assert call(gate, "HEAD", "/v1/flags", authorization=key) == 200
    assert call(gate, "POST", "/v1/brand-new") == 401


def test_a_path_of_several_routes_asks_for_the_scopes_of_all() -> None:
    routes = RouteScopes(
        routes=[
            ScopedRoute.of("GET /a/{x:path}", "read"),
            ScopedRoute.of("GET /a/{x:path}/secret", "admin"),
        ]
    )
    found = routes.find("GET", "/a/b/secret", {})
    assert found is not None
    assert found.missing(frozenset(["read"])) == frozenset({"admin"})
    assert found.missing(frozenset(["admin"])) == frozenset({"read"})
    assert found.missing(frozenset(["admin", "read"])) is None
    assert found.action == "GET /a/{x:path}/secret"


def test_a_path_of_several_routes_is_named_by_the_nearest() -> None:
    routes = every_scope()
    for path in ("models/{model}/versions/champion", "models/{model}/versions/{version}"):
        asked = f"/v1/{path}".replace("{model}", "m").replace("{version}", "1")
        found = routes.find("GET", asked, {})
        assert found is not None
        assert found.action == f"GET /v1/{path}"


def test_a_session_reads_and_needs_the_csrf_token_to_write(keyring: Keyring, tmp_path: Path) -> None:
    gate = KeyGate(echo, keyring, routes=every_scope())
    session = keyring.open_session(holder_of(keyring, owner_key(tmp_path)), **HERE)
    cookie = session_cookie(session, secure=False)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert "Secure" in session_cookie(session, secure=True)
    assert "Max-Age=0" in session_cookie("", secure=True)
    cookie = cookie.partition(";")[0]
    token = csrf_token(session)
    form = "application/x-www-form-urlencoded"
    assert call(gate, cookie=cookie) == 200
    at: dict[str, Any] = {"method": "POST", "path": "/reviews", "cookie": cookie}
    assert call(gate, **at) == 403
    assert call(gate, **at, x_csrf_token="wrong") == 403
    assert call(gate, **at, x_csrf_token=token) == 200
    assert call(gate, **at, body=f"a=1&csrf_token={token}".encode(), content_type=form) == 200
    assert call(gate, **at, body=b"a=1&csrf_token=wrong", content_type=form) == 403
    assert call(gate, cookie="outrider=forged") == 401


def test_a_session_may_what_its_key_may(keyring: Keyring) -> None:
    gate = KeyGate(echo, keyring, routes=every_scope())
    headers: dict[str, Any] = {
        name.replace("-", "_"): value
        for name, value in logged_in(keyring, make(keyring, "anna", "review")).items()
    }
    assert call(gate, "POST", "/reviews", **headers) == 200
    assert call(gate, "POST", "/v1/models/m/promote", **headers) == 403
    assert call(gate, "GET", "/v1/keys", **headers) == 403
    assert call(gate, "POST", "/v1/records", **headers) == 403


def test_a_stranger_name_is_sent_away_before_its_session_is_looked_at(
    keyring: Keyring, tmp_path: Path
) -> None:
    """DNS rebinding: a stranger's page has its name resolve to us, and asks from a reader's browser."""
    gate = KeyGate(
        echo,
        keyring,
        routes=every_scope(),
        open_paths=frozenset(["/metrics"]),
        names=HostNames(["outrider.example"]),
    )
    key = owner_key(tmp_path)
    cookie = logged_in(keyring, key)["cookie"]
    for path in ("/", "/v1/flags", "/metrics", "/login", "/nothing"):
        for host in (
            "evil.example",
            "evil.example:8470",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
        ):
            assert call(gate, path=path, host=host, cookie=cookie) == 421, (path, host)
        assert call(gate, path=path, host="evil.example", accept="text/html") == 421
        assert call(gate, path=path, host="evil.example") in (401, 421)
    for host in ("localhost:8470", "127.0.0.1:8470", "[::1]:8470", "10.1.2.3", "OUTRIDER.example"):
        assert call(gate, host=host, cookie=cookie) == 200
    assert call(gate, path="/healthz", host="pod-7.cluster") == 200
    assert call(gate, path="/v1/flags", host="outrider-service", authorization=f"Bearer {key}") == 200
    anything = KeyGate(echo, keyring, routes=every_scope(), names=HostNames(["*"]))
    assert call(anything, host="evil.example", cookie=cookie) == 200


def test_tls_is_believed_of_configured_proxies_alone(keyring: Keyring) -> None:
    schemes: list[str] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        schemes.append(scope["scheme"])
        await echo(scope, receive, send)

    said: dict[str, Any] = {"x_forwarded_proto": "https", "x_forwarded_for": "9.9.9.9"}
    for networks in ([], ["10.0.0.0/8"], ["127.0.0.0/8"]):
        gate = KeyGate(note, keyring, routes=every_scope(), proxies=TrustedProxies(networks))
        call(gate, path="/login", **said)
    assert schemes == ["http", "http", "https"]


def test_a_sender_address_is_the_nearest_that_no_proxy_of_ours_has() -> None:
    proxies = TrustedProxies(["10.0.0.0/8"])

    def sender(peer: str, hops: str) -> str:
        return proxies.sender({"client": (peer, 1)}, {b"x-forwarded-for": hops.encode()})

    assert sender("10.0.0.1", "6.6.6.6, 9.9.9.9") == "9.9.9.9"
    assert sender("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.2") == "9.9.9.9"
    assert sender("10.0.0.1", "6.6.6.6, evil") == "10.0.0.1"
    assert sender("::ffff:10.0.0.1", "9.9.9.9") == "9.9.9.9"
    assert sender("6.6.6.6", "9.9.9.9") == "6.6.6.6"
    assert sender("10.0.0.1", "") == "10.0.0.1"
