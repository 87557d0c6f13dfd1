"""Triggers of retraining: ``GET /v1/models/{model}/triggers``, and alerts by ``POST /v1/alerts``."""

from typing import Annotated, Literal

from fastapi import Depends, Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from typing_extensions import TypedDict

from outrider.dataops.state.database import now_us, write
from outrider.dataops.triggers.alerts import AlertKey, note_firing, note_resolved, take_message
from outrider.dataops.triggers.decision import Evaluation
from outrider.dataops.triggers.evaluation_log import remember
from outrider.errors import nearest
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, source_of, view
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.webhook_secrets import alert_secret
from outrider.monitor.views.service import Service

from .reader import TriggerList, list_triggers

MOST_ALERTS = 500
"""Of one notification."""
_LETTERS = 100
"""Of a name that the log quotes."""
Text = Annotated[str, Field(max_length=4_096)]


class PostedAlert(BaseModel):
    """Alert in Alertmanager's words; its other fields are not read."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["firing", "resolved"]
    labels: dict[Text, Text] = Field(max_length=200)
    """With ``alertname``, and ``model``: whose triggers it is of."""
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's name
    fingerprint: str = Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")


class AlertNotification(BaseModel):
    """Notification of Alertmanager's webhook receiver, version 4."""

    model_config = ConfigDict(extra="ignore")

    version: Literal["4"]
    alerts: list[PostedAlert] = Field(max_length=MOST_ALERTS)


class IgnoredAlert(TypedDict):
    """Alert that was not taken."""

    index: int
    field: str
    reason: str


class AlertsTaken(TypedDict):
    """Number of alerts that were taken, and the others with reasons."""

    accepted: int
    ignored: list[IgnoredAlert]


async def _signed(request: Request) -> str | None:
    """Id of a message whose signature holds; None where nothing is signed."""
    secret = alert_secret(source_of(request, Service).settings)
    if secret is None:
        return None
    try:
        Webhook(secret).verify(await request.body(), dict(request.headers), json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        detail = (
            "a body signed as in Standard Webhooks expected, with the secret of [alerts] and within five "
            f"minutes (webhook-id, webhook-timestamp, webhook-signature): {error}"
        )
        raise ProblemError(problem(401, detail, field="webhook-signature")) from None
    return request.headers["webhook-id"][:256]


@view("/v1/models/{model}/triggers", scope="read", tag="retrains")
def get_triggers(
    service: Service, model: str, limit: Annotated[int, Query(ge=1, le=1000)] = 20
) -> TriggerList:
    """Triggers of a model: settings, guards, suggestions, and why each did or did not fire."""
    own = service.model(model)
    return list_triggers(service.engine, model, own, now_us=now_us(), limit=limit)


@change("POST /v1/alerts", scope="promote", tag="retrains", status_code=202)
def take_alerts(
    service: Service, body: AlertNotification, message: Annotated[str | None, Depends(_signed)]
) -> AlertsTaken:
    """Take a notification of Alertmanager; alerts that a model's triggers name start a retraining."""
    now = now_us()
    with write(service.engine) as connection:
        if message is not None and not take_message(connection, message, now_us=now):
            detail = f"webhook-id {message!r} was taken before: each message is taken once"
            raise ProblemError(problem(409, detail, field="webhook-id"))
        ignored = [
            IgnoredAlert(index=index, field=fault[0], reason=fault[1])
            for index, alert in enumerate(body.alerts)
            if (fault := _take(connection, service.settings, alert, now_us=now)) is not None
        ]
    return {"accepted": len(body.alerts) - len(ignored), "ignored": ignored}


def _take(
    connection: Connection, settings: Settings, alert: PostedAlert, *, now_us: int
) -> tuple[str, str] | None:
    """Note an alert; field and reason where it is of no use."""
    model, name = alert.labels.get("model"), alert.labels.get("alertname", "")
    if model is None:
        return "labels.model", "a label model expected, that names the model; the alert's rule may set it"
    if model not in settings.models:
        return "labels.model", f"no such model{nearest(model[:_LETTERS], settings.models)}"
    own = settings.models[model].retrain
    if not own.enabled:
        return "labels.model", f"models.{model}.retrain is not enabled"
    listed = own.triggers.alerts
    if name not in listed:
        reason = f"triggers.alerts does not list {name[:_LETTERS]!r}{nearest(name[:_LETTERS], listed)}"
        unused = Evaluation("alerts", "quiet", "not_listed", reason)
        remember(connection, model, unused, None, now_us=now_us)
        return "labels.alertname", reason
    key = AlertKey(model, alert.fingerprint, int(alert.startsAt.timestamp() * 1e6))
    if alert.status == "resolved":
        note_resolved(connection, key, now_us=now_us)
        over = Evaluation("alerts", "quiet", "resolved", f"alert {name} is resolved")
        remember(connection, model, over, None, now_us=now_us)
    else:
        note_firing(connection, key, name=name, now_us=now_us)
    return None
