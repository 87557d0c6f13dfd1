"""Blocks of the journal, as appended and as read back."""

import zlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["records", "labels", "tick", "kept", "step"]
"""``kept``: records of which only some payloads are left; nobody judges them again. ``step``: see `clock`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Block of one model, to append."""

    kind: Kind
    """``records``, ``labels``, ``tick`` (time passed and nothing came; model ``""``, no payload), or ``step``
    (the clock was set; model ``""``): see `step_entry`."""
    model: str
    """Name of the model."""
    rows: int
    """Rows in the payload."""
    payload: bytes
    """Arrow IPC stream."""
    digest: str = ""
    schema: bytes = b""
    """``digest`` and ``schema``: digest of the payload's schema and the serialized schema itself. A digest
    not seen before is remembered in the same commit; ``""`` remembers nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """Stored entry with place and receipt (µs since the epoch, UTC).

    ``damage`` says what is wrong with a block that is not what was written; it has no payload then, the time
    of the block before it, and whatever else can still be read of it.
    """

    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    payload: bytes
    damage: str = ""


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block without its payload, but with its size."""

    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    bytes: int


def step_entry(by_us: int) -> Entry:
    """The border that a clock leaves which was set by so much."""
    return Entry("step", "", 0, str(by_us).encode())


def checksum(kind: str, model: str, received_us: int, rows: int, payload: bytes) -> int:
    """CRC-32 of a block, to detect a flipped bit in storage."""
    return zlib.crc32(payload, zlib.crc32(f"{kind}\0{model}\0{received_us:d}\0{rows:d}".encode()))
