"""A refused record costs about what a good one costs: work is counted, and measured in a soak."""

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.live_path import refusals as bench
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, Decoder, Form, RecordKind
from outrider.monitor.intake.rejections import LISTED, Rejections, RowFaults, close_names
from outrider.monitor.intake.schema_book import SchemaBook
from tests.soak import IS_SOAK

from .decoding import decode_body
from .test_intake import ipc, running

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


class Near:
    """Search for names that are alike, counted."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, name: str, known: Sequence[str]) -> Sequence[str]:
        self.asked.append(name)
        return close_names(name, known)


class Lines(logging.Handler):
    """Lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)


def decode(body: bytes, near: Near, *, form: Form = "json", kind: RecordKind = "records") -> Decoded:
    decoder = Decoder(SchemaBook({"churn": {}, "digits": {}}), near=near)
    return decode_body(decoder, body, kind=kind, form=form, received_us=1)


def strange(number: int, **more: Any) -> dict[str, Any]:
    return {"model": f"churm{number}", "id": f"r{number}", "inputs": {"x": 1}} | more


def body_of(form: Form, records: list[dict[str, Any]]) -> bytes:
    if form == "lines":
        return b"\n".join(json.dumps(record).encode() for record in records)
    if form == "arrow":
        columns = {name: [record[name] for record in records] for name in ("model", "id")}
        return ipc(pa.record_batch({**columns, "inputs.x": [1] * len(records)}))
    text = json.dumps(records).encode()
    if form == "json":
        return text
    head = b'{"sizes": [], "records": ' + text + b"}"
    return len(head).to_bytes(8, "little") + head


@pytest.mark.parametrize("form", ["json", "lines", "arrow", "framed"])
def test_names_alike_are_looked_for_three_times_a_request_however_many_are_unknown(form: Form) -> None:
    near = Near()
    decoded = decode(body_of(form, [strange(n) for n in range(3000)]), near, form=form)
    assert (decoded.accepted, decoded.rejected.count) == (0, 3000)
    assert near.asked == ["churm0", "churm1", "churm2"]
    reasons = [one.reason for one in decoded.rejected.listed]
    assert reasons[:3] == [f"unknown model 'churm{n}'; did you mean 'churn'?" for n in range(3)]
    assert reasons[3] == "unknown model 'churm3'; known: churn, digits"
    assert [one.index for one in decoded.rejected.listed] == list(range(LISTED))
    assert [one.id for one in decoded.rejected.listed[:2]] == ["r0", "r1"]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_names_of_fields_and_models_share_the_three_searches(form: Form) -> None:
    near = Near()
    records = [strange(n) if n % 2 else strange(n) | {f"input{n}": 1} for n in range(2000)]
    assert decode(body_of(form, records), near, form=form).rejected.count == 2000
    assert len(near.asked) == 3


def test_one_unknown_name_is_looked_for_once_and_suggested_each_time() -> None:
    near = Near()
    decoded = decode(json.dumps([strange(0)] * 1500).encode(), near)
    assert near.asked == ["churm0"]
    assert {one.reason for one in decoded.rejected.listed} == {
        "unknown model 'churm0'; did you mean 'churn'?"
    }


def test_labels_of_unknown_models_are_held_to_it_too() -> None:
    near = Near()
    labels = [{"model": f"c{n}", "id": "a", "label": {"y": 1}} for n in range(2000)]
    assert decode(json.dumps(labels).encode(), near, kind="labels").rejected.count == 2000
    assert len(near.asked) == 3


def test_a_long_name_is_compared_with_none() -> None:
    assert close_names("a" * 63 + "b", ["a" * 64]) == ["a" * 64]
    assert close_names("a" * 10_000, ["a" * 9_999]) == ()


