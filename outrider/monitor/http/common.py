"""Shared parts of the API's requests and answers."""

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from outrider.assertions.flags.quality import Rate, SuspensionRule, WeightedRate
from outrider.assertions.statistics.estimation import Estimate
from outrider.assertions.times import utc_text
from outrider.dataops import outbox
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings

from .declared import FieldsOf
from .problem import ProblemError, problem

Limit: TypeAlias = Annotated[int, Query(ge=1, le=1000)]
MOST_S = 3_155_760_000
"""A hundred years: more than that has no date."""
StoredNumber: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number that rows are found by: what the database cannot hold is refused at the door."""


class RequestBody(BaseModel):
    """A JSON body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


def targets_of(settings: Settings) -> list[outbox.WebhookTarget]:
    """Webhook targets with their events."""
    return [outbox.WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]


def suspension_rule(settings: Settings) -> SuspensionRule:
    """Rule for proposing an assertion's suspension."""
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


EstimateFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(Estimate, "TrafficEstimate", more={"value": float | None})
]


def rate_json(rate: Rate) -> RateFigures:
    """Share with interval and method of estimation, null without trials."""
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
    """Settings of a model, or NotFound."""
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


def end_us(until: AwareDatetime | None, for_s: float | None) -> int | None:
    if until is not None and for_s is not None:
        raise ProblemError(problem(422, "until and for_s exclude each other: give one", field="for_s"))
    if for_s is not None:
        return now_us() + int(for_s * 1e6)
    return None if until is None else int(until.timestamp() * 1e6)
