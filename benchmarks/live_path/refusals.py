"""Bodies of refused records: processor time against good bodies of the same size.

One line per door and kind of refusal. ``ratio`` is the time of a good body over that of a refused one of as
many bytes, answers and commits included; ``target`` is a half: a refusal costs at most twice a good record.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.figure import Figure
from outrider.monitor.process.collector import settle_garbage
from outrider.monitor.process.logs import set_up
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings

BYTES = 4_000_000
"""Of a body; no body has more than ``limits.records``."""
RECORDS = 100_000
ROUNDS = 5
CONFIG = """
[storage]
min_free_bytes = 0
[models.m]
[models.w]
[models.w.columns]
"inputs.t" = "tensor(2)"
"inputs.l" = "list(float)"
[models.fed]
task = "scoring"
inputs = ["inputs.x"]
[models.chat.intake]
request_models = ["gpt"]
"""
LINES, JSON, ARROW = "application/x-ndjson", "application/json", "application/vnd.apache.arrow.stream"
EVENTS = "application/cloudevents-batch+json"
Make = Callable[[int], Any]


def record(number: int, **members: Any) -> dict[str, Any]:
    """A good record, with other members."""
    return {"model": "m", "id": f"r{number}", "inputs": {"x": number * 0.5}} | members


def label(number: int, **members: Any) -> dict[str, Any]:
    """A good label, with other members."""
    return {"model": "m", "id": f"r{number}", "label": {"y": number % 2}} | members


def event(number: int, **members: Any) -> dict[str, Any]:
    """A good event, with other members."""
    data = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [number % 7]}]}
    return {
        "specversion": "1.0", "id": f"e{number}", "source": "s", "modelid": "m", "data": data,
        "type": "io.seldon.serving.inference.request",
    } | members  # fmt: skip


def span(number: int, name: str = "gen_ai.conversation.id", value: str = "c") -> dict[str, Any]:
    """A good span, with another attribute."""
    said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt", name: value}
    said["gen_ai.input.messages"] = json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "a"}]}]
    )
    said["gen_ai.output.messages"] = said["gen_ai.input.messages"].replace("user", "assistant")
    return {
        "traceId": f"{number + 1:032x}", "spanId": f"{number + 1:016x}", "name": "chat",
        "startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225601000000000",
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in said.items()],
    }  # fmt: skip


RECORD_CASES: Mapping[str, Make] = {
    "unknown_model": lambda n: record(n, model=f"m{n:06}"),
    "one_unknown_model": lambda n: record(n, model="mm"),
    "no_model": lambda n: {"id": f"r{n}", "inputs": {"x": 1.5}},
    "unknown_field": lambda n: record(n) | {f"field{n}": 1},
    "one_unknown_field": lambda n: record(n, input=1),
    "label_among_records": lambda n: record(n, label={"y": 1}),
    "not_an_object": lambda n: f"record {n} of text alone",
    "long_id": lambda n: record(n, id=f"{n:0300}"),
    "empty_id": lambda n: record(n, id=""),
    "odd_id": lambda n: record(n, id=[n]),
    "nul_in_id": lambda n: record(n, id=f"r\0{n}"),
    "surrogate_in_id": lambda n: record(n, id=f"r\ud83d{n}"),
    "nul_in_version": lambda n: record(n, version=f"r\0{n}"),
    "surrogate_in_input": lambda n: record(n, inputs={"s": f"r\ud83d{n}"}),
    "odd_entity": lambda n: record(n, entity={"a": n}),
    "bad_time": lambda n: record(n, ts=f"yesterday {n}"),
    "time_without_zone": lambda n: record(n, ts="2026-01-01T00:00:00"),
    "time_of_another_age": lambda n: record(n, ts="0001-01-01T00:00:00Z"),
    "weight_of_zero": lambda n: record(n, weight=0),
    "wide_seq": lambda n: record(n, seq=2**70),
    "odd_inputs": lambda n: record(n, inputs=n),
    "neither": lambda n: {"model": "m", "id": f"r{n}"},
    "wrong_type": lambda n: record(n, inputs={"x": f"text {n}"}),
    "not_finite": lambda n: record(n, inputs={"x": float("nan")}),
    "wide_int": lambda n: record(n, inputs={"n": 2**70 + n}),
    "nameless_input": lambda n: record(n, inputs={"": n}),
    "wrong_shape": lambda n: record(n, model="w", inputs={"t": [1.5, 2.5, 3.5]}),
    "wrong_element": lambda n: record(n, model="w", inputs={"l": [1.5, "a"]}),
    "null_element": lambda n: record(n, model="w", inputs={"l": [1.5, None]}),
    "bad_payload": lambda n: record(n, inputs={"p": {"$bytes": "=="}}),
    "unfed": lambda n: record(n, model="fed", inputs={"q": n}),
    "deep": lambda n: record(n, inputs={"d": json.loads("[" * 20 + "]" * 20)}),
    "deep_objects": lambda n: record(n, inputs={"d": json.loads('{"a":' * 20 + "1" + "}" * 20)}),
    "every_other": lambda n: record(n, seq=n) if n % 2 else record(n, seq="a"),
}
GOOD: Mapping[str, Make] = {
    "wrong_shape": lambda n: record(n, model="w", inputs={"t": [1.5, 2.5]}),
    "wrong_element": lambda n: record(n, model="w", inputs={"l": [1.5, 2.5]}),
    "null_element": lambda n: record(n, model="w", inputs={"l": [1.5, 2.5]}),
    "bad_payload": lambda n: record(n, inputs={"p": {"$bytes": "aGk="}}),
    "deep": lambda n: record(n, model="w", inputs={"l": [n * 0.5] * 10}),
    "deep_objects": lambda n: record(n, inputs={"d": json.loads('{"a":' * 10 + "1" + "}" * 10)}),
}
"""Good records with the same columns, where these cost more than plain ones."""
LINE_CASES: Mapping[str, Callable[[int], bytes]] = {
    "malformed": lambda n: json.dumps(record(n)).encode()[:-2],
    "malformed_not_finite": lambda n: b"NaN" + json.dumps(record(n)).encode(),
    "not_utf8": lambda n: json.dumps(record(n, id="r-")).encode().replace(b"-", b"\xff"),
}
LABEL_CASES: Mapping[str, Make] = {
    "unknown_model": lambda n: label(n, model=f"m{n:06}"),
    "no_model": lambda n: {"id": f"r{n}", "label": {"y": 1}},
    "no_id": lambda _: {"model": "m", "label": {"y": 1}},
    "no_time": lambda n: {"model": "m", "entity": f"e{n}", "label": {"y": 1}},
    "empty": lambda n: label(n, label={}),
    "unknown_field": lambda n: label(n) | {f"field{n}": 1},
    "wrong_type": lambda n: label(n, label={"y": f"text {n}"}),
    "nul_in_class": lambda n: label(n, label={"s": f"r\0{n}"}),
    "long_source": lambda n: label(n, source="s" * 257),
}
SPAN_CASES: Mapping[str, Make] = {
    "unknown_model": lambda n: span(n, "gen_ai.request.model", f"g{n}"),
    "nul_in_entity": lambda n: span(n, "gen_ai.conversation.id", f"c\0{n}"),
    "odd_trace": lambda n: span(n) | {"traceId": "00"},
}
EVENT_CASES: Mapping[str, Make] = {
    "unknown_model": lambda n: event(n, modelid=f"m{n:06}"),
    "no_event": lambda n: n,
    "odd_type": lambda n: event(n, type=f"t{n}"),
    "odd_data": lambda n: event(n, data=f"text {n}"),
    "nul_in_id": lambda n: event(n, id=f"e\0{n}"),
}
COLUMN_CASES: Mapping[str, Mapping[str, Make]] = {
    "unknown_model": {"model": lambda n: f"m{n:06}"},
    "no_model": {"model": lambda _: None},
    "nul_in_id": {"id": lambda n: f"r\0{n}"},
    "long_id": {"id": lambda n: f"{n:0300}"},
    "empty_entity": {"entity": lambda _: ""},
    "weight_of_zero": {"weight": lambda _: 0.0},
    "time_of_another_age": {"ts": lambda _: -1},
    "wrong_type": {"inputs.x": lambda n: f"text {n}"},
    "not_finite": {"inputs.x": lambda _: float("nan")},
    "nul_in_group": {"attrs.s": lambda n: f"r\0{n}"},
}


def json_body(make: Make, rows: int) -> bytes:
    """An array."""
    return b"[" + b",".join(json.dumps(make(n)).encode() for n in range(rows)) + b"]"


def lines_body(make: Make, rows: int) -> bytes:
    """JSON lines; bytes as they are."""
    made = (make(n) for n in range(rows))
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in made)


def arrow_body(columns: Mapping[str, Make], rows: int) -> bytes:
    """A stream of one batch."""
    made = {name: [make(n) for n in range(rows)] for name, make in columns.items()}
    arrays = {
        name: pa.array(values, pa.timestamp("us", "UTC")) if name == "ts" else pa.array(values)
        for name, values in made.items()
    }
    batch = pa.record_batch(arrays)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def otlp_body(make: Make, rows: int) -> bytes:
    """An export of spans."""
    spans = [make(n) for n in range(rows)]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def v2_body(make: Make, rows: int) -> bytes:
    """A request of one tensor."""
    data = [make(n) for n in range(rows)]
    return json.dumps({"inputs": [{"name": "x", "shape": [rows], "datatype": "FP64", "data": data}]}).encode()


def sized(body: Callable[[Any, int], bytes], make: Any) -> tuple[bytes, int]:
    """A body of about `BYTES`, and its records."""
    rows = max(1, min(RECORDS, 1000 * BYTES // len(body(make, 1000))))
    return body(make, rows), rows


class Answer(NamedTuple):
    """Answer of the service.

    Attributes
    ----------
    cpu_s
        Processor seconds of the request.
    stall_s
        Longest time for which the event loop answered no one else.
    """

    cpu_s: float
    stall_s: float
    status: int
    body: bytes


class Door:
    """A service in this process, asked without sockets."""

    def __init__(self, folder: Path) -> None:
        path = folder / "outrider.toml"
        path.write_text(CONFIG, encoding="utf-8")
        self._process = ServerProcess(load_settings(path))
        self._process.writer.start()
        self._key = (self._process.settings.data_folder / "key").read_text(encoding="utf-8").strip()

    def close(self) -> None:
        """Stop the service."""
        self._process.close()

    def send(self, path: str, kind: str, body: bytes) -> Answer:
        """Ask once."""
        bare, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": bare, "query_string": query.encode(),
            "headers": [
                (b"content-type", kind.encode()), (b"authorization", b"Bearer " + self._key.encode()),
                (b"x-outrider-mirror", b"1"),
            ],
        }  # fmt: skip
        messages: list[Any] = []
        stall_s = 0.0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        async def tick() -> None:
            nonlocal stall_s
            before = time.perf_counter()
            while True:
                await asyncio.sleep(0.001)
                stall_s, before = max(stall_s, time.perf_counter() - before), time.perf_counter()

        async def ask() -> None:
            ticking = asyncio.create_task(tick())
            await asyncio.sleep(0)
            await self._process.app(scope, receive, send)
            ticking.cancel()

        began = time.process_time()
        asyncio.run(ask())
        return Answer(time.process_time() - began, stall_s, messages[0]["status"], messages[1]["body"])


@contextmanager
def door() -> Iterator[Door]:
    """A service that knows the columns of good records."""
    with tempfile.TemporaryDirectory() as folder:
        opened = Door(Path(folder))
        try:
            known = [record(n, inputs={"x": n * 0.5, "s": "a", "n": n}) for n in range(2000)]
            assert opened.send("/v1/records", JSON, json.dumps(known).encode()).status == 202
            labels = [label(n, label={"y": 1, "s": "a"}) for n in range(2000)]
            assert opened.send("/v1/labels", JSON, json.dumps(labels).encode()).status == 202
            settle_garbage()
            yield opened
        finally:
            opened.close()


Case = tuple[str, str, str, Callable[[Any, int], bytes], Any, Any]
"""Name, path, content type, maker of bodies, refused and good records."""


def cases() -> Iterator[Case]:
    """Kinds of refusals at every door."""
    for name, make in RECORD_CASES.items():
        good = GOOD.get(name, record)
        yield f"json.{name}", "/v1/records", JSON, json_body, make, good
        yield f"lines.{name}", "/v1/records", LINES, lines_body, make, good
    for name, line in LINE_CASES.items():
        yield f"lines.{name}", "/v1/records", LINES, lines_body, line, record
    nameless = {"model": "m", "inputs": {"x": 0.5}}
    yield "json.no_id", "/v1/records?join=true", JSON, json_body, lambda _: nameless, record
    for name, make in LABEL_CASES.items():
        yield f"labels.{name}", "/v1/labels", JSON, json_body, make, label
    for name, make in EVENT_CASES.items():
        yield f"events.{name}", "/v1/cloudevents", EVENTS, json_body, make, event
    for name, make in SPAN_CASES.items():
        yield f"traces.{name}", "/v1/traces", JSON, otlp_body, make, span
    for name, value in {"wrong_type": "a", "not_finite": float("nan")}.items():
        yield f"v2.{name}", "/v2/models/m/infer", JSON, v2_body, lambda _, v=value: v, lambda n: n * 0.5
    columns: dict[str, Make] = {
        "model": lambda _: "m",
        "id": lambda n: f"r{n}",
        "inputs.x": lambda n: n * 0.5,
    }
    for name, own in COLUMN_CASES.items():
        yield f"arrow.{name}", "/v1/records", ARROW, arrow_body, columns | dict(own), columns


def ratios(case: Case, stalls: list[float] | None = None, seconds: list[float] | None = None) -> list[float]:
    """Processor time of a good byte over that of a refused one, round by round."""
    name, path, kind, body, bad, good = case
    refused, taken = sized(body, bad)[0], sized(body, good)[0]
    found = []
    with door() as opened:
        opened.send(path, kind, taken)
        for _ in range(ROUNDS):
            of_good, of_bad = opened.send(path, kind, taken), opened.send(path, kind, refused)
            if b"rejected" in of_good.body and not of_good.body.endswith(b'"rejected":[]}'):
                raise RuntimeError(f"{name}: a good body was refused: {of_good.body[:500]!r}")
            found.append(of_good.cpu_s / of_bad.cpu_s * len(refused) / len(taken))
            if stalls is not None and seconds is not None:
                stalls.append(of_bad.stall_s)
                seconds.append(of_bad.cpu_s)
    return found


def measure(case: Case) -> None:
    """Print the figures of a kind."""
    name, _, _, body, bad, _ = case
    refused, rows = sized(body, bad)
    stalls: list[float] = []
    seconds: list[float] = []
    found = ratios(case, stalls, seconds)
    data = f"{rows} records in {len(refused)} bytes, in turn with good ones"
    value, stem = statistics.median(seconds) * 1e6 / rows, f"live_path.refusals.{name}"
    against = "good records of as many bytes"
    Figure.of_pairs(stem, value, "µs CPU/record", against, found, 0.5, data=data).show()
    if name.endswith(".unknown_model"):
        stall_s, allowed = statistics.median(stalls), "a quarter of a second without the event loop"
        Figure(f"{stem}_stall", stall_s, "s", allowed, 0.25 / stall_s, 1.0, n=ROUNDS, data=data).show()


def main() -> None:
    """Measure and print; parts of names as arguments choose kinds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the log of the service, which is written all the same
    set_up("intake")
    for case in cases():
        if not sys.argv[1:] or any(chosen in case[0] for chosen in sys.argv[1:]):
            measure(case)


if __name__ == "__main__":
    main()