def test_reasons_are_worked_out_for_those_alone_that_an_answer_lists() -> None:
    asked: list[int] = []
    rejected = Rejections()
    faults = RowFaults(5000)
    faults.add(np.arange(5000), "inputs.x", lambda row: asked.append(row) or f"row {row}")  # type: ignore[func-returns-value]  # None
    for each in faults.groups:
        rejected.add_rows(each.rows, each.field, each.reason, indices=range(5000), model="m")
    rejected.add_explained(
        range(5000, 9000),
        ["ts"] * 4000,
        lambda row: asked.append(row) or ("ts", "late", None),  # type: ignore[func-returns-value]  # None
    )
    assert (asked[:LISTED], len(asked)) == (list(range(LISTED)), 2 * LISTED)
    assert (rejected.count, len(rejected.listed)) == (9000, LISTED)
    assert {kind.field: kind.count for kind in rejected.kinds()} == {"inputs.x": 5000, "ts": 4000}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.lists(st.integers(0, 4000), min_size=1, max_size=1500, unique=True)
        ),
        max_size=4,
    )
)
@settings(deadline=None)
def test_rejections_list_the_first_thousand_in_order_and_count_all(
    groups: list[tuple[str, list[int]]],
) -> None:
    rejected = Rejections()
    seen: list[int] = []
    for field, indices in groups:
        fresh = sorted(set(indices) - set(seen))
        rejected.add_rows(np.arange(len(fresh)), field, "no", indices=fresh, model="m")
        seen += fresh
    assert [one.index for one in rejected.listed] == sorted(seen)[:LISTED]
    assert rejected.count == len(seen) == sum(kind.count for kind in rejected.kinds())


def test_a_flood_of_names_is_counted_in_bounded_notes_and_lines(tmp_path: Path) -> None:
    handler = Lines()
    logging.getLogger("outrider.monitor.intake.asgi").addHandler(handler)
    try:
        with running(tmp_path) as call:
            body = [strange(n) for n in range(2000)] + [strange(n) | {f"f{n}": 1} for n in range(2000)]
            answer = call("POST", "/v1/records", json=body)
            kinds = call.intake.refusals.listed()
            read = call("GET", "/metrics").text
    finally:
        logging.getLogger("outrider.monitor.intake.asgi").removeHandler(handler)
    assert answer.status_code == 422
    assert (len(answer.json()["rejected"]), answer.json()["rejected_count"]) == (LISTED, 4000)
    assert len(kinds) < 60
    assert {(k.model, k.field) for k in kinds if k.field == "*"} == {("", "*")}
    assert sum(kind.count for kind in kinds) == 4000
    for reason in ("unknown_model", "schema"):
        [line] = [one for one in read.splitlines() if "rejected_total{" in one and f'"{reason}"' in one]
        assert float(line.rpartition(" ")[2]) == 2000
    assert 0 < len(handler.lines) <= 20


