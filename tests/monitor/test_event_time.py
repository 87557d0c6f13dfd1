"""Event times of years outside 1970 to 2200 are refused, alone, on every way in."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions.batch import TIME
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.stream.event_time import END_US
from tests.monitor.otlp.exports import as_json, receiving, span, traces

from .decoding import decode_body

RECEIVED = 1_700_000_000_000_000
FINE = ("1970-01-01T00:00:00Z", "2200-12-31T23:59:59.999999Z", "2026-01-05T10:00:00+14:00", None)
WRONG = (
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00",
    "1969-12-31T23:59:59.999999Z",
    "2201-01-01T00:00:00Z",
    "1970-01-01T00:00:00+00:01",
    "2200-12-31T23:59:59-00:01",
)
"""The last two are of these years by their own clocks alone."""


def sent(times: tuple[str | None, ...]) -> list[dict[str, Any]]:
    return [
        {"model": "churn", "id": f"r{row}", "inputs": {"age": 41}} | ({"ts": ts} if ts else {})
        for row, ts in enumerate(times)
    ]


def decode(decoder: Decoder, body: bytes, **options: Any) -> Decoded:
    arguments: dict[str, Any] = {"kind": "records", "form": "json", "received_us": RECEIVED} | options
    return decode_body(decoder, body, **arguments)


def framed(records: bytes) -> bytes:
    head = b'{"sizes": [], "records": ' + records + b"}"
    return len(head).to_bytes(8, "little") + head


def stream(table: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def ids(decoded: Decoded) -> list[str]:
    return [id_ for block in decoded.blocks for id_ in block.table.column("id").to_pylist()]


@pytest.mark.parametrize("is_known", [False, True], ids=["general", "fast"])
@pytest.mark.parametrize("form", ["json", "lines", "framed"])
def test_json_year_outside_refused_alone_with_index_field_and_reason(form: str, is_known: bool) -> None:
    decoder = Decoder(SchemaBook({"churn": {"inputs.age": "int"} if is_known else {}}))
    records = sent((FINE[0], *WRONG, *FINE[1:]))
    body = json.dumps(records).encode()
    if form == "lines":
        body = b"\n".join(json.dumps(one).encode() for one in records)
    elif form == "framed":
        body = framed(body)
    assert not decode(decoder, json.dumps(sent(FINE)).encode()).rejected
    found = decode(decoder, body, form=form)
    assert [(one.index, one.id, one.field) for one in found.rejected.listed] == [
        (row, f"r{row}", "ts") for row in range(1, 1 + len(WRONG))
    ]
    assert all("the years 1970 to 2200" in one.reason for one in found.rejected.listed)
    assert "9999-12-31T23:59:59.999999" in found.rejected.listed[0].reason
    assert ids(found) == ["r0", "r7", "r8", "r9"]


@pytest.mark.parametrize("is_known", [False, True], ids=["general", "fast"])
@pytest.mark.parametrize("unit", ["us", "s", "ns"])
def test_arrow_year_outside_refused_alone(unit: str, is_known: bool) -> None:
    decoder = Decoder(SchemaBook({"churn": {"inputs.age": "int"} if is_known else {}}))
    per_second = {"us": 10**6, "s": 1, "ns": 10**9}[unit]
    end = END_US // 10**6 * per_second
    times = pa.array([0, end - 1, -per_second, end, 2**63 - 1, -(2**63) + 1, None], pa.int64())
    table = pa.record_batch(
        {
            "id": [f"r{row}" for row in range(7)],
            "ts": times.cast(pa.timestamp(unit, tz="UTC")),
            "inputs.age": pa.array(range(7), pa.int64()),
        }
    )
    found = decode(decoder, stream(table), form="arrow", model="churn")
    # In nanoseconds the greatest time is of the year 2262, the smallest of 1677.
    assert [(one.index, one.field) for one in found.rejected.listed] == [(row, "ts") for row in (2, 3, 4, 5)]
    assert ids(found) == ["r0", "r1", "r6"]
    assert not decode(decoder, stream(table.slice(0, 2)), form="arrow", model="churn").rejected


def test_labels_of_years_outside_are_refused_alone_in_json_and_arrow() -> None:
    decoder = Decoder(SchemaBook({"churn": {}}))
    labels = [
        {"model": "churn", "id": f"r{row}", "label": {"label": 1}} | ({"ts": ts} if ts else {})
        for row, ts in enumerate((*FINE, *WRONG))
    ]
    found = decode(decoder, json.dumps(labels).encode(), kind="labels")
    assert [(one.index, one.field) for one in found.rejected.listed] == [(row, "ts") for row in range(4, 10)]
    table = pa.record_batch(
        {"id": ["a", "b"], "ts": pa.array([1, 2**62], pa.int64()).cast(TIME), "label.label": [1, 2]}
    )
    found = decode(decoder, stream(table), kind="labels", form="arrow", model="churn")
    assert [(one.index, one.field) for one in found.rejected.listed] == [(1, "ts")]


def test_input_columns_may_hold_any_year() -> None:
    decoder = Decoder(SchemaBook({"churn": {"inputs.born": "timestamp"}}))
    body = json.dumps([{"model": "churn", "inputs": {"born": "1901-02-03T00:00:00Z"}}]).encode()
    assert not decode(decoder, body).rejected


def test_cloud_events_and_traces_of_years_outside_are_refused_alone(tmp_path: Path) -> None:
    with receiving(tmp_path, "[models.support]\n[models.churn]\n") as receiver:
        events = [
            {
                "specversion": "1.0", "id": f"e{row}", "source": "s",
                "type": "org.kubeflow.serving.inference.request", "time": time,
                "data": {"instances": [{"age": 1}]},
            }
            for row, time in enumerate((WRONG[0], FINE[2]))
        ]  # fmt: skip
        answer = receiver.post(
            "/v1/cloudevents?model=churn", json.dumps(events).encode(), "application/cloudevents-batch+json"
        )
        [refused] = answer.json()["rejected"]
        assert (answer.json()["accepted"], refused["index"], refused["field"]) == (1, 0, "ts")
        calls = [
            span({"gen_ai.operation.name": "chat", "gen_ai.request.model": "support"}, number)
            for number in (1, 2)
        ]
        calls[0].start_time_unix_nano = 2**63  # of the year 2262; those without an end wait for nothing
        answer = receiver.post("/v1/traces", as_json(traces(*calls)), "application/json")
        assert answer.json()["partialSuccess"]["rejectedSpans"] in (1, "1")
        assert "spans 0: ts: a time of the years" in answer.text.replace("traces 0", "spans 0")
        receiver.give_up(3600.0)
        kept = receiver.records()
        assert [(one["id"][-16:], one["ts"].year) for one in kept if "entity" in one] == [(f"{2:016x}", 2025)]
