"""Data folder in which a person stands in many places, and the search for traces of it."""

import gzip
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.improvement import jobs
from outrider.dataops.models import lineage
from outrider.dataops.models.lineage import Kind
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import DatasetVersion
from outrider.dataops.state.tables import table_of
from tests.databases import migrated

MARKER = "Marta Marker, 12 Marker Lane"
NUMBER = 8_675_309.125
GONE = "gone-1"
VERSION = table_of(DatasetVersion)


def table_of_rows(ids: list[str], *, label: int = 0) -> pa.Table:
    """Rows of which that of the person has a value of every kind that nobody else has."""
    is_gone = [GONE in key for key in ids]
    texts = [MARKER if mine else f"row {key}" for key, mine in zip(ids, is_gone, strict=True)]
    numbers = np.array(
        [NUMBER if mine else ord(key[-1]) - 97.0 for key, mine in zip(ids, is_gone, strict=True)]
    )
    flat = pa.array(np.repeat(numbers.astype(np.float32), 4))
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    tensors = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, 4))
    columns = {
        "id": pa.array(ids),
        "ts": pa.array([datetime(2026, 1, 5, tzinfo=UTC)] * len(ids), pa.timestamp("us", "UTC")),
        "entity": pa.array(texts),
        "inputs.text": pa.array(texts),
        "inputs.kind": pa.array(texts).dictionary_encode(),
        "inputs.number": pa.array(numbers),
        "inputs.image": tensors,
        "inputs.parts": pa.array([[{"said": text}] for text in texts]),
        "label.label": pa.array([label] * len(ids)),
        "label.note": pa.array(texts),
    }
    return pa.table(columns)