def test_others_are_answered_while_a_body_of_unknown_models_is_read(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        body = json.dumps([strange(n) for n in range(50_000)]).encode()
        headers = {"authorization": f"Bearer {call.key}", "content-type": "application/json"}

        async def ask() -> tuple[int, list[int]]:
            transport = httpx.ASGITransport(call.intake.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                flood = asyncio.create_task(client.post("/v1/records", content=body, headers=headers))
                statuses = []
                while not flood.done():
                    await asyncio.sleep(0.001)
                    statuses.append((await client.get("/healthz")).status_code)
                return (await flood).status_code, statuses

        status, statuses = asyncio.run(ask())
    assert status == 422
    assert set(statuses) == {200}
    assert len(statuses) >= 5  # told in between, however slow the machine is


def test_arrow_rows_of_many_models_keep_their_places(tmp_path: Path) -> None:
    names = ["digits", None, "churn", "nobody", "churn", "digits", "", "churn"]
    batch = pa.record_batch({"model": names, "id": [f"r{n}" for n in range(8)], "inputs.x": range(8)})
    near = Near()
    decoded = decode(ipc(batch), near, form="arrow")
    taken = {block.model: block.table.column("id").to_pylist() for block in decoded.blocks}
    assert taken == {"digits": ["r0", "r5"], "churn": ["r2", "r4", "r7"]}
    assert [(one.index, one.id, one.model) for one in decoded.rejected.listed] == [
        (1, "r1", ""), (3, "r3", "nobody"), (6, "r6", ""),
    ]  # fmt: skip
    with running(tmp_path) as call:
        answer = call("POST", "/v1/records", content=ipc(batch), headers=ARROW)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 5)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_slices_of_faults_keep_the_first_of_each_row(size: int) -> None:
    faults = RowFaults(10)
    for start, stop in pairwise([*range(0, 10, size), 10]):
        faults.add(np.arange(start, stop), "a", lambda row: f"a{row}")
    faults.add(np.arange(10), "b", "never")
    found = [each.reason(int(row)) for each in faults.groups for row in each.rows if callable(each.reason)]
    assert found == [f"a{row}" for row in range(10)]
    assert faults.rows.tolist() == list(range(10))


def inputs_of(names: list[str], value: Any) -> list[dict[str, Any]]:
    shares = [names[start::200] for start in range(200)]
    return [{"model": "churn", "inputs": {"x": 1} | dict.fromkeys(share, value)} for share in shares]


@pytest.mark.parametrize("is_inner", [False, True], ids=["fields", "inner_fields"])
def test_a_flood_of_fields_is_refused_before_one_of_them_is_looked_at(is_inner: bool) -> None:
    names = [f"f{n}" for n in range(21_000)]
    body = json.dumps(inputs_of(names, {"a": 1, "b": 2} if is_inner else 1)).encode()
    book = SchemaBook({"churn": {}})
    with pytest.raises(ProblemError) as found:
        decode_body(Decoder(book), body, kind="records", form="json", received_us=1)
    assert found.value.problem.status == 413
    assert "limits.columns" in found.value.problem.detail
    assert book.columns("records", "churn") == {}


def test_names_of_empty_objects_are_no_flood() -> None:
    body = json.dumps(inputs_of([f"o{n}" for n in range(21_000)], {})).encode()
    assert decode(body, Near()).accepted == 200


def test_a_flood_of_fields_in_a_list_is_refused_by_the_first_of_each_element() -> None:
    element = {f"f{n}": n for n in range(3000)}
    records = [{"model": "churn", "id": id_, "inputs": {"l": [element]}} for id_ in "ab"]
    decoded = decode(json.dumps(records).encode(), Near())
    assert [(one.id, one.field) for one in decoded.rejected.listed] == [
        ("a", "inputs.l[0].f512"), ("b", "inputs.l[0].f512"),
    ]  # fmt: skip
    assert "limits.columns" in decoded.rejected.listed[0].reason


GOOD = b'{"id": "a", "model": "churn", "inputs": {"x": 0.5, "s": "NaN Infinity"}}'
ODD = [
    GOOD,
    b'{"id": "a", "model": "churn", "inputs": {"x": NaN}}',
    b'{"id": "a", "model": "churn", "inputs": {"x": -Infinity, "s": "a NaN"}}',
    b'{"id": "a", "model": "churn", "inputs": {"x": 1, "x": NaN, "s": "\\ud83d\\ude00 \\\\ud83d"}}',
    b'{"id": "a", "model": "churn", "weight": NaN, "inputs": {"x": 9e99991}}',
    b'{"id": "a", "model": "churn", "inputs": {"s": "9e99991"}}',
    b'{"id": "a", "model": "churn", "inputs": {"x": -NaN}}',
    b'{"id": "a", "model": "churn", "inputs": {"x": 1NaN}}',
    b'{"id": "a", "model": "churn", "inputs": {"x": 1e999}}',
    b'{"id": "\\ud83d", "model": "churn", "inputs": {"x": 1}}',
    b'{"id": "a", "model": "churn", "inputs": {"s": "\\uDC00 a"}}',
    b'{"id": "a", "model": "churn", "inputs": {"\\ud83d": 1}}',
    b'{"id": "a", "model": "churn", "inputs": {"s": "\\x"}}',
    b'{"id": "a", "model": "churn", "inputs": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"id": "a", "model": "churm", "inputs": {"x": 1}}',
    b'{"id": ["a"], "model": "churn", "inputs": {"x": 1}}',
    b'{"id": "a", "model": "churn", "ts": "yesterday", "inputs": {"x": 1}}',
    b'{"id": "a", "model": "churn", "input": {"x": 1}}',
    b'{"id": "\xff", "model": "churn", "inputs": {"x": 1}}',
    b"NaN", b"-Infinity", b"NaN NaN", b'"NaN"', b"[1", b"2]", b"[NaN]", GOOD + b"," + GOOD, b"null", b"-",
    b"\xef\xbb\xbf{}",
]  # fmt: skip
LONG = b'{"id": "a", "model": "churn", "inputs": {"x": ' + b"1" * 5000 + b"}}"


def outcomes(body: bytes, form: Form) -> tuple[int, list[tuple[int, str | None, str, str]], dict[str, int]]:
    book = SchemaBook({"churn": {"inputs.x": "float", "inputs.s": "string"}, "digits": {}})
    decoded = decode_body(Decoder(book), body, form=form, received_us=1)
    listed = [(one.index, one.id, one.field, one.reason) for one in decoded.rejected.listed]
    kinds = {kind.field: kind.count for kind in decoded.rejected.kinds()}
    return decoded.accepted, listed, kinds


@given(
    st.lists(st.tuples(st.sampled_from([*ODD, LONG]), st.sampled_from([1, 1, 2, 20])), min_size=1, max_size=6)
)
def test_a_line_is_taken_or_refused_as_it_would_be_alone(runs: list[tuple[bytes, int]]) -> None:
    lines = [line for line, times in runs for _ in range(times)]
    alone = {line: outcomes(line, "lines") for line, _ in runs}
    accepted, listed, _ = outcomes(b"\n".join(lines), "lines")
    assert accepted == sum(alone[line][0] for line in lines)
    assert listed == [(at, *each[1:]) for at, line in enumerate(lines) for each in alone[line][1]]


@given(st.lists(st.tuples(st.sampled_from(ODD), st.sampled_from([1, 1, 2, 20])), min_size=1, max_size=6))
def test_an_element_is_taken_or_refused_as_a_line_would_be(runs: list[tuple[bytes, int]]) -> None:
    elements = [line for line, times in runs for _ in range(times)]
    body = b"[" + b",".join(elements) + b"]"
    try:
        json.loads(body.decode())
    except (ValueError, RecursionError):
        with pytest.raises(ProblemError):
            outcomes(body, "json")
        return
    elements = [json.dumps(each).encode() for each in json.loads(body)]
    assert outcomes(body, "json")[:2] == outcomes(b"\n".join(elements), "lines")[:2]


CASES = {case[0]: case for case in bench.cases()}


@pytest.mark.skipif(not IS_SOAK, reason="processor time is measured in a soak alone")
def test_refused_bodies_cost_little_more_than_twice_as_much_as_good_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "BYTES", 1_000_000)
    costs = {name: float(1 / np.median(bench.ratios(case))) for name, case in CASES.items()}
    assert {name: cost for name, cost in costs.items() if cost > 3} == {}


def test_every_measured_kind_of_refusal_is_one() -> None:
    with bench.door() as door:
        for name, path, kind, body, bad, _ in CASES.values():
            answer = door.send(path, kind, body(bad, 4))
            said = answer.body.decode("utf-8", "replace")
            assert answer.status in (200, 202, 422), (name, said)
            assert "rejected" in said, (name, said)
            assert not said.endswith('"rejected":[]}'), (name, said)
