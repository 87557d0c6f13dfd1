"""Tables of erasures. Erased records stand there as keyed hashes alone."""

from typing import Any

from sqlalchemy import JSON
from sqlmodel import SQLModel

from .columns import Field


class Erasure(SQLModel, table=True):
    """Erasure that was carried out. Pending ones are files (`dataops.erasure.pending`)."""

    __tablename__ = "erasure"
    id: str = Field(primary_key=True, erase="kept")
    asked_us: int
    who: str = Field(erase="kept")
    """Name of the key; ``command`` for the command beside a stopped service."""
    found: dict[str, Any] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    """Numbers of what went, backups and models that hold it; no content."""
    done_us: int


class ErasedHash(SQLModel, table=True):
    """Keyed hash of an erased record or subject."""

    __tablename__ = "erased_hash"
    hash: bytes = Field(primary_key=True, erase="kept")
    kind: str = Field(erase="kept")
    """``record`` or ``subject``."""
    erasure: str = Field(erase="kept")
    at_us: int


class ErasedContext(SQLModel, table=True):
    """Place of an erased record that shared windows with another one."""

    __tablename__ = "erased_context"
    model: str = Field(primary_key=True, erase="kept")
    by: str = Field(primary_key=True, erase="kept")
    """Column that names the window's entities."""
    seq: int = Field(primary_key=True)
    row: int = Field(primary_key=True)
    like_seq: int
    like_row: int
    """``like_seq`` and ``like_row``: place of a record that has the same value there."""
