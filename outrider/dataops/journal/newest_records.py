import contextlib
import sqlite3
from pathlib import Path

import pyarrow as pa

from outrider.assertions import Batch


def newest_records(
    journal: Path, model: str, *, most_rows: int, most_bytes: int | None = None
) -> Batch | None:
    """Newest records of one schema; at least one block, whatever ``most_bytes``."""
    if not journal.exists():
        return None
    found: list[Batch] = []
    rows = size = 0
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
        blocks = connection.execute(
            "SELECT payload FROM block WHERE kind = 'records' AND model = ? ORDER BY seq DESC", (model,)
        )
        for (payload,) in blocks:
            size += len(payload)
            if found and most_bytes is not None and size > most_bytes:
                break
            try:
                part = Batch.from_ipc(payload)
            except pa.ArrowException:
                continue
            if found and part.schema_digest != found[0].schema_digest:
                break
            found.append(part)
            rows += part.rows
            if rows >= most_rows:
                break
    return Batch.concat(found[::-1]).slice(max(0, rows - most_rows)) if rows else None
