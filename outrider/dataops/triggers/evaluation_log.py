"""Memory and log of the triggers of retraining.

The log is bounded: equal outcomes of a trigger in a row are one row, and its newest rows stay.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from outrider.dataops.improvement.jobs import KIND
from outrider.dataops.state.improvement_tables import Job, TriggerEvaluation, TriggerState
from outrider.dataops.state.tables import table_of

from .decision import TRIGGER_OUTCOMES, Evaluation, State

MOST_KEPT = 200
_STATE, _LOG, _JOB = table_of(TriggerState), table_of(TriggerEvaluation), table_of(Job)


@dataclass(frozen=True, slots=True)
class TriggerMemory:
    state: State
    suggested_us: int | None = None
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Evaluation as logged; equal ones in a row are one."""

    id: int
    model: str
    trigger: str
    outcome: str
    reason: str
    why: str
    score: float | None
    threshold: float | None
    inputs: dict[str, Any]
    since_us: int
    until_us: int
    times: int
    job: str | None


@dataclass(frozen=True, slots=True)
class SuggestionRow:
    """Suggestion of a retraining, still to be followed."""

    trigger: str
    why: str
    suggested_us: int


def recall(connection: Connection, model: str, trigger: str) -> TriggerMemory:
    query = select(_STATE.c.state, _STATE.c.suggested_us, _STATE.c.suggestion)
    row = connection.execute(query.where(_STATE.c.model == model, _STATE.c.trigger == trigger)).first()
    return TriggerMemory({}) if row is None else TriggerMemory(*row)


def remember(
    connection: Connection,
    model: str,
    evaluation: Evaluation,
    memory: TriggerMemory | None,
    *,
    now_us: int,
    job: str | None = None,
    times: int = 1,
) -> None:
    """Log and count an evaluation, and keep its trigger's memory (unless None), in the caller's
    transaction."""
    counts = {name: times if name == evaluation.outcome else 0 for name in TRIGGER_OUTCOMES}
    kept = _columns(memory or TriggerMemory({}))
    query = upsert(_STATE).values(model=model, trigger=evaluation.trigger, **kept, **counts)
    changed = {name: _STATE.c[name] + count for name, count in counts.items()} | (kept if memory else {})
    connection.execute(query.on_conflict_do_update(index_elements=("model", "trigger"), set_=changed))
    _log(connection, model, evaluation, now_us=now_us, job=job, times=times)


def _columns(memory: TriggerMemory) -> dict[str, object]:
    return {
        "state": dict(memory.state),
        "suggested_us": memory.suggested_us,
        "suggestion": memory.suggestion,
    }


def _log(
    connection: Connection,
    model: str,
    evaluation: Evaluation,
    *,
    now_us: int,
    job: str | None,
    times: int,
) -> None:
    """Log an evaluation, in the newest row where that is equal."""
    own = _LOG.c.model == model, _LOG.c.trigger == evaluation.trigger
    last = connection.execute(
        select(_LOG.c.id, _LOG.c.reason).where(*own).order_by(_LOG.c.id.desc()).limit(1)
    ).first()
    told = {
        "why": evaluation.why,
        "score": evaluation.score,
        "threshold": evaluation.threshold,
        "inputs": dict(evaluation.inputs),
    }
    if last is not None and last.reason == evaluation.reason and evaluation.outcome in ("held", "quiet"):
        change = told | {"until_us": now_us, "times": _LOG.c.times + times}
        connection.execute(update(_LOG).where(_LOG.c.id == last.id).values(change))
        return
    row = told | {"model": model, "trigger": evaluation.trigger, "outcome": evaluation.outcome}
    row |= {"reason": evaluation.reason, "since_us": now_us, "until_us": now_us, "times": times, "job": job}
    connection.execute(insert(_LOG).values(row))
    oldest = select(_LOG.c.id).where(*own).order_by(_LOG.c.id.desc()).offset(MOST_KEPT).limit(1)
    connection.execute(delete(_LOG).where(*own, _LOG.c.id <= oldest.scalar_subquery()))


