"""Keys, sessions, links and the log of writes in ``state.db``.

By SQLite alone: the server process answers before SQLAlchemy is loaded.
"""

import json
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

BUSY_S = 5.0
LINK_US = 900_000_000
MOST_SESSIONS = 100
"""Of one key; another one ends the oldest."""
_VERSION = "access_version"
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of a key's traffic, if any; ``burst_records`` default to ten seconds'."""

    records_per_s: float | None = None
    burst_records: int | None = None
    bytes_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """Stored key, in the order of the table."""

    id: int
    name: str
    digest: str
    scopes: str
    models: str
    file: str
    created_us: int
    created_by: str
    revoked_us: int | None
    revoked_by: str
    used_us: int | None
    records_per_s: float | None
    burst_records: int | None
    bytes_per_day: int | None
    day: int
    day_bytes: int

    @property
    def model_names(self) -> tuple[str, ...]:
        """Empty for all models."""
        return tuple(json.loads(self.models)) if self.models else ()

    @property
    def limits(self) -> KeyLimits:
        return KeyLimits(self.records_per_s, self.burst_records, self.bytes_per_day)


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: str
    digest: str
    key_id: int
    created_us: int
    until_us: int
    used_us: int
    address: str
    agent: str


@dataclass(frozen=True, slots=True)
class WriteRow:
    """Change that somebody asked for."""

    id: int
    at_us: int
    key: str
    action: str
    path: str
    status: int
    address: str
    session: str


@dataclass(frozen=True, slots=True)
class JobTokenRow:
    job: str
    model: str
    until_us: int
    status: str
    version: str | None


def digest_of(secret: str | bytes) -> str:
    """256 random bits need no slower digest."""
    return sha256(secret.encode("utf-8", "replace") if isinstance(secret, str) else secret).hexdigest()


class AccessStore:
    """Thread-safe; the database may be created later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def version(self) -> int | None:
        """Number of changes of keys and sessions; None without a database."""
        try:
            found = self._rows("SELECT value FROM meta WHERE key = ?", _VERSION)
            self._rows("SELECT models FROM api_key LIMIT 1")
        except sqlite3.OperationalError as error:
            if "unable to open" in str(error) or "no such " in str(error):
                return None
            raise
        return int(found[0][0]) if found else 0

    # ---- tokens of jobs

    def find_job_token(self, digest: str) -> JobTokenRow | None:
        try:
            rows = self._rows(
                "SELECT t.job, t.model, t.until_us, j.status, (SELECT version FROM version_upload u "
                "WHERE u.job = t.job AND u.token AND u.status = 'done') "
                "FROM job_token t JOIN job j ON j.id = t.job WHERE t.digest = ?",
                digest,
            )
        except sqlite3.OperationalError as error:
            if "unable to open" in str(error) or "no such table" in str(error):
                return None
            raise
        return JobTokenRow(*rows[0]) if rows else None

    # ---- keys

    def list_keys(self, *, with_revoked: bool = False) -> list[KeyRow]:
        where = "" if with_revoked else "WHERE revoked_us IS NULL"
        return [
            KeyRow(*row) for row in self._rows(f"SELECT {_names(KeyRow)} FROM api_key {where} ORDER BY id")
        ]

    def add_key(
        self,
        name: str,
        digest: str,
        *,
        scopes: Sequence[str],
        models: Sequence[str],
        limits: KeyLimits,
        by: str,
        now_us: int,
    ) -> bool:
        """False if another key of the name is in force."""
        try:
            with self._change() as connection:
                self._insert(connection, name, digest, scopes, limits, by, now_us, models=models)
        except sqlite3.IntegrityError:
            return False
        return True

    def set_file_key(self, name: str, digest: str, *, scopes: Sequence[str], file: str, now_us: int) -> None:
        """A file's key replaces its former one."""
        with self._change() as connection:
            before = connection.execute(
                "SELECT digest, records_per_s, burst_records, bytes_per_day FROM api_key "
                "WHERE name = ? ORDER BY revoked_us IS NULL DESC, id DESC LIMIT 1",
                (name,),
            ).fetchone()
            connection.execute(
                "UPDATE api_key SET revoked_us = ?, revoked_by = 'the file changed' "
                "WHERE name = ? AND digest != ? AND revoked_us IS NULL",
                (now_us, name, digest),
            )
            restored = connection.execute(
                "UPDATE api_key SET revoked_us = NULL, revoked_by = '' WHERE digest = ?", (digest,)
            )
            if restored.rowcount == 0:
                limits = KeyLimits(*before[1:]) if before else KeyLimits()
                self._insert(connection, name, digest, scopes, limits, "serve", now_us, file=file)

    def limit_key(self, name: str, limits: KeyLimits) -> bool:
        """False if no such key is in force."""
        with self._change() as connection:
            changed = connection.execute(
                "UPDATE api_key SET records_per_s = ?, burst_records = ?, bytes_per_day = ? "
                "WHERE name = ? AND revoked_us IS NULL",
                (limits.records_per_s, limits.burst_records, limits.bytes_per_day, name),
            )
        return changed.rowcount > 0

    def revoke_key(self, name: str, *, by: str, now_us: int) -> bool:
        """Also ends sessions and links; False without a key."""
        with self._change() as connection:
            for table in ("browser_session", "login_link"):
                connection.execute(
                    f"DELETE FROM {table} WHERE key_id IN "
                    "(SELECT id FROM api_key WHERE name = ? AND revoked_us IS NULL)",
                    (name,),
                )
            changed = connection.execute(
                "UPDATE api_key SET revoked_us = ?, revoked_by = ? WHERE name = ? AND revoked_us IS NULL",
                (now_us, by, name),
            )
        return changed.rowcount > 0

    def note_use(
        self, keys: Sequence[tuple[int, int, int, int]], sessions: Sequence[tuple[int, str]]
    ) -> None:
        """Keys are (time, day, bytes of the day, id), sessions (time, id)."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE api_key SET used_us = ?, day = ?, day_bytes = ? WHERE id = ?", keys
            )
            connection.executemany("UPDATE browser_session SET used_us = ? WHERE id = ?", sessions)

    @staticmethod
    def _insert(
        connection: sqlite3.Connection,
        name: str,
        digest: str,
        scopes: Sequence[str],
        limits: KeyLimits,
        by: str,
        now_us: int,
        *,
        models: Sequence[str] = (),
        file: str = "",
    ) -> None:
        columns = "name, digest, scopes, models, file, created_us, created_by, revoked_by, day, day_bytes"
        connection.execute(
            f"INSERT INTO api_key ({columns}, records_per_s, burst_records, bytes_per_day) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, '', 0, 0, ?, ?, ?)",
            (
                *(name, digest, " ".join(scopes), json.dumps(models) if models else "", file, now_us, by),
                *(limits.records_per_s, limits.burst_records, limits.bytes_per_day),
            ),
        )

    # ---- sessions and links

    def list_sessions(self, *, now_us: int) -> list[SessionRow]:
        """In force, newest first."""
        query = (
            f"SELECT {_names(SessionRow)} FROM browser_session WHERE until_us > ? ORDER BY created_us DESC"
        )
        return [SessionRow(*row) for row in self._rows(query, now_us)]

    def add_session(self, row: SessionRow) -> None:
        """The oldest of too many end."""
        with self._change() as connection:
            connection.execute("DELETE FROM browser_session WHERE until_us <= ?", (row.created_us,))
            connection.execute(
                "DELETE FROM browser_session WHERE id IN (SELECT id FROM browser_session "
                "WHERE key_id = ? ORDER BY created_us DESC LIMIT -1 OFFSET ?)",
                (row.key_id, MOST_SESSIONS - 1),
            )
            connection.execute(
                f"INSERT INTO browser_session ({_names(SessionRow)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                tuple(getattr(row, column.name) for column in fields(row)),
            )

    def end_session(self, id_: str) -> bool:
        with self._change() as connection:
            return connection.execute("DELETE FROM browser_session WHERE id = ?", (id_,)).rowcount > 0

    def make_link(self, key_digest: str, *, now_us: int) -> tuple[str, int] | None:
        """Token and end of a one-time link; None for a revoked key."""
        token, until_us = secrets.token_urlsafe(24), now_us + LINK_US
        with self._transaction() as connection:
            connection.execute("DELETE FROM login_link WHERE until_us < ?", (now_us - _DAY_US,))
            changed = connection.execute(
                "INSERT INTO login_link (digest, key_id, until_us) "
                "SELECT ?, id, ? FROM api_key WHERE digest = ? AND revoked_us IS NULL",
                (digest_of(token), until_us, key_digest),
            )
        return (token, until_us) if changed.rowcount > 0 else None

    def use_link(self, token: str, *, now_us: int) -> int | None:
        """Id of the link's key, if still valid."""
        if not self._rows("SELECT 1 FROM login_link WHERE digest = ?", digest_of(token)):
            return None  # guesses of strangers take no lock that others write under
        with self._transaction() as connection:
            found = connection.execute(
                "UPDATE login_link SET used_us = ? WHERE digest = ? AND used_us IS NULL AND until_us > ? "
                "RETURNING key_id",
                (now_us, digest_of(token), now_us),
            ).fetchall()
        return int(found[0][0]) if found else None

    # ---- log of writes

    def note_write(self, row: WriteRow) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO write_log (at_us, key, action, path, status, address, session) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row.at_us, row.key, row.action, row.path, row.status, row.address, row.session),
            )

    def list_writes(self, *, limit: int, before: int | None = None, key: str | None = None) -> list[WriteRow]:
        """Before an id, newest first."""
        query = (
            f"SELECT {_names(WriteRow)} FROM write_log "
            "WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR key = ?2) ORDER BY id DESC LIMIT ?3"
        )
        return [WriteRow(*row) for row in self._rows(query, before, key, limit)]

    # ---- connection

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._open().execute(query, values).fetchall()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO meta (key, value) VALUES (?, '1') "
                "ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1",
                (_VERSION,),
            )
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            uri = f"{self._path.absolute().as_uri()}?mode=rw"  # never makes an empty database
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA synchronous = FULL")
        return self._connection


def _names(row: type) -> str:
    return ", ".join(column.name for column in fields(row))
