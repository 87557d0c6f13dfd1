"""``POST /v1/labels`` with an entity and a time, from the request to the record's page."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.journal.stored_rows import read_stored
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.rows import TableColumns
from outrider.monitor.worker.champion import label_columns
from tests.end_to_end.service import write_project

from .test_intake import Caller, ipc, running
from .test_worker import record
from .workbench import workbench

AT = "2026-01-05T10:00:00Z"
AT_US = 1_767_607_200_000_000


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Caller]:
    with running(tmp_path) as caller:
        yield caller


def rows(call: Caller) -> list[tuple[Any, ...]]:
    """What the worker makes of every label block in the journal."""
    journal = SqliteJournal(call.intake.settings.journal_path, read_only=True)
    blocks = [block for block in journal.read(0) if block.kind == "labels"]
    journal.close()
    made = TableColumns(Label)
    for block in blocks:
        labels = read_stored(block.payload)
        columns = {"seq": block.seq, "model": "churn", "received_us": block.received_us}
        made.add(len(labels.rows), columns | label_columns(labels, "label"))
    return list(made.rows())


def test_labels_name_a_record_or_an_entity_and_a_time(call: Caller) -> None:
    labels = [
        {"entity": "u7", "ts": AT, "label": {"label": 1}},
        {"id": "a1", "label": {"label": 0}},
        {"id": "a2", "entity": "u7", "ts": AT, "label": {"label": 0}},
        {"label": {"label": 0}, "ts": AT},
        {"entity": "u7", "label": {"label": 0}},
    ]
    answer = call("POST", "/v1/labels?model=churn", json=labels)
    assert answer.json()["accepted"] == 3
    assert {r["index"]: r["field"] for r in answer.json()["rejected"]} == {3: "id", 4: "ts"}
    table = pa.record_batch(
        {
            "entity": ["u8"],
            "ts": pa.array([AT_US], pa.timestamp("us", tz="UTC")),
            "label.label": pa.array([2], pa.int64()),
        }
    )
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    assert call("POST", "/v1/labels?model=churn", content=ipc(table), headers=headers).status_code == 202
    seen = [(row[3], row[9], json.loads(row[6])["label"]) for row in rows(call)]
    assert seen == [("", "u7", 1), ("a1", None, 0), ("a2", None, 0), ("", "u8", 2)]
    assert [row[7] for row in rows(call) if row[9]] == [AT_US, AT_US]


def label_of(entity: str, at_us: int) -> Entry:
    """Label block of one entity, in the columns that intake writes."""
    columns: dict[str, Any] = {
        "id": pa.array([None], pa.string()),
        "ts": pa.array([at_us], pa.timestamp("us", tz="UTC")),
        "source": ["human"],
        "entity": [entity],
        "label.label": [1],
    }
    return Entry("labels", "toy", 1, ipc(pa.record_batch(columns)))


def test_the_worker_joins_them_before_and_after_their_record(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        between = bench.now_us + 150_000  # behind the first record of u, before its second
        bench.journal.append([label_of("u", between), label_of("v", between)], bench.now_us)
        bench.work()
        query = "SELECT entity, record_id FROM label ORDER BY seq"
        assert bench.rows(query) == [("u", ""), ("v", "")]
        bench.feed([record(0, 0.95, entity="u")])
        bench.feed([record(1, 0.95, entity="u")])
        bench.restart()
        bench.work()
        bench.journal.append([label_of("u", between + 100_000)], bench.now_us)
        bench.work()
        assert bench.rows(query) == [("u", "r0"), ("v", ""), ("u", "r1")]
        assert bench.count("labels") == 3
