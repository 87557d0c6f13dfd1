"""``POST /v1/records?join=true``: inputs and outputs of a record may come in requests of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal

from .test_intake import Caller, ipc, running

JOIN = "/v1/records?model=churn&join=true"


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Caller]:
    with running(tmp_path, "[intake]\njoin_s = 60") as caller:
        yield caller


def records(call: Caller) -> list[dict[str, Any]]:
    journal = SqliteJournal(call.intake.settings.journal_path, read_only=True)
    blocks = [block for block in journal.read(0, limit=1000) if block.kind == "records"]
    journal.close()
    return [record for block in blocks for record in Batch.from_ipc(block.payload).to_records()]


def test_sides_are_joined_by_id_across_requests_and_forms(call: Caller) -> None:
    asked = [{"id": id_, "inputs": {"age": age}} for id_, age in (("a", 41), ("b", 42), (7, 43))]
    answer = call("POST", JOIN, json=asked)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 3, "rejected": []})
    assert records(call) == []
    table = pa.record_batch({"id": ["b", "7"], "outputs.score": [0.25, 0.5]})
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    assert call("POST", JOIN, content=ipc(table), headers=headers).json()["accepted"] == 2
    answer = call("POST", JOIN, json={"id": "a", "outputs": {"score": 0.75}})
    assert answer.headers["x-outrider-id"] == "a"
    assert [(r["id"], r["inputs"], r["outputs"]) for r in records(call)] == [
        ("b", {"age": 42}, {"score": 0.25}),
        ("7", {"age": 43}, {"score": 0.5}),
        ("a", {"age": 41}, {"score": 0.75}),
    ]
    metrics = call("GET", "/metrics").text
    assert 'outrider_halves_total{model="churn",outcome="joined",process="intake"} 3.0' in metrics
    assert 'outrider_records_accepted_total{model="churn",process="intake"} 3.0' in metrics


def test_whole_records_are_not_held_up_and_rows_of_one_table_may_be_either(call: Caller) -> None:
    table = pa.record_batch(
        {"id": ["a", "b", "c"], "inputs.age": [1, None, 3], "outputs.score": [0.5, 0.25, None]}
    )
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    assert call("POST", JOIN, content=ipc(table), headers=headers).json()["accepted"] == 3
    assert [record["id"] for record in records(call)] == ["a"]
    call("POST", JOIN, json=[{"id": "c", "outputs": {"score": 1.0}}, {"id": "b", "inputs": {"age": 2}}])
    assert sorted(record["id"] for record in records(call)) == ["a", "b", "c"]


def test_a_side_without_an_id_is_rejected_alone(call: Caller) -> None:
    answer = call("POST", JOIN, json=[{"inputs": {"age": 1}}, {"id": "b", "inputs": {"age": 2}}, {"id": "c"}])
    assert answer.json()["accepted"] == 1
    first, second = answer.json()["rejected"]
    assert (first["index"], first["field"]) == (0, "id")
    assert "join=true" in first["reason"]
    assert (second["index"], second["field"]) == (2, "inputs")


def test_without_join_nothing_waits_and_other_values_are_refused(call: Caller) -> None:
    assert call("POST", "/v1/records?model=churn", json={"id": "a", "inputs": {"age": 1}}).status_code == 202
    assert [record["id"] for record in records(call)] == ["a"]
    answer = call("POST", "/v1/records?model=churn&join=yes", json={"id": "a", "inputs": {"age": 1}})
    assert (answer.status_code, "true or false" in answer.json()["detail"]) == (400, True)


def test_a_mirrored_request_is_joined_with_the_answer_that_the_service_reports(call: Caller) -> None:
    tensor = {"name": "age", "shape": [2], "datatype": "INT64", "data": [41, 42]}
    headers = {"x-outrider-mirror": "1", "x-request-id": "r9"}
    mirrored = call("POST", "/v2/models/churn/infer", json={"inputs": [tensor]}, headers=headers)
    assert (mirrored.status_code, records(call)) == (200, [])
    call("POST", JOIN, json=[{"id": f"r9:{row}", "outputs": {"score": row / 2}} for row in (0, 1)])
    assert [(r["id"], r["inputs"], r["outputs"]) for r in records(call)] == [
        ("r9:0", {"age": 41}, {"score": 0.0}),
        ("r9:1", {"age": 42}, {"score": 0.5}),
    ]


def test_sides_that_wait_keep_to_the_bytes_of_their_model(tmp_path: Path) -> None:
    with running(tmp_path, "[limits]\nbody_bytes = 100000\n[models.churn.intake]\nbody_bytes = 2000") as call:
        answer = call("POST", JOIN, json={"id": "a", "inputs": {"text": "x" * 3000}})
        assert (answer.status_code, "models.churn.intake.body_bytes" in answer.json()["detail"]) == (
            413,
            True,
        )


@pytest.mark.parametrize("value", [[1.0, 2.0], [[1, 2], [3, 4]], ["a"], {"$bytes": "aGk="}, "x"])
def test_either_side_may_bring_a_value_of_any_type(call: Caller, value: Any) -> None:
    def sides(part: str, bringers: str) -> list[dict[str, Any]]:
        return [
            {"id": one, part: {"x": 1}, "attrs": {"v": value if one in bringers else None}} for one in "abc"
        ]

    assert call("POST", JOIN, json=sides("inputs", "a")).status_code == 202
    assert call("POST", JOIN, json=sides("outputs", "b")).status_code == 202
    brought = {record["id"]: record.get("attrs", {}).get("v") is not None for record in records(call)}
    assert brought == {"a": True, "b": True, "c": False}
