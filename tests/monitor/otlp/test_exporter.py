"""OpenTelemetry's own SDK and exporter against the intake in a process of its own."""

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import StatusCode, Tracer

from tests.end_to_end.service import wait_until
from tests.monitor.test_intake import key_of, process
from tests.soak import PATIENCE_S

from .exports import records

SERVICE = Resource({"service.name": "helpdesk"})
MODEL = '[models.support.intake]\notel_service = "helpdesk"'
CALL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.response.finish_reasons": ["stop"],
}


@contextmanager
def tracing(
    url: str, key: str, *, compression: Compression = Compression.Gzip, batched: bool = True
) -> Iterator[Tracer]:
    headers = {"authorization": f"Bearer {key}"}
    exporter = OTLPSpanExporter(f"{url}/v1/traces", headers=headers, compression=compression)
    provider = TracerProvider(resource=SERVICE)
    provider.add_span_processor(BatchSpanProcessor(exporter) if batched else SimpleSpanProcessor(exporter))
    try:
        yield provider.get_tracer("support-bot")
    finally:
        provider.shutdown()


def journal(folder: Path) -> Path:
    return folder / "outrider-data" / "journal.db"


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.NoCompression])
def test_a_traced_answer_from_documents_arrives_as_one_record(
    tmp_path: Path, compression: Compression
) -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Rainy."}], "finish_reason": "stop"}]
    with process(tmp_path, MODEL) as (child, url):
        with (
            tracing(url, key_of(tmp_path), compression=compression) as tracer,
            tracer.start_as_current_span("answer") as root,
        ):
            with tracer.start_as_current_span("retrieve") as found:
                found.set_attribute("openinference.span.kind", "RETRIEVER")
                found.set_attribute("retrieval.documents.0.document.content", "It rains in Paris.")
            with tracer.start_as_current_span("chat gpt-4o", attributes=CALL) as call:
                call.set_attribute("gen_ai.input.messages", json.dumps(asked))
                call.add_event("First Token Stream Event")
                call.set_attribute("gen_ai.output.messages", json.dumps(said))
            with tracer.start_as_current_span("chat gpt-4o", attributes=CALL) as failed:
                failed.set_attribute("gen_ai.input.messages", json.dumps(asked))
                failed.set_status(StatusCode.ERROR, "deadline exceeded")
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
    answered, refused = records(journal(tmp_path))
    trace, span = root.get_span_context().trace_id, call.get_span_context().span_id
    assert (answered["id"], answered["entity"]) == (f"{trace:032x}-{span:016x}", f"{trace:032x}")
    assert answered["inputs.passages"] == refused["inputs.passages"] == ["It rains in Paris."]
    assert (answered["inputs.prompt"], answered["outputs.answer"]) == ("Weather in Paris?", "Rainy.")
    assert (answered["attrs.input_tokens"], answered["attrs.output_tokens"]) == (12, 3)
    assert 0 <= answered["attrs.first_token_s"] <= answered["attrs.latency_s"] < 60
    assert (answered["partial"], refused["partial"]) == (False, False)
    assert refused["attrs.error"] == "deadline exceeded"
    assert "outputs.answer" not in refused


def test_log_events_of_the_sdk_join_their_spans(tmp_path: Path) -> None:
    with process(tmp_path, MODEL) as (_, url):
        headers = {"authorization": f"Bearer {key_of(tmp_path)}"}
        provider = LoggerProvider(resource=SERVICE)
        exporter = OTLPLogExporter(f"{url}/v1/logs", headers=headers)
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        logger = provider.get_logger("support-bot")
        with (
            tracing(url, key_of(tmp_path), batched=False) as tracer,
            tracer.start_as_current_span("chat gpt-4o", attributes=CALL),
        ):
            bodies: dict[str, Any] = {
                "gen_ai.user.message": {"content": "Weather in Paris?"},
                "gen_ai.choice": {"index": 0, "finish_reason": "stop", "message": {"content": "Rainy."}},
            }
            for name, body in bodies.items():
                attributes = {"gen_ai.system": "openai"}
                level = SeverityNumber.INFO
                logger.emit(
                    LogRecord(event_name=name, body=body, attributes=attributes, severity_number=level)
                )
        provider.shutdown()
    (record,) = records(journal(tmp_path))
    assert (record["inputs.prompt"], record["outputs.answer"]) == ("Weather in Paris?", "Rainy.")
    assert (record["attrs.request_model"], record["partial"]) == ("gpt-4o", False)


def test_parts_that_never_come_are_given_up_by_the_running_process(tmp_path: Path) -> None:
    with process(tmp_path, f"{MODEL}\njoin_s = 0.5") as (_, url):
        with (
            tracing(url, key_of(tmp_path), batched=False) as tracer,
            tracer.start_as_current_span("chat gpt-4o", attributes=CALL),
        ):
            pass
        wait_until(lambda: bool(records(journal(tmp_path))), "record")
    (found,) = records(journal(tmp_path))
    assert (found["partial"], found["attrs.output_tokens"]) == (True, 3)


def test_without_the_key_the_exporter_fails_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with process(tmp_path, MODEL) as (_, url):
        with (
            caplog.at_level(logging.ERROR),
            tracing(url, "or_wrong") as tracer,
            tracer.start_as_current_span("chat gpt-4o", attributes=CALL),
        ):
            pass
        assert "401" in caplog.text
    assert records(journal(tmp_path)) == []
