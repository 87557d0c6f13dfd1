"""Shared parts of the API's requests and answers."""

from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from outrider.assertions.flags.quality import Rate
from outrider.assertions.times import utc_text
from outrider.dataops import outbox
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings

from .declared import FieldsOf
from .problem import ProblemError, problem

Limit: TypeAlias = Annotated[int, Field(ge=1, le=1000)]
MOST_S = 3_155_760_000
"""A hundred years: more than that has no date."""
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
RateFigures: TypeAlias = Annotated[Rate, RATE]


def known_model(settings: Settings, model: str) -> ModelSettings:
    if model not in settings.models:
        known = ", ".join(settings.models) or "none"
        raise NotFound(f"no model {model!r} in the configuration; there are {known}")
    return settings.models[model]


def iso(value: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601, UTC."""
    return None if value is None else utc_text(value)


def end_us(until: AwareDatetime | None, for_s: float | None) -> int | None:
    if until is not None and for_s is not None:
        raise ProblemError(problem(422, "until and for_s exclude each other: give one", field="for_s"))
    if for_s is not None:
        return now_us() + int(for_s * 1e6)
    return None if until is None else int(until.timestamp() * 1e6)
