"""Calls taken from an export of OpenTelemetry on one core, against protobuf's own parser on the same body.

The path is everything between the decompressed body and the journal: parse, attributes, columns, Arrow block.
The floor only parses. Run ``python -m benchmarks.live_path.otlp``.
"""

import json
import statistics
import time
from collections.abc import Callable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from benchmarks.figure import Figure
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.protocols.base import Arrival
from outrider.monitor.intake.protocols.otlp.intake import Otlp
from outrider.monitor.intake.protocols.otlp.matching import Matcher, Named
from outrider.monitor.intake.protocols.otlp.partial_calls import Waiting
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.metrics.channel import new_metrics

SPANS = 512
"""What a BatchSpanProcessor sends at a time."""
ROUNDS = 15
_PARSES = 10
"""In one measurement: a single one is too short for the clock."""
PROMPT = "Which of the two invoices that I sent you last week has been paid, and when was it? " * 7
ANSWER = "The invoice of the third was paid on the ninth; the other one is still open. " * 5


def export() -> ExportTraceServiceRequest:
    """Calls with questions of about 600 characters and answers of 400, as GenAI attributes."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.append(_pair("service.name", "helpdesk"))
    spans = group.scope_spans.add().spans
    for number in range(SPANS):
        asked = [
            {"role": "system", "parts": [{"type": "text", "content": "You are a helpful bot."}]},
            {"role": "user", "parts": [{"type": "text", "content": f"{number}: {PROMPT}"}]},
        ]
        said = [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": f"{ANSWER}{number}"}],
                "finish_reason": "stop",
            }
        ]
        attributes: dict[str, str | int | float] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.max_tokens": 200,
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.response.id": f"chatcmpl-{number}",
            "gen_ai.response.model": "gpt-4o-2024-08-06",
            "gen_ai.usage.input_tokens": 152 + number,
            "gen_ai.usage.output_tokens": 97,
            "gen_ai.response.time_to_first_chunk": 0.21,
            "gen_ai.conversation.id": f"conversation-{number // 4}",
            "server.address": "api.example.com",
            "server.port": 443,
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps(said),
        }
        spans.add(
            trace_id=(number + 1).to_bytes(16, "big"),
            span_id=(number + 1).to_bytes(8, "big"),
            name="chat gpt-4o",
            start_time_unix_nano=1_760_000_000_000_000_000 + number,
            end_time_unix_nano=1_760_000_001_000_000_000 + number,
            attributes=[_pair(key, value) for key, value in attributes.items()],
        )
    return request


def _pair(key: str, value: str | int | float) -> KeyValue:
    pair = KeyValue(key=key, value=AnyValue())
    name = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
    setattr(pair.value, name, value)
    return pair


def taken_in(body: bytes) -> Callable[[], None]:
    """The whole path of one body, as an intake process goes it."""
    decoder = Decoder(SchemaBook({"helpdesk": {}}))
    waiting = Waiting(lambda _: 30_000_000)
    otlp = Otlp("traces", Matcher({"helpdesk": Named()}), waiting, new_metrics(models=("helpdesk",)))
    headers = {"content-type": "application/x-protobuf"}

    def take() -> None:
        arrival = Arrival("POST", "/v1/traces", {}, headers, body, 1_760_000_002_000_000)
        reading = otlp.read(arrival)
        received_us = arrival.received_us
        decoded = decoder.build(reading.parts, reading.rejected, kind="records", received_us=received_us)
        if decoded.accepted != SPANS:
            raise RuntimeError(
                f"{decoded.accepted} of {SPANS} calls were taken: {decoded.rejected.listed[:1]}"
            )
        merge(decoded.blocks)
        reading.settled(True)

    return take


def cpu_s(of: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    began = time.process_time()
    of()
    return time.process_time() - began


def main() -> None:
    """Measure path and floor in turn and print the ratio of their medians."""
    body = export().SerializeToString()
    take = taken_in(body)
    take()

    def parse() -> None:
        for _ in range(_PARSES):
            ExportTraceServiceRequest().ParseFromString(body)

    floor, path = [], []
    for _ in range(ROUNDS):
        floor.append(cpu_s(parse) / _PARSES)
        path.append(cpu_s(take))
    taken, parsed = SPANS / statistics.median(path), SPANS / statistics.median(floor)
    against = f"ParseFromString of the same {len(body)} bytes: {parsed:.3g} spans/s"
    Figure("OTLP calls taken in", taken, "spans/s of one core", against, taken / parsed).show()


if __name__ == "__main__":
    main()
