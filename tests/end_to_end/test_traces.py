"""A traced call at a running service: judged by what was retrieved for it, labelled by its conversation."""

import json
from pathlib import Path
from typing import Any

from tests.end_to_end.service import Service, wait_until, write_project
from tests.monitor.otlp.exports import CHAT, TRACE, log, logs, span, traces

CONFIG = """
[server]
port = 0

[models.support]
assertions = ["checks.py"]
"""
CHECKS = """
from outrider.assertions import assertion
from outrider.assertions.library import llm

grounded = llm.ungrounded()


@assertion
def slow(batch):
    \"\"\"Longer than a second.\"\"\"
    return batch.column("attrs.latency_s", null=0.0) > 1.0
"""
PASSAGE = "You can return an order within 30 days."


def test_traced_calls_are_judged_by_what_was_retrieved_and_labelled_by_conversation(tmp_path: Path) -> None:
    found = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE}
    call = CHAT | {"gen_ai.conversation.id": "c-7"}
    exports: dict[str, Any] = {
        "/v1/traces": traces(span(found, 9, at_s=-1), span(call), span(call, 2, lasts_s=2.0)),
        "/v1/logs": logs(
            *(log("gen_ai.user.message", {"content": "How long?"}, number) for number in (1, 2)),
            log("gen_ai.choice", {"index": 0, "message": {"content": PASSAGE}}, 1),
            log("gen_ai.choice", {"index": 0, "message": {"content": "I think 90 days, and it's free!"}}, 2),
        ),
    }
    with Service(write_project(tmp_path, config=CONFIG, checks=CHECKS)) as service:
        for path, export in exports.items():
            headers = {"content-type": "application/x-protobuf"}
            answer = service.client.post(path, content=export.SerializeToString(), headers=headers)
            assert (answer.status_code, answer.content) == (200, b"")
        service.wait_judged(2)
        flags = service.client.get("/v1/flags", params={"model": "support"}).json()["flags"]
        bad = f"{TRACE}-0000000000000002"
        assert {(flag["record_id"], flag["assertion"]) for flag in flags} == {
            (bad, "ungrounded"),
            (bad, "slow"),
        }
        label = {
            "model": "support",
            "entity": "c-7",
            "ts": "2025-12-01T00:00:00Z",
            "label": {"helpful": False},
        }
        assert service.client.post("/v1/labels", content=json.dumps(label)).status_code == 202
        wait_until(
            lambda: bool(
                service.client.get(f"/v1/records/support/{bad}").json()["labels"]
                or service.client.get(f"/v1/records/support/{bad[:-1]}1").json()["labels"]
            ),
            "the label",
            service,
        )
