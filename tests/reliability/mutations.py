"""Hostile variations of a valid request: of its values, its structure, its bytes and its headers."""

import copy
import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Headers = dict[str, str]
_DEEP = "[" * 3000
HOSTILE: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**63, -(2**63) - 1, 10**30, 1e308, "", " ", "x", "0", "NaN", "1e999",
    "\u0000", "\u202e", "😀" * 40, "x" * 5000, "../../etc/passwd", "2026-01-05T10:00:00Z", "9999-99-99", [],
    {}, [[]], [{}], [None], [1, "x"], [[1], [1, 2]], [1e300] * 3, {"": 1},
    {"a": {"b": {"c": 1}}}, {"x" * 300: 1},
    {"$bytes": "!!"}, {"$bytes": "AAAA", "media_type": "image/png"}, {"$uri": "file:///etc/passwd"},
    {"$part": 7}, {"stringValue": "x"}, {"arrayValue": {}}, {"doubleValue": "x"},
]  # fmt: skip
_RAW = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 400,
    b'"\\ud800"',
    b'"\xff"',
    _DEEP.encode(),
    b"{",
    b"]",
    b",,",
]
_TYPES = [
    "", "text/plain", "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream",
    "application/vnd.outrider.framed", "application/octet-stream", "application/cloudevents+json",
    "application/cloudevents-batch+json", "application/x-protobuf", "application/json; charset=x", "\x7f",
]  # fmt: skip
_NAMES = [
    "x-request-id", "ce-id", "traceparent", "content-length", "host", "ce-type", "ce-time", "ce-specversion",
    "inference-header-content-length", "x-outrider-mirror",
]  # fmt: skip
_VALUES = [
    "",
    "0",
    "-1",
    "1",
    "99999999999999999999",
    "1.0",
    "x" * 400,
    "a,b",
    "é",
    "00-00-00-00",
    "\t",
    "true",
]


@dataclass(frozen=True)
class Request:
    """One request as it goes on the wire."""

    path: str
    headers: Headers
    body: bytes
    method: str = "POST"


def mutated(request: Request, rng: random.Random) -> Request:
    """The request with one to three things changed."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        request = rng.choice(_KINDS)(request, rng)
    return request


def _value(request: Request, rng: random.Random) -> Request:
    """Another value, a missing or a doubled member, somewhere in JSON."""
    parsed = _parsed(request.body)
    if parsed is None:
        return _bytes(request, rng)
    parsed = copy.deepcopy(parsed)
    places = list(_places(parsed, 0))
    if not places:
        return replace(request, body=_dumped(rng.choice(HOSTILE)))
    holder, key = rng.choice(places)
    act = rng.randrange(5)
    if act == 0:
        del holder[key]
    elif act == 1 and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * rng.randrange(1, 40))
    elif act == 2 and isinstance(holder, dict):
        holder[rng.choice(["", key + "x", "id", "model", "x" * 300])] = holder.pop(key)
    elif act == 3:
        holder[key] = {"a": [holder[key]]}
    else:
        holder[key] = copy.deepcopy(rng.choice(HOSTILE))
    return replace(request, body=_dumped(parsed))


def _raw(request: Request, rng: random.Random) -> Request:
    """Something that JSON cannot say, in place of a value."""
    at = [place for place, byte in enumerate(request.body) if byte in b":,["]
    if not at:
        return _bytes(request, rng)
    start = rng.choice(at) + 1
    return replace(request, body=request.body[:start] + rng.choice(_RAW) + request.body[start + 1 :])


def _bytes(request: Request, rng: random.Random) -> Request:
    """Bytes cut off, changed, doubled or put in; lengths written anew."""
    body = bytearray(request.body or b"\0")
    at = rng.randrange(len(body))
    act = rng.randrange(5)
    if act == 0:
        del body[at:]
    elif act == 1:
        for _ in range(rng.randrange(1, 5)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    elif act == 2:
        body[at:at] = body[at : at + rng.randrange(200)]
    elif act == 3:
        body[at:at] = rng.randbytes(rng.randrange(1, 30))
    else:
        body[at : at + 4] = rng.choice([0, 1, 255, 2**31 - 1, 2**32 - 1]).to_bytes(4, "little")
    return replace(request, body=bytes(body))


def _headers(request: Request, rng: random.Random) -> Request:
    """A header that is missing, new, or says something else."""
    headers = dict(request.headers)
    names = [name for name in headers if name != "authorization"]
    act = rng.randrange(4)
    if act == 0 and names:
        del headers[rng.choice(names)]
    elif act == 1 and names:
        headers[rng.choice(names)] = rng.choice(_VALUES)
    elif act == 2:
        headers["content-type"] = rng.choice(_TYPES)
    else:
        name = rng.choice(_NAMES)
        headers[name] = rng.choice(_VALUES)
    return replace(request, headers=headers)


def _encoding(request: Request, rng: random.Random) -> Request:
    """A compressed body, whole or broken, or one that only says so."""
    name, packed = rng.choice(
        [
            ("gzip", gzip.compress(request.body, 1)),
            ("deflate", zlib.compress(request.body, 1)),
            ("gzip", request.body),
            ("zstd", request.body),
            ("br", request.body),
            ("gzip", gzip.compress(bytes(200_000), 9) if rng.random() < 0.02 else b"\x1f\x8b"),
        ]
    )
    if rng.random() < 0.3:
        packed = packed[: rng.randrange(len(packed) + 1)]
    return replace(request, headers=request.headers | {"content-encoding": name}, body=packed)


def _path(request: Request, rng: random.Random) -> Request:
    """Other paths and queries of the same intake."""
    ending = rng.choice(
        ["?model=churn", "?model=", "?join=true", "?join=x", "?model=%ff%00", "/", "?" + "a=b&" * 50]
    )
    return replace(request, path=request.path + ending)


_KINDS: list[Callable[[Request, random.Random], Request]] = [
    _value, _value, _value, _value, _raw, _bytes, _bytes, _headers, _headers, _encoding, _path,
]  # fmt: skip


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _places(value: Any, depth: int) -> Any:
    """Every (container, key) of a nest."""
    if depth > 20 or not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key], depth + 1)
