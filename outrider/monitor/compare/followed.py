"""Live traffic: mirrored requests, or records of a running service."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from outrider.assertions import Batch

from .askable import checked_kinds
from .questions import MODEL
from .redaction import Redaction
from .traffic import Traffic

NOTHING_YET = Batch.from_columns({}, model=MODEL, rows=0)
_IDS = ("x-request-id", "x-outrider-id")


class FollowedTraffic(Traffic):
    """Questions of live traffic, in blocks of JSON lines or tables; a block of None means that nothing
    arrived."""

    def __init__(
        self,
        blocks: Iterable[Sequence[bytes] | pa.Table | None],
        name: str,
        *,
        drop: Iterable[str] = (),
        hash: Iterable[str] = (),
        safe: Iterable[str] = (),
    ) -> None:
        self._blocks, self._name = blocks, name
        self._redaction = Redaction(drop, hash)
        self._safe = checked_kinds([*safe])
        self._start()

    def __iter__(self) -> Iterator[Batch]:
        self._start()
        self._file = self._name
        place = 0
        for block in self._blocks:
            rows = 0 if block is None else len(block)
            places = range(place + 1, place + rows + 1)
            place += rows
            found: Iterable[Batch] = ()
            if isinstance(block, pa.Table):
                found = self._of_columns(block, places, self._name)
            elif block is not None:
                found = self._batches(self._questions(zip(places, block, strict=True)), self._name)
            for batch in found:
                yield self._redacted_batch(batch)
            yield NOTHING_YET


def mirrored_line(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Encode a mirrored request as a JSON line of traffic.

    Examples
    --------
    >>> mirrored_line("/v1/chat/completions", {"x-request-id": "r1"}, b'{"messages":[]}')
    b'{"path":"/v1/chat/completions","request":{"messages":[]},"id":"r1"}'
    """
    line: dict[str, object] = {"path": path, "request": _raw(body)}
    id_ = next((headers[name] for name in _IDS if name in headers), None)
    return msgspec.json.encode(line if id_ is None else line | {"id": id_})


def _raw(body: bytes) -> object:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        return msgspec.Raw(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")
