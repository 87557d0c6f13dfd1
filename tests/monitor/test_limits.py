"""Bodies are bounded while they stream in."""

import asyncio
import gc
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from outrider.monitor.http.limits import BodyBounds, ByteBudget, ClientGone, check_json, read_body
from outrider.monitor.http.problem import ProblemError

TEXT = b'{"model": "churn", "inputs": {"age": 41}}\n' * 100


def read(
    chunks: Iterable[bytes],
    headers: dict[bytes, bytes] | None = None,
    *,
    max_bytes: int = 10_000,
    max_ratio: int = 100,
    take: Callable[[int], None] = lambda _: None,
) -> bytes:
    parts = list(chunks)

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    return asyncio.run(read_body(receive, headers or {}, BodyBounds(max_bytes, max_ratio), take=take))


def status(chunks: Iterable[bytes], headers: dict[bytes, bytes] | None = None, **options: Any) -> int:
    with pytest.raises(ProblemError) as raised:
        read(chunks, headers, **options)
    return raised.value.problem.status


def zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"zstd": zstd,
}


def test_a_plain_body_is_put_together() -> None:
    assert read([b"ab", b"", b"c"]) == b"abc"


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_compressed_bodies_are_inflated_whatever_the_chunks(encoding: bytes, step: int) -> None:
    packed = PACKERS[encoding](TEXT)
    chunks = [packed[i : i + step] for i in range(0, len(packed), step)]
    assert read(chunks, {b"content-encoding": encoding}) == TEXT


def test_raw_deflate_and_gzip_of_several_members_are_understood() -> None:
    assert read([raw_deflate(TEXT)], {b"content-encoding": b"deflate"}) == TEXT
    assert read([gzip.compress(b"a") + gzip.compress(b"b")], {b"content-encoding": b"gzip"}) == b"ab"


@pytest.mark.parametrize("encoding", [b"identity", b"gzip", b"zstd"])
@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_a_declared_length_beyond_the_limit_is_refused_before_reading(encoding: bytes) -> None:
    headers = {b"content-length": b"10001", b"content-encoding": encoding}
    assert status([], headers) == 413
    gc.collect()  # a file that nobody closed tells so


def test_a_body_beyond_the_limit_is_refused_while_it_streams() -> None:
    assert status([b"x" * 6000, b"x" * 6000, b"never read"]) == 413


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_bomb_is_refused(encoding: bytes) -> None:
    bomb = PACKERS[encoding](bytes(30_000_000))
    assert len(bomb) < 100_000
    assert status([bomb], {b"content-encoding": encoding}, max_bytes=100_000_000) == 413  # by its ratio
    assert status([bomb], {b"content-encoding": encoding}, max_bytes=2_000_000, max_ratio=10**9) == 413


@pytest.mark.parametrize("encoding", PACKERS)
def test_truncated_and_false_compression_is_a_400(encoding: bytes) -> None:
    packed = PACKERS[encoding](TEXT)
    assert status([packed[:-9]], {b"content-encoding": encoding}) == 400
    assert status([b"\x99 this is not compressed"], {b"content-encoding": encoding}) == 400


def test_an_unknown_encoding_is_a_415() -> None:
    assert status([b"x"], {b"content-encoding": b"br"}) == 415


def test_a_client_that_leaves_is_gone() -> None:
    async def leave() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        asyncio.run(read_body(leave, {}, BodyBounds(10, 10)))


def test_members_of_nothing_are_refused_and_blocks_of_a_log_are_not() -> None:
    empty, block = gzip.compress(b""), gzip.compress(bytes(range(256)) * 16)
    assert status([empty * 400], {b"content-encoding": b"gzip"}) == 413
    assert len(read([block * 200], {b"content-encoding": b"gzip"}, max_bytes=10**6)) == 200 * 4096


@pytest.mark.parametrize("element", [b"{},", b"[],", b'{"":1},', b'{"a":{}},'])
def test_json_that_would_grow_is_refused_by_its_punctuation(element: bytes) -> None:
    body = b"[" + element * (4_000_000 // len(element)) + b"0]"
    with pytest.raises(ProblemError, match="parsed_bytes"):
        check_json(body, 60_000_000)
    check_json(body[:1_000_000], 0)  # small ones cannot grow so far
    check_json(b"1.2345678," * 400_000, 60_000_000)


def test_the_byte_budget_lets_one_large_body_through_and_then_says_429() -> None:
    budget = ByteBudget(10)
    budget.take(50)
    with pytest.raises(ProblemError) as raised:
        budget.take(1)
    assert raised.value.problem.status == 429
    assert raised.value.problem.headers["retry-after"] == "1"
    budget.give(50)
    budget.take(1)


@pytest.mark.parametrize("encoding", [b"identity", *PACKERS])
def test_bytes_count_as_soon_as_they_stand_in_memory(encoding: bytes) -> None:
    body = bytes(range(256)) * 10
    packed = PACKERS[encoding](body) if encoding in PACKERS else body
    counted: list[int] = []
    assert read([packed], {b"content-encoding": encoding}, take=counted.append) == body
    held = packed if encoding == b"zstd" else b""
    assert sum(counted) == len(body) + len(held)
    half = packed[: len(packed) // 2]
    counted.clear()
    with pytest.raises(ClientGone):
        read_of_a_client_that_goes(half, encoding, counted)
    assert encoding != b"zstd" or sum(counted) == len(half)


def read_of_a_client_that_goes(half: bytes, encoding: bytes, counted: list[int]) -> bytes:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": half, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    headers = {b"content-encoding": encoding}
    return asyncio.run(read_body(receive, headers, BodyBounds(10_000, 100), take=counted.append))


def test_bodies_that_are_no_zstd_leave_no_memory_behind() -> None:
    headers = {b"content-encoding": b"zstd"}
    assert status([b"no zstd"], headers) == 400
    tracemalloc.start()
    try:
        for _ in range(20):
            status([b"no zstd"], headers)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
