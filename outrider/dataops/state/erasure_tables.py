"""Tables of erasures. Erased records stand there as keyed hashes alone."""

from typing import Any

from sqlalchemy import JSON, Column, LargeBinary
from sqlmodel import Field, SQLModel


class Erasure(SQLModel, table=True):
    """Erasure that was carried out. Pending ones are files (`dataops.erasure.pending`)."""

    __tablename__ = "erasure"
    id: str = Field(primary_key=True)
    asked_us: int
    who: str
    """Name of the key; ``command`` for the command beside a stopped service."""
    found: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    """Numbers of what went, backups and models that hold it; no content."""
    done_us: int


class ErasedHash(SQLModel, table=True):
    """Keyed hash of an erased record or subject."""

    __tablename__ = "erased_hash"
    hash: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    kind: str
    """``record`` or ``subject``."""
    erasure: str
    at_us: int


class ErasedContext(SQLModel, table=True):
    """Place of an erased record that shared windows with another one."""

    __tablename__ = "erased_context"
    model: str = Field(primary_key=True)
    by: str = Field(primary_key=True)
    """Column that names the window's entities."""
    seq: int = Field(primary_key=True)
    row: int = Field(primary_key=True)
    like_seq: int
    like_row: int
    """``like_seq`` and ``like_row``: place of a record that has the same value there."""
