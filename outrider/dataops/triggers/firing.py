"""Evaluations of triggers: decision, log, and the run or suggestion that follows.

The caller's write transaction alone may add an automatic run, so there is never a second one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from outrider.dataops.datasets.collect import count_new
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.improvement.jobs import KIND, add
from outrider.dataops.outbox import WebhookTarget, enqueue

from .decision import Evaluation, RunGuards, RunHistory, Signal, State, TriggerName, decide, held
from .evaluation_log import RepeatedEvaluations, TriggerMemory, recall, remember
from .inputs import read_history
from .signals import labels_signal


def settle(
    connection: Connection,
    model: str,
    signal: Signal,
    guards: RunGuards,
    *,
    now_us: int,
    command: str = "",
    targets: Sequence[WebhookTarget] = (),
) -> tuple[Evaluation, str | None]:
    """Decide on a signal, log it, and start or suggest a run (followed by ``command``); returns the id
    of a started job too."""
    history = read_history(connection, model, now_us=now_us)
    memory = _current(recall(connection, model, signal.trigger), signal, history)
    found = decide(signal, guards, history, suggested_us=memory.suggested_us, now_us=now_us)
    job = None
    if found.outcome == "fired":
        job = add(connection, model=model, kind=KIND, params=_params(found), now_us=now_us)
    elif found.outcome == "suggested":
        memory = TriggerMemory(signal.acted, now_us, found.why)
        enqueue(connection, "retrain.suggested", _told(model, found, command), targets=targets, now_us=now_us)
    state = signal.acted if found.outcome in ("fired", "suggested") else signal.kept
    remember(connection, model, found, replace(memory, state=state), now_us=now_us, job=job)
    return found, job


def preview(
    connection: Connection,
    model: str,
    trigger: TriggerName,
    see: Callable[[State], Signal],
    guards: RunGuards,
    *,
    now_us: int,
) -> tuple[Signal, Evaluation, bool]:
    """Evaluation of a trigger without any change; also whether its memory would change."""
    memory = recall(connection, model, trigger)
    signal = see(memory.state)
    history = read_history(connection, model, now_us=now_us)
    current = _current(memory, signal, history)
    found = decide(signal, guards, history, suggested_us=current.suggested_us, now_us=now_us)
    return signal, found, signal.kept != memory.state or current != memory


def settle_labels(
    connection: Connection,
    scope: LabelScope,
    guards: RunGuards,
    *,
    threshold: int,
    now_us: int,
    repeated: RepeatedEvaluations,
) -> tuple[Evaluation, str | None]:
    """Evaluate the trigger of labels in the transaction that commits them.

    Labels are counted only where all guards allow a run, because counting is expensive.
    """
    model, history = scope.model, read_history(connection, scope.model, now_us=now_us)
    if (stop := held(guards, history, now_us=now_us)) is not None:
        reason, why = stop
        told = f"labels are not counted; held: {why}"
        found = Evaluation("labelled_flags", "held", reason, told, None, float(threshold))
        if not repeated.spares(model, found):
            repeated.tell(connection, model, found, now_us=now_us)
            remember(connection, model, found, TriggerMemory({}), now_us=now_us)
        return found, None
    signal = labels_signal(count_new(connection, scope), threshold, {}, is_once=False)
    found = decide(signal, guards, history, now_us=now_us)
    if repeated.spares(model, found):
        return found, None
    repeated.tell(connection, model, found, now_us=now_us)
    return settle(connection, model, signal, guards, now_us=now_us)


def note_manual(connection: Connection, model: str, *, by: str, job: str, now_us: int) -> None:
    asked = Evaluation("manual", "fired", "fired", f"asked for by {by}" if by else "asked for")
    remember(connection, model, asked, TriggerMemory({}), now_us=now_us, job=job)


def _current(memory: TriggerMemory, signal: Signal, history: RunHistory) -> TriggerMemory:
    at = memory.suggested_us
    is_followed = at is not None and history.newest_us is not None and history.newest_us >= at
    if at is not None and (is_followed or not signal.stands):
        return replace(memory, suggested_us=None, suggestion="")
    return memory


def _params(found: Evaluation) -> dict[str, object]:
    told = {"trigger": found.trigger, "why": found.why, "score": found.score, "threshold": found.threshold}
    return {**found.inputs, **{name: value for name, value in told.items() if value is not None}}


def _told(model: str, found: Evaluation, command: str) -> dict[str, object]:
    return {
        "model": model,
        "trigger": found.trigger,
        "why": found.why,
        "score": found.score,
        "threshold": found.threshold,
        "command": command,
    }
