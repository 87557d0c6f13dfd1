"""Route ``GET /v1/judges``.

Cost of each judge, outcomes of its questions, and agreement with people.
"""

import math
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Engine

from outrider.assertions.kappa import agreement
from outrider.dataops.judges import counts_of, failures_of, labelled_pairs, spent_today, version_of
from outrider.dataops.state.database import now_us
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.metrics.catalogue import BY_NAME
from outrider.monitor.settings.config import JudgeSettings, Settings
from outrider.monitor.settings.judge_version import judge_digest

OUTCOMES = BY_NAME["outrider_judge_questions_total"].enums["outcome"]


def judge_view(
    engine: Engine, settings: Settings, model: str, name: str, judge: JudgeSettings
) -> dict[str, Any]:
    """Judge as JSON.

    Figures of the running version stand under ``agreement``.
    """
    digest = judge_digest(settings, judge)
    field, label = judge.compared
    with engine.connect() as connection:
        counts = counts_of(connection, model, name)
        questions, tokens = spent_today(connection, model, name, now_us())
        pairs = labelled_pairs(connection, model, version_of(name, digest), field=field, label=label)
        failures = failures_of(connection, digest)
    rated = asdict(agreement([said for said, _ in pairs], [truth for _, truth in pairs]))
    return {
        "name": name,
        "version": digest,
        "by": judge.url or judge.predictor,
        "outcomes": {outcome: counts.get(outcome, 0) for outcome in OUTCOMES},
        "asked": counts.get("asked", 0),
        "tokens": counts.get("tokens", 0),
        "mean_seconds": counts.get("milliseconds", 0) / 1000 / max(1, counts.get("asked", 0)),
        "today": {
            "questions": questions,
            "budget": judge.budget_per_day,
            "tokens": tokens,
            "token_budget": judge.tokens_per_day,
        },
        "agreement": {"field": field, "label": label}
        | {key: None if math.isnan(value) else value for key, value in rated.items()},
        "failures": failures,
    }


def judge_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Routes about judges."""

    def judges(model: str) -> dict[str, Any]:
        """Judges of a model with their costs, outcomes and agreement with labels."""
        if model not in settings.models:
            there = ", ".join(settings.models) or "none"
            raise ProblemError(problem(404, f"there is no model {model!r}; there is {there}", field="model"))
        own = settings.models[model].judges
        return {"judges": [judge_view(engine, settings, model, name, judge) for name, judge in own.items()]}

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route("/judges", judges, methods=["GET"], response_model=None)
    return router
