"""Keys and sessions in force, held in memory beside their store."""

import base64
import contextlib
import hmac
import logging
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from outrider.dataops.access.scopes import Right, rights_of
from outrider.dataops.access.store import (
    AccessStore,
    JobTokenRow,
    KeyLimits,
    KeyRow,
    SessionRow,
    WriteRow,
    digest_of,
)
from outrider.errors import ConfigError

from .quotas import DAY_S, Meter

log = logging.getLogger("outrider.access")

SESSION_S = 7 * 24 * 3600
USE_S = 60.0
"""Interval between writes of a key's last use."""
OWNER, SENDER = "owner", "ingest"
_TEXT = 200


def load_or_create_key(path: Path) -> str:
    """Read, or generate, the key file (mode 0600); ConfigError where it is empty or readable by others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(new_key() + "\n")
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


def new_key() -> str:
    return "or_" + secrets.token_urlsafe(32)


@dataclass(slots=True, eq=False)
class Holder:
    """Key in force with its rights, implied scopes included.

    ``is_used`` is set by requests, and read and cleared once a second.
    """

    id: int
    name: str
    digest: str
    rights: frozenset[Right]
    meter: Meter | None = None
    is_used: bool = False
    used_us: int | None = None
    written_us: int = 0
    models: frozenset[str] | None = None
    """Models that it is for; None for all."""


@dataclass(slots=True, eq=False)
class Session:
    row: SessionRow
    holder: Holder
    is_used: bool = False
    used_us: int = 0
    written_us: int = 0


@dataclass(frozen=True, slots=True)
class FileKey:
    name: str
    key: str
    scopes: tuple[Right, ...]
    file: str


@dataclass(frozen=True, slots=True)
class _Held:
    """Keys and sessions in force, replaced as a whole, so that a request sees one state."""

    version: int | None = None
    keys: dict[bytes, Holder] = field(default_factory=dict)
    sessions: dict[bytes, Session] = field(default_factory=dict)


class Keyring:
    """Keys and sessions in force: one dictionary lookup per request.

    Changes by this process hold at once, those of another with the next :meth:`refresh`. Without a
    database only the keys in files are in force.
    """

    def __init__(
        self,
        store: AccessStore,
        files: Sequence[FileKey] = (),
        *,
        folder: Path | None = None,
        epoch: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._folder = folder
        self._files = tuple(files)
        self._epoch = epoch
        self._changing = threading.Lock()
        self._is_synced = False
        self._held = _Held(None, {_digest(each.key): _holder_of(each) for each in self._files})
        try:
            self.refresh()
        except sqlite3.Error:  # records are taken all the same; it is read again every second
            log.exception("keys and sessions cannot be read: those of the files are in force alone")

    @classmethod
    def of_folder(cls, folder: Path) -> "Keyring":
        """Keyring of a data folder; missing key files are made.

        ConfigError where one is empty or readable by others.
        """
        files = [
            FileKey(OWNER, load_or_create_key(folder / "key"), ("admin",), "key"),
            FileKey(SENDER, load_or_create_key(folder / "key.ingest"), ("ingest",), "key.ingest"),
        ]
        return cls(AccessStore(folder / "state.db"), files, folder=folder)

    def now_us(self) -> int:
        return int(self._epoch() * 1e6)

    # ---- who comes

    def by_header(self, authorization: bytes) -> Holder | None:
        scheme, _, key = authorization.partition(b" ")
        return self._by_key(key.strip()) if scheme.lower() == b"bearer" else None

    def by_key(self, key: str) -> Holder | None:
        return self._by_key(key.encode("utf-8", "replace"))

    def job_token(self, authorization: bytes) -> JobTokenRow | None:
        """Token of a job in an ``Authorization`` header; reads the database."""
        return self.store.find_job_token(digest_of(authorization.partition(b" ")[2].strip()))

    def by_cookie(self, cookie: str) -> Session | None:
        digest = _digest(cookie)
        found = self._held.sessions.get(digest)
        if found is None or not hmac.compare_digest(found.row.digest, digest.hex()):
            return None
        return found if found.row.until_us > self.now_us() else None

    def _by_key(self, key: bytes) -> Holder | None:
        digest = _digest(key)
        found = self._held.keys.get(digest)
        # Of the digest a stranger can choose no part, so that time tells nothing; all the same.
        return found if found and hmac.compare_digest(found.digest, digest.hex()) else None

    # ---- changes

    def add_key(
        self, name: str, *, scopes: Sequence[Right], models: Sequence[str] = (), limits: KeyLimits, by: str
    ) -> str | None:
        """Make a key; None where another of the name is in force."""
        key, now = new_key(), self.now_us()
        is_new = self.store.add_key(
            name, digest_of(key), scopes=scopes, models=models, limits=limits, by=by, now_us=now
        )
        self.refresh()
        return key if is_new else None

    def limit_key(self, name: str, limits: KeyLimits) -> bool:
        is_known = self.store.limit_key(name, limits)
        self.refresh()
        return is_known

    def revoke_key(self, name: str, *, by: str) -> bool:
        file = next((each.file for each in self._files if each.name == name), None)
        if self._folder is not None and file is not None:  # first: a file brings its key back with each start
            (self._folder / file).unlink(missing_ok=True)
        is_known = self.store.revoke_key(name, by=by, now_us=self.now_us())
        self.refresh()
        return is_known

    def open_session(self, holder: Holder, *, address: str, agent: str) -> str:
        cookie, now = secrets.token_urlsafe(32), self.now_us()
        until = now + int(SESSION_S * 1e6)
        id_ = secrets.token_hex(6)
        self.store.add_session(
            SessionRow(id_, digest_of(cookie), holder.id, now, until, now, address, agent[:_TEXT])
        )
        self.refresh()
        return cookie

    def use_link(self, token: str) -> Holder | None:
        """Use a fresh link; returns the holder of its key, else None."""
        key_id = self.store.use_link(token, now_us=self.now_us())
        return next((one for one in self._held.keys.values() if one.id == key_id), None)

    def end_session(self, id_: str) -> bool:
        was_there = self.store.end_session(id_)
        self.refresh()
        return was_there

    def list_sessions(self) -> list[Session]:
        now = self.now_us()
        return [one for one in self._held.sessions.values() if one.row.until_us > now]

    def list_keys(self, *, with_revoked: bool = False) -> list[KeyRow]:
        self.note_use(at_once=True)
        today = int(self._epoch() // DAY_S)
        rows = self.store.list_keys(with_revoked=with_revoked)
        return [row if row.day == today else replace(row, day_bytes=0) for row in rows]

    def note_write(
        self, key: str, action: str, path: str, *, status: int, address: str, session: str = ""
    ) -> None:
        at = self.now_us()
        self.store.note_write(WriteRow(0, at, key, action, path[:500], status, address, session))

    # ---- once a second

    def refresh(self) -> None:
        with self._changing:
            if (version := self.store.version()) is None:
                return
            if not self._is_synced:
                for each in self._files:
                    self.store.set_file_key(
                        each.name,
                        digest_of(each.key),
                        scopes=each.scopes,
                        file=each.file,
                        now_us=self.now_us(),
                    )
                self._is_synced = True
                version = self.store.version()
            if version != self._held.version:
                self._held = self._read(version)

    def note_use(self, *, at_once: bool = False) -> None:
        """Write the last uses, of each key and session once a minute."""
        now, held = self.now_us(), self._held
        keys, sessions = list(held.keys.values()), list(held.sessions.values())
        both: list[Holder | Session] = [*keys, *sessions]
        for each in both:
            if each.is_used:
                each.is_used, each.used_us = False, now
        due_us = now if at_once else now - int(USE_S * 1e6)
        late_keys = [one for one in keys if _is_late(one, due_us)]
        late = [one for one in sessions if _is_late(one, due_us)]
        if held.version is None or not (late_keys or late):
            return
        self.store.note_use(
            [(one.used_us or 0, *_day(one.meter), one.id) for one in late_keys],
            [(one.used_us, one.row.id) for one in late],
        )
        noted: list[Holder | Session] = [*late_keys, *late]
        for each in noted:
            each.written_us = each.used_us or 0

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.note_use(at_once=True)
        self.store.close()

    def _read(self, version: int | None) -> _Held:
        """State of the store; kept entries keep their meter and last use."""
        before = self._held
        holders: dict[bytes, Holder] = {}
        for row in self.store.list_keys():
            digest = bytes.fromhex(row.digest)
            holders[digest] = _holder(row, before.keys.get(digest))
        by_id = {one.id: one for one in holders.values()}
        sessions: dict[bytes, Session] = {}
        for found in self.store.list_sessions(now_us=self.now_us()):
            digest = bytes.fromhex(found.digest)
            if found.key_id in by_id:
                known = before.sessions.get(digest)
                used = known.used_us if known else found.used_us
                written = known.written_us if known else found.used_us
                is_used = known is not None and known.is_used
                sessions[digest] = Session(found, by_id[found.key_id], is_used, used, written)
        return _Held(version, holders, sessions)


def is_job_token(authorization: bytes) -> bool:
    scheme, _, token = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and token.strip().startswith(b"orj_")


def csrf_token(cookie: str) -> str:
    mac = hmac.new(cookie.encode("utf-8", "replace"), b"outrider csrf", sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def is_csrf_token(cookie: str, token: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "replace"), csrf_token(cookie).encode())


def _digest(secret: str | bytes) -> bytes:
    return sha256(secret.encode("utf-8", "replace") if isinstance(secret, str) else secret).digest()


def _holder_of(file: FileKey) -> Holder:
    return Holder(0, file.name, digest_of(file.key), rights_of(file.scopes))


def _holder(row: KeyRow, before: Holder | None) -> Holder:
    scopes: list[Right] = row.scopes.split()  # type: ignore[assignment]  # stored from the type
    meter = before.meter if before else None
    if row.limits == KeyLimits():
        meter = None
    elif meter is None or meter.limits != row.limits:
        day, size = (meter.day, meter.day_bytes) if meter else (row.day, row.day_bytes)
        meter = Meter(row.name, row.limits, day=day, day_bytes=size)
    used = before.used_us if before and before.used_us else row.used_us
    written = before.written_us if before else row.used_us or 0
    is_used = before is not None and before.is_used
    models = frozenset(row.model_names) or None
    return Holder(row.id, row.name, row.digest, rights_of(scopes), meter, is_used, used, written, models)


def _is_late(one: Holder | Session, due_us: int) -> bool:
    """True for an unwritten use whose last written one was before ``due_us``."""
    return (one.used_us or 0) > one.written_us and one.written_us <= due_us


def _day(meter: Meter | None) -> tuple[int, int]:
    return (meter.day, meter.day_bytes) if meter else (0, 0)
