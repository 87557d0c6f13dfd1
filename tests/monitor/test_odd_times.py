"""Times of any year stop no page, no query, no export and no worker."""

from pathlib import Path

import pyarrow as pa
import pytest
from fastapi import FastAPI

from outrider.assertions import Batch
from outrider.assertions.batch import TIME
from outrider.connection import _frame
from outrider.dataops.journal.journal import Entry
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service
from tests.asgi import get
from tests.end_to_end.service import write_project
from tests.keyrings import keyring_in

from .workbench import START_US, Workbench, workbench

ODD = (253_402_300_799_999_999, -62_135_647_200_000_000, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1, -1, 0)


def feed_odd(bench: Workbench) -> None:
    rows = len(ODD)
    times = pa.array(ODD, pa.int64()).cast(TIME)
    batch = Batch.from_columns(
        {
            "id": [f"odd{row}" for row in range(rows)],
            "ts": times,
            "received": pa.repeat(pa.scalar(START_US, TIME), rows),
            "entity": [f"e{row % 3}" for row in range(rows)],
            "inputs.x": [0.95, 0.51] * (rows // 2),
            "inputs.when": times,
            "attrs.device": ["a"] * rows,
        },
        model="toy",
    )
    labels = pa.record_batch(
        {
            "id": [f"odd{row}" for row in range(rows)],
            "ts": times,
            "source": ["human"] * rows,
            "label.label": [1] * rows,
            "label.when": times,
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, labels.schema) as writer:
        writer.write_batch(labels)
    entries = [
        Entry("records", "toy", rows, batch.to_ipc()),
        Entry("labels", "toy", rows, sink.getvalue().to_pybytes()),
    ]
    bench.journal.append(entries, START_US)


def test_pages_queries_and_exports_show_records_of_any_year(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([{"id": "plain", "inputs": {"x": 0.95}, "entity": "e0"}])
        feed_odd(bench)
        bench.feed([{"id": "later", "inputs": {"x": 0.1}, "entity": "e0"}])
        bench.work()
        assert bench.count("records") == 2 + len(ODD)
        assert {f"odd{row}" for row in range(0, len(ODD), 2)} <= bench.flags("too_high")
        app = FastAPI()
        keyring = keyring_in(bench.settings.data_folder)
        app.include_router(every_router(Service.open(bench.settings, keyring)))
        pages = ["", "/flags", "/behavior", *(f"/records/odd{row}" for row in range(len(ODD)))]
        queries = [
            "flags?model=toy&limit=500",
            "overview?model=toy",
            "assertions/toy/too_high",
            "assertions?model=toy",
        ]
        queries += ["incidents?model=toy", "label-requests?model=toy", "overlaps?model=toy"]
        paths = [*(f"/m/toy{page}" for page in pages), *(f"/v1/{query}" for query in queries)]
        for path in ["/assertions/toy/too_high", *paths]:
            answer = get(app, path)
            assert answer.status_code == 200, (path, answer.text[:500])
        flags = get(app, "/v1/flags?model=toy&limit=500").json()
        assert len(_frame(flags["flags"])) >= len(ODD) // 2
        block = get(app, "/v1/records?model=toy&after=1")
        assert Batch.from_ipc(block.content).to_records()[2]["ts"].startswith("148108-07-06T14:00:27")


@pytest.mark.parametrize("us", ODD)
def test_a_record_of_any_year_can_be_told_as_json(us: int) -> None:
    column = pa.array([us], pa.int64()).cast(TIME)
    [told] = Batch.from_columns({"ts": column, "inputs.at": column}, model="m").to_records()
    assert told["ts"] == told["inputs"]["at"]
    assert told["ts"].endswith("Z")
