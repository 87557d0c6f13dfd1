"""Blocks of the journal, read by their sequence number."""

from typing import Protocol


class Payload(Protocol):
    """One journal block."""

    @property
    def payload(self) -> bytes:
        """Arrow IPC of a Batch."""


class Blocks(Protocol):
    """Source of journal blocks; the journal is one."""

    def get(self, seq: int, /) -> Payload:
        """Block of that sequence number.

        KeyError when it has expired.
        """
