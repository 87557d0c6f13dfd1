"""Shared parts of the API's requests and answers."""

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from outrider.assertions.flags.quality import Rate
from outrider.assertions.times import utc_text
from outrider.dataops import outbox
from outrider.errors import NotFound
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings

from .declared import FieldsOf

StoredNumber: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number that rows are found by, within what the database can hold."""


class RequestBody(BaseModel):
    """A JSON body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


def targets_of(settings: Settings) -> list[outbox.WebhookTarget]:
    return [outbox.WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]


RATE = FieldsOf(
    Rate,
    "RateFigures",
    about="Share with its 95 % interval and its estimator.",
    also=("share", "low", "high", "method", "effective", "basis"),
)
RateFigures: TypeAlias = Annotated[dict[str, Any], RATE]


def rate_json(rate: Rate) -> RateFigures:
    return RATE.body(rate)


def known_model(settings: Settings, model: str) -> ModelSettings:
    if model not in settings.models:
        known = ", ".join(settings.models) or "none"
        raise NotFound(f"no model {model!r} in the configuration; there are {known}")
    return settings.models[model]


def iso(value: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601, UTC."""
    return None if value is None else utc_text(value)
