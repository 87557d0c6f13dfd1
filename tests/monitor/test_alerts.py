"""Alertmanager's notifications: what is taken, what is refused and why, who may post, signatures."""

import asyncio
import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from outrider.dataops.state.database import now_us, open_database, write
from outrider.dataops.triggers.alerts import firing_alerts
from outrider.dataops.triggers.firing import settle
from outrider.dataops.triggers.signals import FiringAlert, alerts_signal
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.databases import place_database

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONFIG = """
[server]
port = 0
[storage]
folder = "data"
min_free_bytes = 0
[models.churn]
predictor = "model.py:predict"
[models.churn.retrain]
enabled = true
[models.churn.retrain.triggers]
alerts = ["ChurnDrift"]
[models.other]
predictor = "model.py:predict"
"""
POSTED: dict[str, Any] = {
    "receiver": "outrider", "status": "firing", "version": "4", "groupKey": '{}:{alertname="ChurnDrift"}',
    "truncatedAlerts": 0, "groupLabels": {"alertname": "ChurnDrift"}, "commonLabels": {},
    "commonAnnotations": {}, "externalURL": "http://alertmanager:9093",
    "alerts": [
        {
            "status": "firing", "labels": {"alertname": "ChurnDrift", "model": "churn", "job": "batch"},
            "annotations": {"summary": "PSI of age is 0.31"}, "startsAt": "2026-01-05T10:00:00.123456789Z",
            "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus/graph",
            "fingerprint": "9c2f8e1d",
        }
    ],
}  # fmt: skip
"""As Alertmanager 0.28 writes it."""


