"""Framed bodies.

Records as JSON, followed by the raw bytes of their payloads.
"""

import struct
from itertools import accumulate, pairwise

import msgspec

from outrider.monitor.http.problem import ProblemError, problem

_LENGTH = struct.Struct("<Q")


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    sizes: list[int]
    records: msgspec.Raw


_DECODE = msgspec.json.Decoder(_Head).decode


def split_frames(body: bytes) -> tuple[bytes, list[memoryview]]:
    """JSON of the records, and the parts as views of the body.

    Raises
    ------
    ProblemError
        400 when the lengths that the body states are not those that it has.

    Examples
    --------
    >>> head = b'{"sizes": [2, 1], "records": [{"id": "a"}]}'
    >>> records, parts = split_frames(len(head).to_bytes(8, "little") + head + b"xyz")
    >>> records, [bytes(part) for part in parts]
    (b'[{"id": "a"}]', [b'xy', b'z'])
    """
    if len(body) < _LENGTH.size:
        raise _bad(f"{len(body)} bytes, at least {_LENGTH.size} expected: the length of the JSON")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    if start > len(body):
        raise _bad(f"JSON of {length} bytes announced, {len(body) - _LENGTH.size} came")
    view = memoryview(body)
    try:
        head = _DECODE(view[_LENGTH.size : start])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f'{{"sizes": [...], "records": [...]}} expected: {error}') from None
    if any(size < 0 for size in head.sizes) or sum(head.sizes) != len(body) - start:
        raise _bad(f"parts of {sum(head.sizes)} bytes announced, {len(body) - start} came")
    ends = list(accumulate(head.sizes, initial=start))
    return bytes(head.records), [view[a:b] for a, b in pairwise(ends)]


def _bad(reason: str) -> ProblemError:
    return ProblemError(problem(400, f"framed body: {reason}"))
