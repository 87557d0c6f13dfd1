"""Events: what docs/events.md says of payloads, their order, and the way back from an own trainer."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, text
from standardwebhooks import Webhook, WebhookVerificationError

from outrider.commands.lineage import line
from outrider.dataops import outbox
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import EVENTS, WebhookTarget
from outrider.dataops.state.database import write
from outrider.dataops.triggers.decision import RunGuards
from outrider.dataops.triggers.firing import settle
from outrider.dataops.triggers.signals import OpenIncident, incidents_signal
from outrider.monitor.server.app import _install_problems
from outrider.monitor.settings.sections import WebhookSettings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.shadow_tests import ShadowTests
from outrider.monitor.views.every import every_router
from tests.asgi import get, request
from tests.dataops.test_incidents import TARGETS, Traffic
from tests.model_sources import FUNCTION
from tests.monitor.services import service_over
from tests.monitor.shadow_sample import START_US
from tests.monitor.test_shadow_tests import stream
from tests.monitor.test_trainer import (
    add_job,
    context,  # noqa: F401 - a fixture
    flagged_and_labelled,
    imported,
    registered_twin,
    run,
)
from tests.monitor.test_watches import served, share

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
EVERYTHING = (WebhookTarget("http://receiver.example", EVENTS),)
FREE = {"params"}
"""Fields whose own fields differ from case to case."""


def documented() -> dict[str, tuple[dict[str, Any], set[str]]]:
    """Example's data, and the fields of the table, by event."""
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        if (block := re.search(r"```json\n(.*?)```", section, re.DOTALL)) is not None:
            example = json.loads(block[1])
            assert set(example) == {"type", "timestamp", "data"}
            assert section.startswith(f"{example['type']}\n")
            cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
            found[example["type"]] = (example["data"], set(re.findall(r"`(\w+)`", " ".join(cells))))
    return found


