"""Work board: versions under work, in memory that outlives the engine.

Written by the engine at every step (a microsecond), read by the client only when answers are late or the
process has ended.
"""

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Sequence

from .asks import Name

_BYTES = 1 << 16
_HEAD = struct.Struct("=QI")
_MOST_KNOWN = 1024


class WorkBoard:
    """Shared memory with the names of the versions under work.

    Examples
    --------
    >>> board = WorkBoard.create()
    >>> WorkBoard(os.dup(board.fd)).show([("m", "2")])
    >>> board.names, board.steps
    ([('m', '2')], 1)
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _BYTES)
        self._texts: dict[tuple[Name, ...], bytes] = {}

    @classmethod
    def create(cls) -> "WorkBoard":
        with tempfile.TemporaryFile() as file:
            file.truncate(_BYTES)
            return cls(os.dup(file.fileno()))

    def show(self, names: Sequence[Name]) -> None:
        key = tuple(names)
        text = self._texts.get(key)
        if text is None:
            text = json.dumps(key).encode()
            text = b"[]" if len(text) > _BYTES - _HEAD.size else text  # so many at once name no one
            if len(self._texts) >= _MOST_KNOWN:
                self._texts.clear()
            self._texts[key] = text
        steps = _HEAD.unpack_from(self._map)[0] + 1
        _HEAD.pack_into(self._map, 0, steps, 0)
        self._map[_HEAD.size : _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._map, 0, steps, len(text))

    @property
    def steps(self) -> int:
        return int(_HEAD.unpack_from(self._map)[0])

    @property
    def names(self) -> list[Name]:
        _, length = _HEAD.unpack_from(self._map)
        try:
            found = json.loads(self._map[_HEAD.size : _HEAD.size + min(length, _BYTES)] or b"[]")
            return [(model, version) for model, version in found]
        except ValueError:  # read while it was written
            return []

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)
