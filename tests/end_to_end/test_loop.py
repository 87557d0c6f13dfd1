"""Once round the loop: flags, labels, dataset version, training, gate, promotion, webhooks, rollback."""

import json
from typing import Any

import pytest
from standardwebhooks import Webhook

from .loop import SECRET, SHADOW_ROWS, Loop
from .service import wait_until


def versions(loop: Loop) -> dict[str, str]:
    found = loop.service.client.get("/v1/models", params={"model": "sign"}).json()["models"]
    return {model["version"]: model["status"] for model in found}


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_trainer_killed_while_it_trains_ends_in_one_verdict_and_one_dataset_version(loop: Loop) -> None:
    assert loop.killed_in == "train"
    assert (loop.job["status"], loop.job["attempts"]) == ("done", 2), loop.job
    assert set(loop.job["result"]["seconds"]) >= {"train", "shadow", "gate"}
    (verdict,) = loop.service.client.get("/v1/gates", params={"model": "sign"}).json()["gates"]
    assert verdict["promoted"] is True
    assert (verdict["candidate"], verdict["champion"]) == ("2", "1")
    found = loop.service.client.get("/v1/datasets", params={"model": "sign"}).json()["datasets"]
    assert sorted(f"{version['dataset']}@{version['number']}" for version in found) == [
        "sign-flagged@1",
        "sign-heldout@1",
        "sign-train@1",
    ]
    assert versions(loop) == {"1": "former", "2": "champion"}


def test_the_dataset_version_holds_exactly_the_flagged_and_labelled_records(loop: Loop) -> None:
    client = loop.service.client
    rows = client.get("/v1/datasets/sign-flagged/versions/1/provenance").json()["rows"]
    flagged = {
        row[0] for row in loop.service.query("SELECT DISTINCT record_id FROM flag WHERE slot = 'champion'")
    }
    assert {row["record_id"] for row in rows} == flagged & loop.labelled
    assert loop.labelled & loop.traffic.faulty <= flagged & loop.labelled < loop.labelled
    assert len(rows) == len({row["record_id"] for row in rows})
    assert {row["label_source"] for row in rows} == {"api"}
    assert {row["part"] for row in rows} == {"train", "held_out"}
    broken = [row for row in rows if row["record_id"] in loop.traffic.faulty]
    assert all("faulty_device" in row["assertion"].split(",") for row in broken)


def test_the_verdict_gives_its_reasons_with_numbers(loop: Loop) -> None:
    (verdict,) = loop.service.client.get("/v1/gates", params={"model": "sign"}).json()["gates"]
    said = "\n".join(verdict["reasons"])
    assert "test_clear" in said
    assert "sign-heldout@1 (200 rows): error rate" in said
    assert "sign-flagged@1 held out" in said
    assert "live records" in said
    assert verdict["evidence"]["shadow"]["rows"] >= SHADOW_ROWS


def test_the_behavioral_matrix_holds_what_the_gate_found_for_both(loop: Loop) -> None:
    found = loop.service.client.get("/v1/suites/sign/matrix").json()
    assert {(each["version"], each["against"]) for each in found["versions"]} == {("2", "1"), ("1", None)}
    rows = {row["test"]: row for row in found["rows"]}
    assert set(rows) == {"test_clear", "test_nudge"}  # the latter asked of the held-out dataset
    for version in ("1", "2"):
        assert rows["test_clear"]["cells"][version]["outcome"]["source"] == "gate"
        assert rows["test_nudge"]["cells"][version]["outcome"]["cases"] == 200
    assert rows["test_clear"]["cells"]["2"]["change"]["p"] == 1.0
    page = loop.service.client.get("/m/sign/behavior").text
    assert "test_nudge" in page


def test_the_lineage_names_data_job_and_parent(loop: Loop) -> None:
    tree = loop.service.run_command("lineage", "sign")
    assert tree["id"] == "sign@2"
    parents = {(parent["kind"], parent["id"], parent["role"]) for parent in tree["parents"]}
    assert parents == {
        ("job", loop.job["id"], "trained by"),
        ("dataset", "sign-flagged@1", "fresh"),
        ("dataset", "sign-train@1", "replay"),
        ("model", "sign@1", "weights"),
        ("model", "sign@1", "replaced"),
    }
    fresh = next(parent for parent in tree["parents"] if parent["id"] == "sign-flagged@1")
    assert {(edge["kind"], edge["role"]) for edge in fresh["parents"]} == {
        ("job", "trigger"),
        ("records", "flagged and labelled"),
    }
    page = loop.service.client.get("/m/sign/lineage").text
    assert "sign-flagged" in page


