"""A file's questions come in a drawn order: each conversation once, nothing lost, the same by one seed."""

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from outrider.errors import ConfigError
from outrider.monitor.compare import drawn_order
from outrider.monitor.compare.drawn_order import DrawnTraffic, drawn_rows
from outrider.monitor.compare.traffic import ROWS, Traffic


def records(found: DrawnTraffic) -> list[dict[str, Any]]:
    return [record for batch in found for record in batch.to_records()]


@pytest.mark.costly("files beyond what memory holds are drawn from")
@pytest.mark.parametrize("kept_bytes", [drawn_order.KEPT_BYTES, 0])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "csv.gz", "jsonl", "jsonl.gz", "json"])
def test_every_file_comes_whole_and_in_another_order(
    ending: str, kept_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_order, "KEPT_BYTES", kept_bytes)
    monkeypatch.setattr(drawn_order, "BLOCK_BYTES", 100_000)
    x = np.arange(2 * ROWS + 100)
    frame = pd.DataFrame({"inputs.x": x, "attrs.c": (x // 100).astype(str)})
    path = tmp_path / f"a.{ending}"
    rows = [{"inputs": {"x": int(at)}, "attrs": {"c": str(at // 100)}} for at in x]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if ending == "parquet":
        frame.to_parquet(path, index=False)
    elif ending == "arrow":
        pyarrow.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif ending.startswith("csv"):
        frame.to_csv(path, index=False)
    else:
        body = json.dumps(rows).encode() if ending == "json" else lines
        path.write_bytes(gzip.compress(body) if ending.endswith("gz") else body)
    drawn = DrawnTraffic(Traffic([path]), 1)
    found = records(drawn)
    order = [record["inputs"]["x"] for record in found]
    assert sorted(order) == x.tolist()
    assert abs(np.corrcoef(order, x)[0, 1]) < 0.05
    assert all(str(record["attrs"]["c"]) == str(record["inputs"]["x"] // 100) for record in found)
    assert [record["inputs"]["x"] for record in records(drawn)] == order
    assert [record["inputs"]["x"] for record in records(DrawnTraffic(Traffic([path]), 2))] != order
    assert drawn.funnel()["askable"] == len(x)


def test_conversations_are_drawn_alike_whatever_their_length() -> None:
    entities = np.repeat(np.arange(200), [1, 30] * 100).astype(np.uint64)
    first = np.array([(entities[drawn_rows(entities, seed)[:20]] % 2).mean() for seed in range(200)])
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(20 * 200)
    turns = np.zeros(30)
    for seed in range(300):
        rows = drawn_rows(entities[:31], seed)
        turns[rows[rows > 0] - 1] += 1
    assert turns.sum() == 300
    assert turns.max() < 30


def test_of_each_entity_one_record_is_asked_and_the_others_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"inputs.x": range(60), "entity": ["a", "b", None] * 20}), tmp_path / "a.parquet")
    drawn = DrawnTraffic(Traffic([tmp_path / "a.parquet"]))
    found = [record.get("entity") for record in records(drawn)]
    assert (found.count("a"), found.count("b"), found.count(None)) == (1, 1, 20)
    assert drawn.funnel()["further turns"] == 38


def test_columns_that_come_later_and_other_types_are_kept(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": str(at)}]} for at in range(300)]
    early = [{"inputs": {"x": at}} for at in range(300)]
    late = [{"inputs": {"x": at, "y": 1.5}, "attrs": {"c": "DE"}} for at in range(300, 600)]
    odd = [{"inputs": {"x": f"t{at}"}} for at in range(300)]
    for name, rows in (("a", chats), ("b", early), ("c", late), ("d", odd)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    batches = list(DrawnTraffic(Traffic([tmp_path])))
    found = [record for batch in batches for record in batch.to_records()]
    values = [record["inputs"].get("x", record["inputs"].get("request")) for record in found]
    assert {*values} == {*range(600)} | {f"t{at}" for at in range(300)} | {json.dumps(each) for each in chats}
    assert [r["attrs"] for r in found if r["inputs"].get("x") == 400] == [{"c": "DE"}]
    first = sum(batch.rows for batch in batches[:3])
    assert first <= 64  # of each kind a part, not one kind first


def test_tensors_and_categories_are_drawn(tmp_path: Path) -> None:
    values = np.arange(40, dtype=np.float32).reshape(10, 2, 2)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    kinds = pa.array([str(at % 3) for at in range(10)]).dictionary_encode()
    table = pa.table({"inputs.image": tensor, "attrs.kind": kinds})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.select(["inputs.image"]), tmp_path / "b.parquet")
    batches = list(DrawnTraffic(Traffic([tmp_path])))
    images = np.concatenate([batch.column("inputs.image").reshape(-1, 4) for batch in batches])
    assert sorted(images[:, 0].tolist()) == sorted([*range(0, 40, 4)] * 2)


def test_a_folder_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"inputs.x": range(10)}), tmp_path / "a.parquet")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="TMPDIR"):
        list(DrawnTraffic(Traffic([tmp_path / "a.parquet"])))


def test_reading_that_is_stopped_keeps_what_was_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"inputs.x": range(5 * ROWS)}), tmp_path / "a.parquet")
    stop = threading.Event()
    drawn = DrawnTraffic(Traffic([tmp_path / "a.parquet"]), stop=stop)
    stop.set()
    assert sum(batch.rows for batch in drawn) == ROWS


def test_no_record_gives_no_batch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n", "utf-8")
    assert list(DrawnTraffic(Traffic([tmp_path / "a.jsonl"]))) == []
