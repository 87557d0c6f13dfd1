"""The client and a real intake: what was captured stands in the journal, and every call is accounted for."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions.batch import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.client import Client, _Exchange
from tests.soak import PATIENCE_S

from .receiver import nothing_is_left
from .test_intake import key_of, process

__all__ = ["nothing_is_left"]  # a fixture, for every test here


def stored(folder: Path) -> list[Batch]:
    journal = SqliteJournal(folder / "outrider-data" / "journal.db")
    blocks = [block for block in journal.read(0, limit=1000) if block.kind == "records"]
    journal.close()
    return [
        Batch.from_arrow(batch) for block in blocks for batch in pa.ipc.open_stream(block.payload)
    ]  # fmt: skip


def test_large_values_arrive_as_they_were_at_call_time(tmp_path: Path) -> None:
    pixels = np.arange(3072, dtype=np.float32).reshape(32, 32, 3)
    small = np.arange(4, dtype=np.int16)
    photo, text = bytes(range(256)) * 100, "ä" * 70_000
    with process(tmp_path) as (_, url):
        client = Client(url, key_of(tmp_path), model="churn")
        client.capture({"text": "a short one in the same column"}, {"score": 0.4})
        client.capture(
            {"pixels": pixels, "small": small, "text": text, "age": 41},
            {"score": 0.5},
            attrs={"photo": {"$bytes": photo, "media_type": "image/png"}},
        )
        pixels[:] = 0
        small[:] = 0
        assert client.flush(PATIENCE_S)
        assert client.counts.acknowledged == 2
        client.close()
    batch = stored(tmp_path)[-1]
    batch = batch.slice(batch.rows - 1)
    assert np.array_equal(batch.tensor("inputs.pixels")[0].ravel(), np.arange(3072))
    assert np.array_equal(batch.tensor("inputs.small")[0], np.arange(4))
    assert batch.column("inputs.age")[0] == 41
    [row] = batch.to_arrow().to_pylist()
    assert row["inputs.text"] == text
    assert (row["attrs.photo"]["bytes"], row["attrs.photo"]["media_type"]) == (photo, "image/png")


def test_what_is_no_text_costs_a_character_and_no_neighbours(tmp_path: Path) -> None:
    with process(tmp_path) as (_, url):
        client = Client(url, key_of(tmp_path), model="churn")
        with client._memory.lock:  # one block
            client.capture({"photo": b"framed"}, {}, id="a")
            client.capture({"text": "odd \ud800"}, {}, id="b")
            exchange = _Exchange(client, 1000, "c", "")
            exchange.sides[0].see(rb'{"text": "\ud83d\ude00 \udfff"}')
            exchange.status = 200
            exchange.capture()
        assert client.flush(PATIENCE_S)
        assert client.counts.acknowledged == 3
        client.close()
    texts = [row.get("inputs.text") for batch in stored(tmp_path) for row in batch.to_arrow().to_pylist()]
    assert texts == [None, "odd ?", "\U0001f600 ?"]


def test_every_call_is_accounted_for_while_the_intake_goes_away_and_comes_back(tmp_path: Path) -> None:
    kept: set[Any] = set()
    calls = 0
    with process(tmp_path) as (_, url):
        client = Client(url, key_of(tmp_path), model="churn", rate=0.5)
        for i in range(200):
            kept.add(client.capture({"i": i}, {"score": 0.5}, entity=f"u{i % 20}"))
            calls += 1
        assert client.flush(PATIENCE_S)
    for i in range(200):  # it was killed: these wait
        kept.add(client.capture({"i": i}, {"score": 0.5}, entity=f"u{i % 20}"))
        kept.add(client.capture({"i": object()}, {}, entity=f"u{i % 20}"))
        calls += 2
    counts = client.counts
    assert counts.queued > 0
    with process(tmp_path) as (_, again):
        client.url = again
        assert client.flush(PATIENCE_S)
        client.close()
    counts = client.counts
    assert counts.offered == calls == 600
    assert counts.queued == counts.shed == 0
    assert counts.offered == counts.sampled_out + counts.error + counts.acknowledged
    ids = [id for batch in stored(tmp_path) for id in batch.column("id")]
    assert len(ids) == len(set(ids)) == counts.acknowledged
    assert set(ids) == kept - {None}
