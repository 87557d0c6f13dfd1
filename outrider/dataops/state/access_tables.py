"""Tables of keys, sessions, one-time links and the log of writes.

The server process reads and writes them with SQLite alone (`outrider.dataops.access`): it answers before
SQLAlchemy is loaded. No secret stands here, only SHA-256 digests of 256 random bits.
"""

from sqlalchemy import Index, text
from sqlmodel import SQLModel

from .columns import Field


class ApiKey(SQLModel, table=True):
    """Key of a sender, a person or a program."""

    __tablename__ = "api_key"
    __table_args__ = (Index("api_key_name", "name", unique=True, sqlite_where=text("revoked_us IS NULL")),)
    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(erase="kept")
    digest: str = Field(unique=True, erase="kept")
    scopes: str = Field(erase="kept")
    """Given ones, with a blank between them."""
    models: str = Field(default="", erase="kept")
    """Those that it is for alone, as a JSON list; empty for all."""
    file: str = Field(default="", erase="kept")
    """File of the data folder that holds it; empty for a key that was shown once."""
    created_us: int
    created_by: str = Field(erase="kept")
    revoked_us: int | None = None
    revoked_by: str = Field(default="", erase="kept")
    used_us: int | None = None
    records_per_s: float | None = None
    burst_records: int | None = None
    bytes_per_day: int | None = None
    day: int = 0
    """Days since the epoch, UTC, that ``day_bytes`` is of."""
    day_bytes: int = 0


class BrowserSession(SQLModel, table=True):
    """Session of a browser, with the rights of its key."""

    __tablename__ = "browser_session"
    id: str = Field(primary_key=True, erase="kept")
    digest: str = Field(unique=True, erase="kept")
    key_id: int
    created_us: int
    until_us: int
    used_us: int
    address: str = Field(erase="kept")
    agent: str = Field(erase="kept")


class LoginLink(SQLModel, table=True):
    """One-time link, unused until ``used_us``."""

    __tablename__ = "login_link"
    digest: str = Field(primary_key=True, erase="kept")
    key_id: int
    until_us: int
    used_us: int | None = None


class WriteLog(SQLModel, table=True):
    """Change that somebody asked for. Triggers refuse to change or delete a row."""

    __tablename__ = "write_log"
    id: int | None = Field(default=None, primary_key=True)
    at_us: int
    key: str = Field(erase="kept")
    """Name of the key."""
    action: str = Field(erase="kept")
    """Method and route."""
    path: str = Field(erase="kept")
    status: int
    address: str = Field(erase="kept")
    session: str = Field(default="", erase="kept")
    """Of a browser; empty where the key itself came."""