class Door:
    """The API of a service without its other processes."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        (folder / "data").mkdir()
        place_database(folder / "data" / "state.db")
        (folder / "outrider.toml").write_text(config)
        (folder / "model.py").write_text("def predict(batch):\n    return {}\n")
        self.intake = ServerProcess(load_settings(folder / "outrider.toml"))
        self.intake.writer.start()
        self.intake.add_routers()
        self.key = (folder / "data" / "key").read_text().strip()
        self.engine = open_database(self.intake.settings.database_url)

    def close(self) -> None:
        self.engine.dispose()
        self.intake.close()

    def post(
        self, body: object, *, key: str | None = None, path: str = "/v1/alerts", **headers: str
    ) -> httpx.Response:
        return self.ask("POST", path, body, key=key, headers=headers)

    def ask(
        self, method: str, path: str, body: object = None, *, key: str | None = None, headers: Any = None
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def send() -> httpx.Response:
            sent = {"authorization": f"Bearer {key or self.key}", "content-type": "application/json"}
            named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.intake.app)) as client:
                return await client.request(
                    method, f"http://test{path}", content=content, headers=sent | named
                )

        return asyncio.run(send())

    def firing(self) -> list[str]:
        with self.engine.connect() as connection:
            found = firing_alerts(connection, "churn", ["ChurnDrift"], now_us=now_us())
        return [one.id for one in found]

    def log(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", "/v1/models/churn/triggers").json()["evaluations"]
        return found


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path)
    yield made
    made.close()


def posted(**changes: Any) -> dict[str, Any]:
    """The notification with changes of its alert."""
    body = copy.deepcopy(POSTED)
    alert: dict[str, Any] = body["alerts"][0]
    alert["labels"] |= changes.pop("labels", {})
    alert |= changes
    return body


def test_a_notification_of_alertmanager_is_taken_once_however_often_it_comes(door: Door) -> None:
    for _ in range(3):
        answer = door.post(POSTED)
        assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "ignored": []})
    assert len(door.firing()) == 1
    again = posted(startsAt="2026-01-06T10:00:00Z")
    assert door.post(again).json()["accepted"] == 1
    assert len(door.firing()) == 2


def test_a_resolved_alert_ends_and_one_that_nobody_posted_before_starts_nothing(door: Door) -> None:
    door.post(posted(status="resolved"))
    assert door.firing() == []
    door.post(POSTED)
    assert len(door.firing()) == 1
    door.post(posted(status="resolved"))
    assert door.firing() == []
    assert [row["reason"] for row in door.log()] == ["resolved"]


def test_what_is_of_no_use_is_named_and_holds_up_nothing_else(door: Door) -> None:
    body, nameless = posted(), posted()["alerts"][0]
    del nameless["labels"]["model"]
    body["alerts"] = [
        nameless,
        posted(labels={"model": "chrn"})["alerts"][0],
        posted(labels={"model": "other"})["alerts"][0],
        posted(labels={"alertname": "Drift"})["alerts"][0],
        posted()["alerts"][0],
    ]
    answer = door.post(body).json()
    assert answer["accepted"] == 1
    assert [(one["index"], one["field"]) for one in answer["ignored"]] == [
        (0, "labels.model"), (1, "labels.model"), (2, "labels.model"), (3, "labels.alertname"),
    ]  # fmt: skip
    reasons = [one["reason"] for one in answer["ignored"]]
    assert reasons[1] == "no such model; nearest: churn"
    assert reasons[2] == "models.other.retrain is not enabled"
    assert reasons[3] == "triggers.alerts does not list 'Drift'; nearest: ChurnDrift"
    (row,) = door.log()
    assert (row["trigger"], row["outcome"], row["why"]) == ("alerts", "quiet", reasons[3])
    assert len(door.firing()) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"status": "on fire"}, "body.alerts.0.status"),
        ({"startsAt": "yesterday"}, "body.alerts.0.startsAt"),
        ({"startsAt": "2026-01-05T10:00:00"}, "body.alerts.0.startsAt"),
        ({"fingerprint": "../../x"}, "body.alerts.0.fingerprint"),
        ({"fingerprint": "a" * 65}, "body.alerts.0.fingerprint"),
        ({"fingerprint": 7}, "body.alerts.0.fingerprint"),
        ({"labels": {"alertname": ["ChurnDrift"]}}, "body.alerts.0.labels.alertname"),
        ({"labels": {"note": "x" * 5000}}, "body.alerts.0.labels.note"),
    ],
)
def test_a_wrong_type_is_refused_by_field_and_index(door: Door, changes: Any, field: str) -> None:
    answer = door.post(posted(**changes))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [fault["field"] for fault in answer.json()["errors"]] == [field]
    assert door.firing() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"version": "3", "alerts": []}', b"\xff"])
def test_what_is_no_notification_is_refused(door: Door, body: bytes) -> None:
    answer = door.post(body)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_too_many_alerts_at_once_are_refused(door: Door) -> None:
    body = posted()
    body["alerts"] = body["alerts"] * 501
    assert door.post(body).status_code == 422


@pytest.mark.parametrize("scope", ["ingest", "label", "review", "read"])
def test_no_other_scope_than_promote_may_post_alerts(door: Door, scope: str) -> None:
    made = door.post({"name": f"{scope}-only", "scopes": [scope]}, path="/v1/keys").json()
    answer = door.post(POSTED, key=made["key"])
    assert answer.status_code == 403
    assert door.firing() == []


def test_a_key_of_promote_may_and_none_may_not(door: Door) -> None:
    made = door.post({"name": "alertmanager", "scopes": ["promote"]}, path="/v1/keys").json()
    assert door.post(POSTED, key=made["key"]).status_code == 202
    assert door.post(POSTED, key="odd").status_code == 401


def test_labels_and_annotations_are_not_kept(door: Door) -> None:
    door.post(posted(labels={"customer": "Ann Example"}))
    with door.engine.connect() as connection:
        for table in ("alert", "trigger_evaluation", "trigger_state"):
            rows = connection.execute(text(f"SELECT * FROM {table}")).all()
            assert "Ann" not in repr(rows)
            assert "PSI" not in repr(rows)


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Door]:
    (tmp_path / "alerts.secret").write_text(SECRET)
    made = Door(tmp_path, CONFIG + '[alerts]\nsecret_file = "alerts.secret"\n')
    yield made
    made.close()


def signature(body: bytes, message: str = "msg_1", *, at: datetime | None = None) -> dict[str, str]:
    at = at or datetime.now(UTC)
    return {
        "webhook_id": message,
        "webhook_timestamp": str(int(at.timestamp())),
        "webhook_signature": Webhook(SECRET).sign(message, at, body.decode()),
    }


def test_with_a_secret_a_signed_body_is_taken_and_once_only(signed: Door) -> None:
    body = json.dumps(POSTED).encode()
    assert signed.post(body, **signature(body)).status_code == 202
    replayed = signed.post(body, **signature(body))
    assert replayed.status_code == 409
    assert "'msg_1' was taken before" in replayed.json()["detail"]
    assert signed.post(body, **signature(body, "msg_2")).status_code == 202
    assert len(signed.firing()) == 1


def test_what_is_unsigned_old_new_changed_or_odd_is_refused(signed: Door) -> None:
    body = json.dumps(POSTED).encode()
    now, good = datetime.now(UTC), signature(body)
    tries: list[tuple[bytes, dict[str, str]]] = [
        (body, {}),
        (body, signature(body, at=now - timedelta(minutes=6))),
        (body, signature(body, at=now + timedelta(minutes=6))),
        (body + b" ", good),
        (body, good | {"webhook_id": "msg_9"}),
        (body, good | {"webhook_timestamp": "nan"}),
        (body, good | {"webhook_timestamp": "1e400"}),
        (body, good | {"webhook_signature": "v1"}),
        (body, good | {"webhook_signature": "v1,not base64"}),
        (body, good | {"webhook_signature": "v1,a,b"}),
        (body, good | {"webhook_signature": "v2," + good["webhook_signature"][3:]}),
        (body.replace(b"churn", b"ch\xffrn"), good),
    ]
    for sent, headers in tries:
        answer = signed.post(sent, **headers)
        assert answer.status_code in (400, 401, 422), headers
        assert answer.headers["content-type"] == "application/problem+json"
    assert signed.post(tries[1][0], **tries[1][1]).status_code == 401
    assert signed.firing() == []


def test_a_signature_alone_opens_no_door(signed: Door) -> None:
    body = json.dumps(POSTED).encode()
    assert signed.post(body, key="odd", **signature(body)).status_code == 401


def test_a_body_that_was_refused_does_not_use_up_its_message(signed: Door) -> None:
    odd = json.dumps(posted(status="odd")).encode()
    assert signed.post(odd, **signature(odd)).status_code == 422
    body = json.dumps(POSTED).encode()
    assert signed.post(body, **signature(body)).status_code == 202


def test_the_triggers_of_a_model_are_told_with_settings_and_guards(door: Door) -> None:
    answer = door.ask("GET", "/v1/models/churn/triggers").json()
    assert answer["guards"] == {
        "mode": "automatic", "cooldown_s": 3600.0, "daily_budget": 4, "failures": 3, "runs_today": 0,
        "failed_in_row": 0, "is_open": False, "held": None,
    }  # fmt: skip
    assert [one["trigger"] for one in answer["triggers"]] == ["labelled_flags", "alerts"]
    assert door.ask("GET", "/v1/models/nobody/triggers").status_code == 404
    assert answer["settings"]["alerts"] == ["ChurnDrift"]


def test_pages_show_a_suggestion_with_its_command_and_escape_what_alerts_are_called(tmp_path: Path) -> None:
    made = Door(tmp_path, CONFIG.replace("enabled = true", 'enabled = true\nmode = "suggest"'))
    try:
        made.post(posted(labels={"alertname": "<script>alert(1)</script>"}))
        for page in ("/m/churn", "/m/churn/retrains"):
            html = made.ask("GET", page).text
            assert "A retraining is suggested" not in html
            assert "<script>alert" not in html
        assert (
            "triggers.alerts does not list &#39;&lt;script&gt;" in made.ask("GET", "/m/churn/retrains").text
        )
        own = made.intake.settings.models["churn"]
        with write(made.engine) as connection:
            signal = alerts_signal([FiringAlert("ab@1", "ChurnDrift")], {})
            command = own.training_command("churn")
            settle(connection, "churn", signal, own.retrain.guards, now_us=now_us(), command=command)
        for page in ("/m/churn", "/m/churn/retrains"):
            html = made.ask("GET", page).text
            assert "A retraining is suggested: alert ChurnDrift fires." in html
            assert "<code>outrider dataset commit churn</code>" in html
        (found,) = made.ask("GET", "/v1/models/churn/triggers").json()["suggestions"]
        assert (found["trigger"], found["why"]) == ("alerts", "alert ChurnDrift fires")
        assert "Triggers" not in made.ask("GET", "/m/other/retrains").text
    finally:
        made.close()
