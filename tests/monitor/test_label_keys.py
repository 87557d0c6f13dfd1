"""Keys of labels: one that is sent again, because its answer got lost, is stored once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrider.data_files import LeftOut
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.journal.stored_rows import read_stored
from outrider.monitor.files.blocks import FileBlock
from outrider.monitor.files.captures import CaptureNames
from outrider.monitor.files.columns import Names
from outrider.monitor.files.readers import ReadOptions, read_blocks
from tests.end_to_end.service import write_project

from .test_intake import Caller, ipc, running
from .workbench import Workbench, workbench


def labels_of(bench: Workbench, keys: Sequence[str | None], value: int = 1) -> None:
    """One block of labels of record r0."""
    at = pa.array([bench.now_us] * len(keys), pa.timestamp("us", tz="UTC"))
    columns: dict[str, Any] = {
        "id": ["r0"] * len(keys),
        "ts": at,
        "source": ["human"] * len(keys),
        "key": pa.array(keys, pa.string()),
        "label.label": [value] * len(keys),
    }
    bench.journal.append([Entry("labels", "toy", len(keys), ipc(pa.record_batch(columns)))], bench.now_us)


def test_label_with_a_known_key_is_stored_once_over_blocks_and_restarts(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        labels_of(bench, ["a", "a", "b", None])
        labels_of(bench, ["b", "c"])
        bench.work()
        labels_of(bench, ["a"], value=0)
        bench.restart()
        labels_of(bench, ["c", "d", None])
        bench.work()
        stored = bench.rows('SELECT "key", value FROM label ORDER BY seq, row')
        assert stored == [("a", "1"), ("b", "1"), (None, "1"), ("c", "1"), ("d", "1"), (None, "1")]
        assert bench.count("labels") == 6


def test_label_with_a_known_key_that_says_something_else_is_a_dead_letter(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        labels_of(bench, ["a", "a"])
        bench.work()
        labels_of(bench, ["a"])
        labels_of(bench, ["a", "b"], value=0)
        bench.work()
        assert bench.rows('SELECT "key", value FROM label ORDER BY seq, row') == [("a", "1"), ("b", "0")]
        letters = bench.rows("SELECT record_id, reason, detail FROM dead_letter")
        assert [(id_, reason) for id_, reason, _ in letters] == [("r0", "conflict")]
        assert "key of its own" in letters[0][2]


def test_equal_labels_of_two_people_stay_two(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        labels_of(bench, ["ann-1"])
        labels_of(bench, ["ben-1"])
        labels_of(bench, [None])
        bench.work()
        assert bench.rows("SELECT count(*) FROM label") == [(3,)]


def keys_in(call: Caller) -> list[str | None]:
    journal = SqliteJournal(call.intake.settings.journal_path, read_only=True)
    tables = [read_stored(block.payload).table for block in journal.read(0) if block.kind == "labels"]
    journal.close()
    return [key for table in tables for key in table.column("key").to_pylist()]


def test_intake_takes_keys_of_labels_as_json_and_arrow(tmp_path: Path) -> None:
    label = {"id": "a", "label": {"label": 1}}
    table = pa.record_batch({"id": ["a", "b"], "key": ["k3", None], "label.label": pa.array([1, 2])})
    arrow = {"content-type": "application/vnd.apache.arrow.stream"}
    with running(tmp_path) as call:
        at = "/v1/labels?model=churn"
        assert call("POST", at, json=[label | {"key": "k1"}, label]).json()["accepted"] == 2
        assert call("POST", at, content=ipc(table), headers=arrow).json()["accepted"] == 2
        for wrong in ("", "k" * 257, 1.5, ["k"]):
            refused = call("POST", at, json=label | {"key": wrong})
            assert refused.status_code == 422
            assert "key" in refused.json()["detail"]
        assert keys_in(call) == ["k1", None, "k3", None]


def keys_of(block: FileBlock) -> list[str]:
    rows = block.rows.to_pylist() if isinstance(block.rows, pa.Table) else block.rows
    return [row["key"] for row in rows]


def test_labels_of_a_file_have_the_keys_of_their_places_however_they_are_cut() -> None:
    rows = [{"id": "a", "label": {"label": 1}}, {"id": "b", "label": {"label": 2}}, {"id": "c", "key": "own"}]
    block = FileBlock("labels", rows, [4, 4, 5], 3, 1.0)
    first, second, own = keys_of(block.keyed("f"))
    assert (first != second, own) == (True, "own")
    assert keys_of(block.keyed("f").cut(1, 2)) == [second]
    assert keys_of(block.cut(1, 2).keyed("f")) == [second]
    assert keys_of(block.cut(1, 2).keyed("g")) != [second]
    assert keys_of(FileBlock("labels", rows[1:2], [5], 3, 1.0).keyed("f")) != [second]
    table = pa.table({"id": ["a", "b"], "key": ["own", None], "label.label": [1, 2]})
    own, third = keys_of(FileBlock("labels", table, [2, 3], 2, 1.0).keyed("f"))
    assert (own, len(third)) == ("own", 32)
    records = FileBlock("records", pa.table({"inputs.x": [1]}), [2], 1, 1.0)
    assert records.keyed("f") is records


def keys_by_line(path: Path) -> dict[int, str]:
    how = ReadOptions(Names(), CaptureNames(), rows=7)
    blocks = [block.keyed(path.name) for block in read_blocks(path, path.name, how, LeftOut())]
    assert {block.route for block in blocks} == {"labels"}
    return {at: key for block in blocks for at, key in zip(block.places, keys_of(block), strict=True)}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_repaired_file_of_labels_has_the_keys_that_it_had_but_on_the_repaired_line(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"labels.{ending}"
    rows = [{"id": f"r{n}", "label.score": n % 2} for n in range(40)]

    def write(rows: list[dict[str, Any]]) -> dict[int, str]:
        if ending == "csv":
            path.write_text("id,label.score\n" + "".join(f"{r['id']},{r['label.score']}\n" for r in rows))
        elif ending == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
        return keys_by_line(path)

    first = write(rows)
    assert len(first) == len(set(first.values())) == 40
    assert write(rows) == first
    rows[9]["label.score"] = 0.5  # the column has floats now
    repaired = write(rows)
    assert [at for at in first if repaired[at] != first[at]] == [11 if ending == "csv" else 10]
