"""Blocks of the journal, as appended and as read back."""

import zlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["records", "labels", "tick", "kept", "step"]
"""``kept``: records with some payloads left, never judged again. ``step``: see `clock`."""


@dataclass(frozen=True, slots=True)
class Entry:
    kind: Kind
    """``records``, ``labels``, ``tick`` (time passed; model ``""``, no payload), or ``step`` (the clock was
    set; model ``""``): see `step_entry`."""
    model: str
    rows: int
    payload: bytes
    digest: str = ""
    schema: bytes = b""
    """Schema of the payload and its ``digest``; a new digest is stored in the same commit, ``""`` none."""


@dataclass(frozen=True, slots=True)
class Block:
    """Stored entry. ``received_us`` is UTC since the epoch; a ``damage`` is a reason, without payload."""

    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    payload: bytes
    damage: str = ""


@dataclass(frozen=True, slots=True)
class BlockInfo:
    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    bytes: int


def step_entry(by_us: int) -> Entry:
    """Boundary left by a clock that was set by ``by_us``."""
    return Entry("step", "", 0, str(by_us).encode())


def checksum(kind: str, model: str, received_us: int, rows: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(f"{kind}\0{model}\0{received_us:d}\0{rows:d}".encode()))
