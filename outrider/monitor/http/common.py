"""Shared parts of the API's requests and answers."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from outrider.assertions.flags.quality import Rate, SuspensionRule, WeightedRate
from outrider.assertions.times import utc_text
from outrider.dataops import outbox
from outrider.errors import NotFound
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings

StoredNumber: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number that rows are found by, within what the database can hold."""


class RequestBody(BaseModel):
    """A JSON body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


def targets_of(settings: Settings) -> list[outbox.WebhookTarget]:
    return [outbox.WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]


def suspension_rule(settings: Settings) -> SuspensionRule:
    rule = settings.quality
    return SuspensionRule(rule.min_precision, rule.min_outcomes, rule.max_fire_rate)


class RateFigures(TypedDict):
    """Share with its 95 % interval and its estimator."""

    hits: int
    trials: int
    share: float | None
    low: float
    high: float
    method: Literal["weighted", "none", "plain"]
    effective: float
    basis: str


def rate_json(rate: Rate) -> RateFigures:
    estimate = rate.estimate if isinstance(rate, WeightedRate) else None
    return {
        "hits": rate.hits,
        "trials": rate.trials,
        "share": rate.share if rate.trials else None,
        "low": rate.low,
        "high": rate.high,
        "method": estimate.method if estimate else "plain",
        "effective": round(estimate.effective, 1) if estimate else rate.trials,
        "basis": rate.basis,
    }


def known_model(settings: Settings, model: str) -> ModelSettings:
    if model not in settings.models:
        known = ", ".join(settings.models) or "none"
        raise NotFound(f"no model {model!r} in the configuration; there are {known}")
    return settings.models[model]


def timed(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` with its microsecond columns as ISO 8601: ``created_us`` becomes ``created``."""
    return {
        key.removesuffix("_us"): iso(value) if key.endswith("_us") else value for key, value in row.items()
    }


def iso(value: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601, UTC."""
    return None if value is None else utc_text(value)
