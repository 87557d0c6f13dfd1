"""Senders with a key whose small bodies stand for gigabytes, or hours: refused before they are unpacked."""

import contextlib
import gzip
import http.client
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from outrider.monitor.intake.arrow_messages import MAX_MESSAGES
from tests.end_to_end.service import wait_until
from tests.soak import PATIENCE_S

from .beset import CLOSED, MIB, Pair, pair
from .running import Running

CONFIG = """
[server]
port = 0
[limits]
dataset_bytes = 50000000
[models.toy]
[models.m]
inputs = ["x"]
classes = [0, 1]
"""
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
TOY = "/v1/records?model=toy"
DATASET = "/v1/datasets/d/versions?model=m&wait_s=0"
TEN_MB = 10_000_000


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("bodies"), CONFIG, is_whole=True) as found:
        for service in (found.attacked, found.control):
            wait_until(lambda one=service: one.get("/v1/datasets") == 200, "the API")  # type: ignore[misc]  # bound here
        yield found


def post(service: Running, path: str, body: bytes, kind: str, **headers: str) -> tuple[int, str]:
    """Status and what was said."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
    named = {"Authorization": f"Bearer {service.key}", "Content-Type": kind} | headers
    try:
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ipc(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Stream of batches."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def batch(**columns: object) -> pa.RecordBatch:
    """Batch whose columns are inputs."""
    return pa.record_batch({f"inputs.{name}": values for name, values in columns.items()})


def of_dictionary(rows: int, value: str) -> pa.RecordBatch:
    """One value, in every row."""
    indices = pa.array(np.zeros(rows, np.int8))
    return batch(s=pa.DictionaryArray.from_arrays(indices, pa.array([value])))


def repeated(element: bytes, size: int = TEN_MB) -> bytes:
    """List of one element over and over."""
    return b"[" + (element + b",") * (size // (len(element) + 1)) + element + b"]"


EACH_ITS_OWN = b",".join(b'{"model":"toy","inputs":{"k%d":1}}' % number for number in range(60_000))
ONE_WITH_ALL = b",".join(b'"k%d":1' % number for number in range(500_000))
VIEWS = pa.ListViewArray.from_arrays(
    pa.array(np.zeros(20_000, np.int32)),
    pa.array(np.full(20_000, 20_000, np.int32)),
    pa.array(np.zeros(20_000)),
)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([100_000], pa.int32()), pa.array(["x" * 100_000]))
BODIES = {
    "objects": ("/v1/records", repeated(b"{}"), JSON, 413, "parsed_bytes"),
    "labels": ("/v1/labels", repeated(b'{"":1}'), JSON, 413, "parsed_bytes"),
    "lists": ("/v1/cloudevents", repeated(b"[]"), "application/cloudevents-batch+json", 413, "parsed_bytes"),
    "outcomes": ("/v1/suites/m/outcomes", repeated(b"[]"), JSON, 413, "parsed_bytes"),
    "sparse": ("/v1/records", b"[%b]" % EACH_ITS_OWN, JSON, 413, "fields without a column"),
    "wide": (
        "/v1/records", b'{"model":"toy","inputs":{%b}}' % ONE_WITH_ALL, JSON, 413, "fields without a column",
    ),
    "dictionary": (TOY, ipc(of_dictionary(100_000, "x" * 100_000)), ARROW, 413, "without its"),
    "views": (TOY, ipc(batch(v=VIEWS)), ARROW, 400, "send it plain"),
    "runs": (TOY, ipc(batch(r=RUNS)), ARROW, 400, "send it plain"),
    "columns": (
        TOY, ipc(batch(**{f"c{n}": [1.0] for n in range(5000)})), ARROW, 413, "5000 columns",
    ),
    "batches": (
        TOY, ipc(*[batch(x=[1.0])] * (MAX_MESSAGES + 1)), ARROW, 413, "send larger ones",
    ),
    "zstd": (TOY, ipc(batch(x=np.zeros(10_000)), compression="zstd"), ARROW, 400, "compressed"),
    "dataset of zeros": (
        DATASET, ipc(batch(x=np.zeros(4_000_000)), compression="zstd"), ARROW, 413, "limits.ratio",
    ),
    "large dataset": (
        DATASET, ipc(batch(x=np.arange(7_000_000.0)), compression="zstd"), ARROW, 413, "limits.dataset_bytes",
    ),
    "dataset by dictionary": (DATASET, ipc(of_dictionary(100_000, "x" * 100_000)), ARROW, 413, "without its"),
    "dataset of runs": (DATASET, ipc(batch(r=RUNS)), ARROW, 400, "send it plain"),
    "dataset of nulls": (DATASET, ipc(batch(x=pa.nulls(100_000_000))), ARROW, 413, "limits.dataset_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_would_grow_is_refused_before_it_does(services: Pair, name: str) -> None:
    path, body, kind, status, told = BODIES[name]
    with services.attack() as service:
        found, said = post(service, path, body, kind)
        assert found == status, said[:500]
        assert told in said


@pytest.mark.parametrize(
    "path", ["/v1/reviews", "/v1/label-requests", "/v1/pauses", "/review", "/v1/records", "/nowhere", DATASET]
)
def test_three_hundred_megabytes_are_held_by_no_route(services: Pair, path: str) -> None:
    kind = ARROW if path == DATASET else JSON
    chunked = (b"%x\r\n%b\r\n" % (MIB, bytes(MIB)) for _ in range(300))
    plain = (bytes(MIB) for _ in range(300))
    with services.attack(most=100 * MIB) as service:
        for header, parts in (
            (("Transfer-Encoding", "chunked"), chunked),
            (("Content-Length", str(300 * MIB)), plain),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
            connection.putrequest("POST", path)
            for name, value in (("Authorization", f"Bearer {service.key}"), ("Content-Type", kind), header):
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(*CLOSED):
                for part in parts:
                    connection.send(part)
                assert connection.getresponse().status in (404, 413)  # 404: the gate knows no such path
            connection.close()


@pytest.mark.parametrize("path", ["/v1/records", "/v1/reviews", DATASET])
def test_compressed_bombs_are_refused_by_every_route(services: Pair, path: str) -> None:
    kind = ARROW if path == DATASET else JSON
    with services.attack() as service:
        for packed in (
            gzip.compress(b"") * (TEN_MB // 20 if path == DATASET else MIB // 20),
            gzip.compress(bytes(100 * MIB)),
        ):
            status, said = post(service, path, packed, kind, **{"Content-Encoding": "gzip"})
            assert status == 413, said


def test_bodies_of_the_api_may_be_compressed_and_are_bounded_plain(services: Pair) -> None:
    with services.attack() as service:
        body = json.dumps({"what": "shadow", "model": "m", "who": "me"}).encode()
        for more, sent in (({}, body), ({"Content-Encoding": "gzip"}, gzip.compress(body))):
            status, said = post(service, "/v1/pauses", sent, JSON, **more)
            assert status in (200, 201), said
        status, said = post(service, "/v1/pauses", b'"' + b"x" * MIB + b'"', JSON)
        assert (status, "limits.request_bytes" in said) == (413, True)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_dataset_within_its_bounds_is_taken(services: Pair, compression: str | None) -> None:
    rows = 500_000
    table = pa.record_batch(
        {
            "id": [str(row) for row in range(rows)],
            "x": np.random.default_rng(1).random(rows),
            "label": [0, 1] * (rows // 2),
        }
    )
    with services.attack() as service:
        status, said = post(service, DATASET, ipc(table, compression=compression), ARROW)
        assert status == 202, said  # no trainer is there to do it