class World:
    """Data folder in which a person stands in many places."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = migrated(folder / "state.db")
        self.objects = LocalObjects(folder / "objects")

    def commit(
        self,
        ids: list[str],
        *,
        dataset: str = "d",
        append: bool = True,
        label: int = 0,
        removed: list[str] | None = None,
        validation: dict[str, Any] | None = None,
        notes: dict[str, Any] | None = None,
        test: str | None = None,
    ) -> Version:
        batch = Batch.from_arrow(table_of_rows(ids, label=label), model="m") if ids else None
        source = "behavioral test, m@1" if test else "human"
        with write(self.engine) as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset=dataset,
                batch=batch,
                provenance=[
                    Provenance(key, test or "edge", source, "held_out" if key == "b" else "train")
                    for key in ids
                ],
                append=append,
                removed=removed or [],
            )
            return changes.commit(connection, draft, validation=validation or {}, now_us=7, notes=notes or {})

    def report(self, rows: int) -> dict[str, Any]:
        """Validation as the trainer keeps it; that of one row is of somebody else's."""
        most = 0.0 if rows == 1 else NUMBER
        docs = b"<html></html>" if rows == 1 else f"<html>observed {NUMBER}, {MARKER}</html>".encode()
        warning = {"rule": "expect_x", "field": "inputs.number", "severity": "warning", "rows": 2}
        warnings = [
            warning | {"text": f"expect_x(): observed {NUMBER!r}", "ids": [GONE, "a"]},
            warning | {"rule": "range_growth", "text": f"values reach {NUMBER} widths", "ids": []},
        ]
        return {
            "rows": rows,
            "aggregates": {
                "rows": 99,
                "columns": {
                    "inputs.number": {"nulls": 0, "count": 9, "min": 0, "max": most, "mean": 1, "m2": 1},
                    "inputs.image.max": {"nulls": 0, "count": 9, "min": 0, "max": most},
                    "label.label": {"nulls": 0, "count": 9, "of": {"[0, 1]": [9, 0, 0]}},
                },
            },
            "data_docs": self.objects.put(gzip.compress(docs + str(rows).encode(), mtime=0)),
            "warnings": [] if rows == 1 else warnings,
        }

    def fill(self) -> None:
        leak = {"kind": "text", "between": ["x", "y"], "usual": False}
        leaks = {
            "leaks": [
                leak | {"rows": 2, "others": 2, "pairs": [[GONE, "x"], ["a", "y"]]},
                leak | {"rows": 1, "others": 1, "pairs": [["a", GONE]]},
            ],
            "repeats": [],
            "moved": {"train": 0},
        }
        self.commit(["a", "b", GONE, "c"], validation=self.report(4), notes={"leaks": leaks})
        self.commit(["d", "e"], validation=self.report(2))
        self.commit([GONE, "a"], label=1, validation=self.report(3))
        self.commit([], removed=[GONE, "d"])
        self.commit(["f"], append=False, validation=self.report(1))
        self.commit([GONE, "p"], dataset="replayed", append=False)
        self.commit([f"s/t/{GONE}~t", "s/t/a"], dataset="cases", append=False, test="s/t")
        self.commit(["q"], dataset="apart", notes={"leaks": leaks})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table_of_rows(["u", GONE]).schema) as writer:
            writer.write_table(table_of_rows(["u", GONE]))
        cases = table_of_rows([f"s/t/{GONE}", "s/t/u"]).append_column(
            "provenance.assertion", pa.array(["s/t", "s/t"])
        )
        failed = io.BytesIO()
        with pa.ipc.new_stream(failed, cases.schema) as writer:
            writer.write_table(cases)
        with write(self.engine) as connection:
            for table in (sink, failed):
                upload = {"dataset": "sent", "object": self.objects.put(table.getvalue())}
                jobs.add(connection, model="m", kind="dataset", params=upload, now_us=1)
            refused = {GONE: "label: wrong", "z": "label: wrong"}
            quarantine.hold(connection, "d", refused, rules="r", labels={}, now_us=1)
            edges: list[tuple[str, Kind, str, str]] = [
                ("m@1", "dataset", "d@2", "fresh"),
                ("m@2", "dataset", "d@4", "fresh"),
                ("m@3", "model", "m@1", "weights"),
                ("m@4", "dataset", "replayed@1", "replay"),
            ]
            for child, kind, parent, role in edges:
                lineage.add_edges(connection, "model", child, [(kind, parent, role)], now_us=1)

    def content(self) -> dict[str, Any]:
        """All that versions say of themselves and their rows, by name."""
        found: dict[str, Any] = {}
        with self.engine.connect() as connection:
            for version in datasets.all_versions(connection):
                table = datasets.read_table(connection, self.objects, version)
                origins = datasets.provenance(connection, version)
                found[version.id] = version, table.to_pylist(), origins
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.fill()
    yield world
    world.engine.dispose()


def traces(world: World, *markers: str) -> list[str]:
    """Places in objects and database with a marker, raw or decoded."""
    raw = world.engine.raw_connection()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.execute("VACUUM")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    found = []
    for path in sorted(path for path in world.folder.rglob("*") if path.is_file()):
        texts = decoded(path.read_bytes())
        found += [f"{path.name}: {marker}" for marker in markers for text in texts if marker.encode() in text]
    return found


def decoded(data: bytes) -> list[bytes]:
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        return [data, str(file.metadata.to_dict()).encode(), json.dumps(rows_of(file.read())).encode()]
    if data[:2] == b"\x1f\x8b":
        return [data, gzip.decompress(data)]
    if data[:4] == b"\xff\xff\xff\xff":
        return [data, json.dumps(rows_of(pa.ipc.open_stream(data).read_all())).encode()]
    return [data]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.drop_columns("ts").to_pylist()
    dictionaries = [
        chunk.dictionary.to_pylist()
        for column in table.columns
        if pa.types.is_dictionary(column.type)
        for chunk in column.chunks
    ]
    return [*json.loads(json.dumps(rows, default=lambda value: np.asarray(value).tolist())), dictionaries]
