"""Triggers of retraining and their log, for API and pages."""

from typing import Annotated, Any, TypeAlias

from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.state.database import now_us
from outrider.dataops.triggers import evaluation_log
from outrider.dataops.triggers.decision import held
from outrider.dataops.triggers.evaluation_log import EvaluationRow
from outrider.dataops.triggers.inputs import read_history
from outrider.monitor.http.common import iso
from outrider.monitor.http.declared import FieldsOf, Time
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.service import Service

EVALUATION = FieldsOf(
    EvaluationRow,
    "TriggerEvaluationFigures",
    about="Evaluation of a trigger; equal ones in a row are one.",
    times=True,
    without=("id", "model"),
    more={"since": Time | None, "until": Time | None},
)
EvaluationFigures: TypeAlias = Annotated[EvaluationRow, EVALUATION]


class TriggerFigures(TypedDict):
    """Trigger that is set, with its newest evaluation."""

    trigger: str
    last: EvaluationFigures | None


class SuggestionFigures(TypedDict):
    """Retraining that is suggested, until one is run."""

    trigger: str
    why: str
    since: Time | None
    command: str


class TriggerGuardFigures(TypedDict):
    """Guards that all triggers share."""

    mode: str
    cooldown_s: float
    daily_budget: int
    failures: int
    runs_today: int
    failed_in_row: int
    is_open: bool
    held: str | None
    """Why no run would start now; null where one would."""


class TriggerList(TypedDict):
    """Triggers of a model, and the log of their evaluations, newest first."""

    model: str
    enabled: bool
    guards: TriggerGuardFigures
    settings: dict[str, Any]
    triggers: list[TriggerFigures]
    suggestions: list[SuggestionFigures]
    evaluations: list[EvaluationFigures]


def list_triggers(
    engine: Engine, model: str, settings: ModelSettings, *, now_us: int, limit: int = 20
) -> TriggerList:
    own = settings.retrain
    with engine.connect() as connection:
        history = read_history(connection, model, now_us=now_us)
        last = evaluation_log.last_evaluations(connection, model)
        log = evaluation_log.newest_evaluations(connection, model, limit=limit)
        open_ = [] if own.guards.is_automatic else own.active_triggers
        suggestions = evaluation_log.list_suggestions(connection, model, open_)
    command = settings.training_command(model)
    stop = held(own.guards, history, now_us=now_us)
    return {
        "model": model,
        "enabled": own.enabled,
        "guards": {
            "mode": own.mode,
            "cooldown_s": own.cooldown_s,
            "daily_budget": own.daily_budget,
            "failures": own.failures,
            "runs_today": history.today,
            "failed_in_row": history.failed,
            "is_open": history.is_open,
            "held": None if stop is None else stop[1],
        },
        "settings": {"labelled_flags": own.labelled_flags, **own.triggers.model_dump(mode="json")},
        "triggers": [{"trigger": name, "last": last.get(name)} for name in own.active_triggers],
        "suggestions": [
            {"trigger": one.trigger, "why": one.why, "since": iso(one.suggested_us), "command": command}
            for one in suggestions
        ],
        "evaluations": log,
    }


def triggers_of(service: Service, model: str) -> TriggerList | None:
    own = service.settings.models.get(model)
    return None if own is None else list_triggers(service.engine, model, own, now_us=now_us())
