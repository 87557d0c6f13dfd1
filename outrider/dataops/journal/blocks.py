"""Blocks of the journal, read by their sequence number."""

from typing import Protocol


class BlockPayload(Protocol):
    """One journal block."""

    @property
    def payload(self) -> bytes:
        """Arrow IPC of a Batch."""


class BlockSource(Protocol):
    """Source of journal blocks; the journal is one."""

    def get(self, seq: int, /) -> BlockPayload:
        """Block of that sequence number; KeyError when expired."""
