from typing import Protocol


class BlockPayload(Protocol):
    @property
    def payload(self) -> bytes: ...


class BlockSource(Protocol):
    def get(self, seq: int, /) -> BlockPayload:
        """``KeyError`` if expired."""
