from typing import Protocol


class BlockPayload(Protocol):
    @property
    def payload(self) -> bytes: ...


class BlockSource(Protocol):
    """Source of blocks by number, such as the journal."""

    def get(self, seq: int, /) -> BlockPayload:
        """``KeyError`` if expired."""
