"""``GET /v1/judges``: cost, outcomes, and agreement with people."""

from typing import Annotated, Any, NotRequired, TypeAlias

from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.assertions.statistics.kappa import RaterAgreement, agreement
from outrider.dataops.judges import Reply, counts_of, failures_of, labelled_pairs, spent_today, version_of
from outrider.dataops.state.database import now_us
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import view
from outrider.monitor.metrics.catalogue import BY_NAME
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.judge_version import judge_digest
from outrider.monitor.settings.model_sections import JudgeSettings
from outrider.monitor.views.service import Service

_AGREEMENT = FieldsOf(RaterAgreement, "JudgeAgreement", more={"field": str, "label": str})
AgreementFacts: TypeAlias = Annotated[dict[str, Any], _AGREEMENT]
FailureFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        Reply,
        "JudgeFailure",
        without=("tokens", "seconds", "spent"),
        more={
            "answer": NotRequired[dict[str, Any]],
            "text": NotRequired[str],
            "detail": NotRequired[str],
            "at_us": int,
        },
    ),
]


class JudgeDay(TypedDict):
    """Spending of a judge today, with its budgets."""

    questions: int
    budget: int
    tokens: int
    token_budget: int | None


class JudgeFacts(TypedDict):
    """A judge with its costs, outcomes and agreement with labels."""

    name: str
    version: str
    by: str | None
    outcomes: dict[str, int]
    asked: int
    tokens: int
    mean_seconds: float
    today: JudgeDay
    agreement: AgreementFacts
    failures: list[FailureFacts]


JudgeList: TypeAlias = Annotated[list[JudgeFacts], Listed("judges", "JudgeList", "Judges of a model.")]


OUTCOMES = BY_NAME["outrider_judge_questions_total"].enums["outcome"]


def judge_view(engine: Engine, settings: Settings, model: str, name: str, judge: JudgeSettings) -> JudgeFacts:
    digest = judge_digest(settings, judge)
    field, label = judge.compared
    with engine.connect() as connection:
        counts = counts_of(connection, model, name)
        questions, tokens = spent_today(connection, model, name, now_us())
        pairs = labelled_pairs(connection, model, version_of(name, digest), field=field, label=label)
        failures = failures_of(connection, digest)
    rated = agreement([said for said, _ in pairs], [truth for _, truth in pairs])
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
        "agreement": _AGREEMENT.body(rated, field=field, label=label),
        "failures": failures,
    }


@view("/v1/judges", scope="read")
def judges(service: Service, model: str) -> JudgeList:
    """Judges of a model with their costs, outcomes and agreement with labels."""
    if model not in service.settings.models:
        there = ", ".join(service.settings.models) or "none"
        raise ProblemError(problem(404, f"there is no model {model!r}; there is {there}", field="model"))
    own = service.settings.models[model].judges
    return [judge_view(service.engine, service.settings, model, name, judge) for name, judge in own.items()]