def check_deliveries(loop: Loop, event: str) -> dict[str, Any]:
    """One message, refused once and sent again under the same id, each time signed; its data."""
    deliveries = loop.wait_delivered(event)
    assert [delivery.status for delivery in deliveries] == [503, 204]
    assert len({delivery.headers["webhook-id"] for delivery in deliveries}) == 1
    first, second = deliveries
    assert first.body == second.body
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    for delivery in deliveries:
        Webhook(SECRET).verify(delivery.body, delivery.headers)
    body = json.loads(first.body)
    assert set(body) == {"type", "timestamp", "data"}
    data: dict[str, Any] = body["data"]
    assert data["model"] == "sign"
    return data


def test_webhooks_are_signed_and_carry_the_same_id_when_repeated(loop: Loop) -> None:
    asked = check_deliveries(loop, "retrain.requested")
    assert asked["job"] == loop.job["id"]
    assert asked["params"]["trigger"] == "labelled_flags"
    promoted = check_deliveries(loop, "model.promoted")
    assert promoted["version"] == "2"


def answered_by(loop: Loop, rows: int = 20) -> str:
    """Version whose answers the worker stores for fresh records."""
    keys = loop.traffic.send(rows, faulty=True)
    last = keys[-1]
    wait_until(
        lambda: bool(loop.service.query("SELECT 1 FROM record WHERE id = ?", last)),
        "fresh records judged",
        loop.service,
    )
    found = loop.service.query(
        "SELECT a.version FROM answer a JOIN record r ON r.model = a.model AND r.seq = a.seq"
        " WHERE r.id = ? AND a.version NOT LIKE 'judge.%'",
        last,
    )
    return ",".join(sorted(version for (version,) in found))  # two around the moment of a promotion


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_the_worker_answers_with_the_promoted_version_and_after_a_rollback_with_the_first(
    loop: Loop,
) -> None:
    wait_until(lambda: answered_by(loop) == "2", "answers of version 2", loop.service)
    back = loop.service.run_command("rollback", "sign", "--reason", "a test")
    assert back["version"] == "1"
    assert versions(loop)["1"] == "champion"
    wait_until(lambda: answered_by(loop) == "1", "answers of version 1", loop.service)
    data = check_deliveries(loop, "model.rolled_back")
    assert data["version"] == "1"
    forward = loop.service.run_command("promote", "sign", "2")
    assert forward["version"] == "2"
    wait_until(lambda: answered_by(loop) == "2", "answers of version 2 again", loop.service)


def test_corrected_and_withdrawn_labels_reach_the_dataset(loop: Loop) -> None:
    client = loop.service.client
    before = {
        row["record_id"]: row
        for row in client.get("/v1/datasets/sign-flagged/versions/1/provenance").json()["rows"]
    }
    corrected, gone, *_ = sorted(before)
    query = "SELECT value FROM label WHERE record_id = ? ORDER BY seq DESC, row DESC LIMIT 1"
    ((told,),) = loop.service.query(query, corrected)
    loop.service.run_command("label", "give", "sign", corrected, str(1 - int(told)), "--source", "expert")
    loop.service.run_command("label", "give", "sign", gone, "--withdraw", "--source", "expert")
    wait_until(lambda: loop.service.query(query, gone) == [(None,)], "labels judged", loop.service)
    made = loop.service.run_command("dataset", "commit", "sign")
    assert made["number"] == 2
    assert (made["labels"]["corrected"], made["labels"]["removed"]) == (1, 1)
    difference = loop.service.run_command("dataset", "diff", "sign-flagged", "1", "2")
    assert (difference["changed"], difference["removed"]) == ([corrected], [gone])
    after = {
        row["record_id"]: row
        for row in client.get("/v1/datasets/sign-flagged/versions/2/provenance").json()["rows"]
    }
    row = after[corrected]
    assert (row["label_source"], row["part"]) == ("expert", before[corrected]["part"])
    ((source, value),) = loop.service.query(
        "SELECT source, value FROM label WHERE seq = ? AND row = ?", row["label_seq"], row["label_row"]
    )
    assert (source, int(value)) == ("expert", 1 - int(told))
