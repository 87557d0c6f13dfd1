"""Exports for tests: spans and log records in protobuf or in JSON, and an intake in this process."""

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from outrider.assertions.batch import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.asgi import request

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
START_NS = 1_760_000_000_000_000_000
PROTOBUF = "application/x-protobuf"
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}]
SAID = [
    {"role": "assistant", "parts": [{"type": "text", "content": "Rainy."}], "finish_reason": "stop"},
]
WHOLE = CHAT | {"gen_ai.input.messages": json.dumps(ASKED), "gen_ai.output.messages": json.dumps(SAID)}


def value(of: Any) -> AnyValue:
    """A value as attributes have it."""
    made = AnyValue()
    if isinstance(of, bool):
        made.bool_value = of
    elif isinstance(of, int):
        made.int_value = of
    elif isinstance(of, float):
        made.double_value = of
    elif isinstance(of, str):
        made.string_value = of
    elif isinstance(of, Mapping):
        made.kvlist_value.values.extend(pairs(of))
        made.kvlist_value.SetInParent()
    else:
        made.array_value.values.extend(value(one) for one in of)
        made.array_value.SetInParent()
    return made


def pairs(of: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes."""
    return [KeyValue(key=key, value=value(one)) for key, one in of.items()]


def span(
    attributes: Mapping[str, Any],
    number: int = 1,
    *,
    trace: str = TRACE,
    at_s: float = 0.0,
    lasts_s: float = 0.5,
    events: Sequence[tuple[str, float, Mapping[str, Any]]] = (),
    error: str | None = None,
) -> Span:
    """A span whose id is ``number``; times are seconds after ``START_NS``."""
    start = START_NS + int(at_s * 1e9)
    made = Span(
        trace_id=bytes.fromhex(trace),
        span_id=number.to_bytes(8, "big"),
        name="chat",
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(lasts_s * 1e9),
        attributes=pairs(attributes),
    )
    for name, after_s, told in events:
        made.events.add(name=name, time_unix_nano=start + int(after_s * 1e9), attributes=pairs(told))
    if error is not None:
        made.status.code, made.status.message = Status.STATUS_CODE_ERROR, error
    return made


def log(
    name: str, body: Any = None, number: int = 1, *, attributes: Mapping[str, Any] | None = None
) -> LogRecord:
    """A log record of the span ``number``; 0 is outside of every span."""
    made = LogRecord(event_name=name, time_unix_nano=START_NS, attributes=pairs(attributes or {}))
    if number:
        made.trace_id, made.span_id = bytes.fromhex(TRACE), number.to_bytes(8, "big")
    if body is not None:
        made.body.CopyFrom(value(body))
    return made


def traces(*spans: Span, service: str = "shop") -> ExportTraceServiceRequest:
    """An export of one service."""
    export = ExportTraceServiceRequest()
    group = export.resource_spans.add()
    group.resource.attributes.extend(pairs({"service.name": service}))
    group.scope_spans.add().spans.extend(spans)
    return export


def logs(*records: LogRecord, service: str = "shop") -> ExportLogsServiceRequest:
    """An export of one service."""
    export = ExportLogsServiceRequest()
    group = export.resource_logs.add()
    group.resource.attributes.extend(pairs({"service.name": service}))
    group.scope_logs.add().log_records.extend(records)
    return export


def as_json(export: ExportTraceServiceRequest | ExportLogsServiceRequest) -> bytes:
    """The export in OTLP's JSON: protobuf's own, but ids in hex."""

    def with_hex(of: Any) -> Any:
        if isinstance(of, list):
            return [with_hex(one) for one in of]
        if not isinstance(of, dict):
            return of
        ids = {"traceId", "spanId", "parentSpanId"}
        return {k: base64.b64decode(v).hex() if k in ids else with_hex(v) for k, v in of.items()}

    document = json_format.MessageToDict(export, use_integers_for_enums=True)
    return json.dumps(with_hex(document)).encode()


class Receiver:
    """An intake in this process, without the thread that gives up waiting."""

    def __init__(self, intake: ServerProcess) -> None:
        self.intake = intake
        self.key = (intake.settings.data_folder / "key").read_text().strip()

    def post(self, path: str, content: bytes, content_type: str = PROTOBUF, **headers: str) -> httpx.Response:
        """One request."""
        known = {"authorization": f"Bearer {self.key}", "content-type": content_type}
        return request(self.intake.app, "POST", path, headers=known | headers, content=content)

    def export(self, export: ExportTraceServiceRequest | ExportLogsServiceRequest) -> httpx.Response:
        """One export in protobuf; it must be taken."""
        signal = "traces" if isinstance(export, ExportTraceServiceRequest) else "logs"
        answer = self.post(f"/v1/{signal}", export.SerializeToString())
        assert answer.status_code == 200, answer.text
        return answer

    def give_up(self, after_s: float) -> None:
        """As if so much time had passed."""
        self.intake.otlp.releases.run(lambda: int((time.time() + after_s) * 1e6))

    def records(self) -> list[dict[str, Any]]:
        """All records in the journal, by column; what is null is left out."""
        return records(self.intake.settings.journal_path)

    def counted(self, signal: str, outcome: str) -> float:
        """Value of the counter of spans and log records."""
        counter = self.intake.metrics.counter("outrider_otlp_items_total")
        return float(counter.labels(signal=signal, outcome=outcome)._value.get())


def records(path: Path) -> list[dict[str, Any]]:
    """All records in a journal, by column; what is null is left out."""
    journal = SqliteJournal(path, read_only=True)
    blocks = [block for block in journal.read(0, limit=10_000) if block.kind == "records"]
    journal.close()
    rows = [row for block in blocks for row in Batch.from_ipc(block.payload).to_arrow().to_pylist()]
    return [{name: one for name, one in row.items() if one is not None} for row in rows]


@contextmanager
def receiving(folder: Path, models: str = "[models.support]") -> Iterator[Receiver]:
    """An intake on a data folder."""
    config = folder / "outrider.toml"
    config.write_text(f"[server]\nport = 0\n[storage]\nmin_free_bytes = 0\n{models}\n")
    intake = ServerProcess(load_settings(config))
    intake.writer.start()
    try:
        yield Receiver(intake)
    finally:
        intake.close()
