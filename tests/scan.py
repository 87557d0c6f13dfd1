"""Search of a whole folder for markers, through every format that hides them from a search of raw bytes."""

import gzip
import io
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ZSTD, GZIP, ARROW_FILE, PARQUET = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"ARROW1", b"PAR1"
SQLITE = b"SQLite format 3\0"


def needles(*markers: str | float) -> list[bytes]:
    """Forms of markers in files: texts, and numbers as text and in both precisions."""
    found: list[bytes] = []
    for marker in markers:
        if isinstance(marker, str):
            found += [marker.encode(), marker.encode("utf-16-le")]
        else:
            found += [repr(marker).encode(), struct.pack("<d", marker), struct.pack(">d", marker)]
            found.append(struct.pack("<f", marker))
    return found


def places(folder: Path, wanted: Sequence[bytes], *, but: Sequence[str] = ()) -> list[str]:
    """Where a folder holds one of the markers, in any file, row, stream, freed page or log."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in but:
            found += [f"{name}{inside}" for inside in _in_bytes(path.read_bytes(), wanted, depth=0)]
            if any(one in name.encode() for one in wanted):
                found.append(f"name of {name}")
            if path.read_bytes()[:16] == SQLITE:
                found += [f"{name}{inside}" for inside in _in_database(path, wanted)]
    return found


def _in_bytes(data: bytes, wanted: Sequence[bytes], *, depth: int) -> Iterator[str]:
    if any(one in data for one in wanted):
        yield ""
    if depth > 4:
        return
    for name, opened in _opened(data):
        yield from (f" > {name}{inside}" for inside in _in_bytes(opened, wanted, depth=depth + 1))


def _opened(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What the bytes are when they are opened as what they may be."""
    if data[:4] == ZSTD:
        with suppress(pa.ArrowException, OSError, ValueError):
            yield "zstd", pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    if data[:2] == GZIP:
        with suppress(OSError, EOFError, zlib.error):
            yield "gzip", gzip.decompress(data)
    if data[:1] == b"\x78":
        with suppress(zlib.error):
            yield "zlib", zlib.decompress(data)
    if data[:4] == PARQUET:
        with suppress(pa.ArrowException, OSError):
            yield "parquet", _values(pq.read_table(io.BytesIO(data)))
    if data[:6] == ARROW_FILE:
        with suppress(pa.ArrowException, OSError):
            yield "arrow file", _values(pa.ipc.open_file(data).read_all())
    if data[:4] == b"\xff\xff\xff\xff":
        source = pa.BufferReader(data)
        with suppress(pa.ArrowException, OSError, StopIteration):
            while source.tell() < len(data):
                yield "arrow stream", _values(pa.ipc.open_stream(source).read_all())


def _values(table: pa.Table) -> bytes:
    """All values of a table, texts, bytes and numbers, and its metadata, one after the other."""
    parts: list[bytes] = [
        repr(table.schema.metadata).encode(),
        *(name.encode() for name in table.column_names),
    ]
    for column in table.columns:
        flat = column.combine_chunks()
        is_extension = isinstance(column.type, pa.BaseExtensionType)
        parts += [_written(value) for value in (flat.storage if is_extension else flat).to_pylist()]
    return b"\0".join(parts)


def _written(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return repr(value).encode() + struct.pack("<d", value)
    if isinstance(value, dict):
        return b"\0".join(key.encode() + b"\0" + _written(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return b"\0".join(map(_written, value))
    return str(value).encode()


def _in_database(path: Path, wanted: Sequence[bytes]) -> Iterator[str]:
    """Rows of a database: content that lies on several pages stands in none of them as a whole."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else _written(value)
                    yield from (f" {table}{inside}" for inside in _in_bytes(data, wanted, depth=0))