@dataclass(slots=True)
class _Last:
    evaluation: Evaluation
    at_s: float
    spared: int = 0


class RepeatedEvaluations:
    """Repeated evaluations counted together: logging each would cost more than evaluating.

    ``again_s`` and ``scored_again_s`` are the intervals between logs of the same, and of the same with
    another score.
    """

    def __init__(
        self, *, again_s: float, scored_again_s: float, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._again_s, self._scored_again_s, self._timer = again_s, scored_again_s, timer
        self._last: dict[tuple[str, str], _Last] = {}

    def spares(self, model: str, found: Evaluation) -> bool:
        """Count a repetition, and return True where the log is spared."""
        last = self._last.get((model, found.trigger))
        if last is None or last.evaluation.reason != found.reason or found.outcome in ("fired", "suggested"):
            return False
        pause_s = self._again_s if last.evaluation.why == found.why else self._scored_again_s
        if self._timer() - last.at_s >= pause_s:
            return False
        last.spared += 1
        return True

    def tell(self, connection: Connection, model: str, found: Evaluation, *, now_us: int) -> None:
        """Log the spared ones; ``found`` is logged next."""
        last = self._last.get((model, found.trigger))
        if last is not None and last.spared:
            remember(connection, model, last.evaluation, None, now_us=now_us, times=last.spared)
        self._last[model, found.trigger] = _Last(found, self._timer())


def newest_evaluations(
    connection: Connection, model: str, *, trigger: str | None = None, limit: int = 20
) -> list[EvaluationRow]:
    query = select(_LOG).where(_LOG.c.model == model).order_by(_LOG.c.until_us.desc(), _LOG.c.id.desc())
    if trigger is not None:
        query = query.where(_LOG.c.trigger == trigger)
    return [EvaluationRow(**row._mapping) for row in connection.execute(query.limit(limit))]


def last_evaluations(connection: Connection, model: str) -> dict[str, EvaluationRow]:
    newest = select(func.max(_LOG.c.id)).where(_LOG.c.model == model).group_by(_LOG.c.trigger)
    rows = connection.execute(select(_LOG).where(_LOG.c.id.in_(newest)))
    return {row.trigger: EvaluationRow(**row._mapping) for row in rows}


def list_suggestions(connection: Connection, model: str, triggers: Sequence[str]) -> list[SuggestionRow]:
    """Current suggestions of these triggers, oldest first; a later retraining ends one."""
    followed = select(func.max(_JOB.c.created_us)).where(_JOB.c.model == model, _JOB.c.kind == KIND)
    query = select(_STATE.c.trigger, _STATE.c.suggestion, _STATE.c.suggested_us).where(
        _STATE.c.model == model,
        _STATE.c.trigger.in_(triggers),
        _STATE.c.suggested_us > (connection.scalar(followed) or 0),
    )
    return [SuggestionRow(*row) for row in connection.execute(query.order_by(_STATE.c.suggested_us))]


def forget_others(connection: Connection, model: str, triggers: Sequence[str], *, suggests: bool) -> None:
    """Clear memories of other triggers, and disabled suggestions; counts stay."""
    own = _STATE.c.model == model
    gone = own & _STATE.c.trigger.not_in(triggers)
    connection.execute(update(_STATE).where(gone).values(state={}, suggested_us=None, suggestion=""))
    if not suggests:
        connection.execute(update(_STATE).where(own).values(suggested_us=None, suggestion=""))


def count_outcomes(connection: Connection) -> list[tuple[str, str, Mapping[str, int]]]:
    query = select(_STATE.c.model, _STATE.c.trigger, *(_STATE.c[name] for name in TRIGGER_OUTCOMES))
    rows = connection.execute(query)
    return [(row[0], row[1], dict(zip(TRIGGER_OUTCOMES, row[2:], strict=True))) for row in rows]