def payloads(engine: Engine) -> dict[str, dict[str, Any]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT event, payload FROM outbox")).all()
    return {event: json.loads(payload)["data"] for event, payload in rows}


def shape(value: Any) -> Any:
    """Names and JSON types of an example or a payload."""
    if isinstance(value, dict):
        return {key: {} if key in FREE else shape(each) for key, each in value.items()}
    return type(value).__name__


def gated(context: JobContext) -> JobContext:  # noqa: F811 - the fixture
    """Trainer's stores after a refused, a waiting, a promoted and a rolled back version."""
    told = replace(context, targets=EVERYTHING)
    imported(told)
    flagged_and_labelled(told)
    add_job(told, from_scratch=True, epochs=1, learning_rate=1e-5)
    assert run(told).status == "refused"
    with write(told.engine) as connection:
        twin = models.get(connection, "sign", "1")
        models.register(
            connection, model="sign", version="twin", status="challenger", digest=twin.digest,
            weights=twin.weights, now_us=2, source=twin.source,
        )  # fmt: skip
    add_job(told, candidate="twin")
    return told


def test_every_event_is_documented_as_the_code_enqueues_it(context: JobContext, tmp_path: Path) -> None:  # noqa: F811
    told = gated(context)
    settings = told.settings.models["sign"]
    strict = settings.gate.model_copy(update={"max_drop": 0.001})
    told.settings.models["sign"] = settings.model_copy(update={"gate": strict})
    assert run(told).status == "undecided"
    loose = settings.gate.model_copy(update={"max_drop": 0.1})
    told.settings.models["sign"] = settings.model_copy(update={"gate": loose})
    add_job(told, candidate="twin")
    assert run(told).status == "done"
    add_job(told, candidate="nobody")
    assert run(told).status == "failed"
    with write(told.engine) as connection:
        models.promote(connection, "sign", "twin", now_us=5, reason="asked for", by="ann", targets=EVERYTHING)
        models.rollback(connection, "sign", now_us=6, reason="asked for", by="ann", targets=EVERYTHING)
    traffic = Traffic(told.engine)
    traffic.book.version = "4"
    for minute in range(34):
        traffic.minute(2 if minute < 30 else 25)
    with write(told.engine) as connection:
        incident = traffic.incidents()[0].id
        stored_incidents.resolve(connection, incident, now_us=traffic.now_us, why="fixed", targets=TARGETS)
    found = payloads(told.engine)
    with stream(tmp_path / "shadow", wrong={"worse": 0.2}, limits=lambda _: {"shadow_s": 60.0}) as made:
        clock = [START_US]
        own = JobContext(made.settings, made.engine, made.objects, made.journal, EVERYTHING)
        watch = ShadowTests(own, now=lambda: clock[0])
        watch.look()
        made.feed(5)
        clock[0] += 61_000_000
        watch.look()
        found |= payloads(made.engine)
    with served(tmp_path / "watch") as watched:
        watched.promote("2")
        for seed in range(6):
            watched.serve(share(0.3, seed=seed))
            watched.watch.look()
        found["rollback.proposed"] = payloads(watched.bench.engine)["rollback.proposed"]
    with write(told.engine) as connection:
        seen = incidents_signal([OpenIncident("inc_1", "critical", "odd_size", 1)], "critical", {})
        suggests = RunGuards(60.0, 4, is_automatic=False)
        settle(
            connection, "idle", seen, suggests, now_us=9, command="outrider retrain idle", targets=EVERYTHING
        )
    found["retrain.suggested"] = payloads(told.engine)["retrain.suggested"]
    page = documented()
    assert set(found) == set(EVENTS) == set(page)
    for event, (example, fields) in page.items():
        assert shape(found[event]) == shape(example), event
        assert fields >= set(example), event
    assert set(WebhookSettings(url="http://x.example").events) == set(EVENTS)


def test_the_dataset_is_told_before_the_training_that_names_it(context: JobContext) -> None:  # noqa: F811
    told = replace(context, targets=EVERYTHING)
    flagged_and_labelled(told)
    job = add_job(told, "dataset", trigger="labelled_flags", labelled_flags=120)
    assert run(told).status == "done"
    messages = []
    with write(told.engine) as connection:
        while (one := outbox.claim(connection, EVERYTHING[0].url, now_us=2**60)) is not None:
            messages.append(json.loads(one.payload))
            outbox.delivered(connection, one.id, now_us=2**60)
    assert [one["type"] for one in messages] == ["dataset.committed", "retrain.requested"]
    committed, requested = (one["data"] for one in messages)
    assert committed["job"] == requested["job"] == job
    assert {key: committed[key] for key in requested["dataset"]} == requested["dataset"]
    assert committed["url"].endswith("/v1/datasets/sign-flagged/versions/1/rows")


def routes(context: JobContext) -> FastAPI:  # noqa: F811
    app = FastAPI()
    app.include_router(
        every_router(service_over(context.engine, settings=context.settings, objects=context.objects))
    )
    _install_problems(app)
    return app


def ask(app: FastAPI, **body: object) -> Any:
    kind = {"content-type": "application/json"}
    return request(app, "POST", "/v1/retrains", headers=kind, content=json.dumps(body).encode())


def test_a_candidate_made_elsewhere_keeps_its_dataset_and_job(context: JobContext) -> None:  # noqa: F811
    flagged_and_labelled(context)
    job = add_job(context, "dataset", trigger="labelled_flags")
    run(context)
    with write(context.engine) as connection:  # a function: no weights are kept
        models.register(
            connection,
            model="sign",
            version="sk",
            status="challenger",
            digest="d",
            weights=None,
            now_us=2,
            source=FUNCTION,
        )
    app = routes(context)
    for wrong in ({"job": "job_none"}, {"dataset": "sign-flagged@9"}, {"dataset": "sign-flagged@none"}):
        assert ask(app, model="sign", candidate="sk", **wrong).status_code == 404
    assert ask(app, model="sign", job=job).status_code == 422
    asked = ask(app, model="sign", candidate="sk", job=job)
    assert asked.status_code == 202
    assert asked.json()["params"]["dataset"] == "sign-flagged@1"
    tree = get(app, "/v1/lineage/sign?version=sk").json()
    assert {(one["kind"], one["id"], one["role"]) for one in tree["parents"]} == {
        ("job", job, "trained by"),
        ("dataset", "sign-flagged@1", "fresh"),
    }


def test_what_failed_is_refused_and_what_passed_waits_for_a_person(context: JobContext) -> None:  # noqa: F811
    imported(context)
    registered_twin(context)
    add_job(context, candidate="2")
    assert run(context).status == "done"
    app = routes(context)

    def outcome() -> tuple[str, str]:
        node = get(app, "/v1/lineage/sign?version=2").json()
        word = get(app, "/v1/gates?model=sign").json()["gates"][0]["outcome"]
        assert f"gate: {word}" in line(node)
        return word, node["gate"]["outcome"]

    assert outcome() == ("waiting for a person",) * 2
    with write(context.engine) as connection:
        models.promote(connection, "sign", "2", now_us=9, reason="seen", by="ann")
    assert outcome() == ("passed",) * 2
    add_job(context, from_scratch=True, epochs=1, learning_rate=1e-5)
    assert run(context).status == "refused"
    assert get(app, "/v1/gates?model=sign").json()["gates"][0]["outcome"] == "refused"


def test_a_receiver_verifies_as_the_page_does(tmp_path: Path) -> None:
    make, secret = (
        re.search(r"^ +python -c (\".*\") > webhook.secret$", PAGE, re.MULTILINE),
        tmp_path / "secret",
    )
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert make is not None
    assert block is not None
    with secret.open("w", encoding="ascii") as file:
        subprocess.run([sys.executable, "-c", *shlex.split(make[1])], stdout=file, check=True)
    known = secret.read_text(encoding="ascii").strip()
    names: dict[str, Any] = {}
    exec(block[1], names)
    body, now = json.dumps({"type": "retrain.requested"}), datetime.now(UTC)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(known).sign("msg_1", now, body),
    }
    assert names["take"](body.encode(), headers, known) == {"type": "retrain.requested"}
    with pytest.raises(WebhookVerificationError):
        names["take"](body.encode().replace(b"requested", b"refused"), headers, known)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_its_section(event: str) -> None:
    assert f"\n## {event}\n" in PAGE
