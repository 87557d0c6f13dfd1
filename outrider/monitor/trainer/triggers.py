"""Triggers of retraining, evaluated.

That of labels starts runs where the worker commits them; here it only suggests. This reads; only what changes
the log, a memory or the queue takes the write lock, and an evaluation that says the same again is told once a
minute.
"""

import logging
import time
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from outrider.dataops.datasets.collect import count_new, dataset_of
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.state.database import now_us, write
from outrider.dataops.triggers import inputs
from outrider.dataops.triggers.alerts import firing_alerts
from outrider.dataops.triggers.decision import Signal, State, TriggerName
from outrider.dataops.triggers.evaluation_log import RepeatedEvaluations, forget_others, recall
from outrider.dataops.triggers.firing import preview, settle
from outrider.dataops.triggers.signals import (
    FlagRateRule,
    alerts_signal,
    behavior_signal,
    corrected_signal,
    incidents_signal,
    labels_signal,
    rates_signal,
    schedule_signal,
)
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.trigger_sections import FlagRateSettings

from .context import JobContext

log = logging.getLogger(__name__)
TOLD_AGAIN_S = 60.0
"""An unchanged evaluation is logged this often."""
SCORED_AGAIN_S = 10.0
"""One with another score."""
REST_BY_COST = 10.0
"""Pause of a trigger, as a multiple of the last look's cost."""
See = Callable[[State], Signal]


class Triggers:
    def __init__(
        self,
        context: JobContext,
        *,
        now: Callable[[], int] = now_us,
        timer: Callable[[], float] = time.monotonic,
        rest_by_cost: float = REST_BY_COST,
    ) -> None:
        self._context = context
        self._now = now
        self._timer = timer
        self._rest_by_cost = rest_by_cost
        self._repeated = RepeatedEvaluations(again_s=TOLD_AGAIN_S, scored_again_s=SCORED_AGAIN_S, timer=timer)
        self._rests: dict[tuple[str, TriggerName], float] = {}
        self._has_begun = False

    def look(self) -> None:
        if not self._has_begun:
            self._forget()
            self._has_begun = True
        for model, own in self._context.settings.models.items():
            for name, see in _seen_by(model, own, self._now).items() if own.retrain.enabled else ():
                try:
                    self._evaluate(model, own, name, see)
                except OperationalError:
                    raise
                except Exception:  # one trigger must not hold up the others
                    log.exception("%s: trigger %s", model, name)

    def _evaluate(
        self, model: str, own: ModelSettings, name: TriggerName, see: Callable[[Connection], See]
    ) -> None:
        key, began = (model, name), self._timer()
        if began < self._rests.get(key, 0.0):
            return
        guards, now = own.retrain.guards, self._now()
        with self._context.engine.connect() as connection:
            seen = see(connection)
            signal, found, is_changed = preview(connection, model, name, seen, guards, now_us=now)
        if is_changed or not self._repeated.spares(model, found):
            is_loud = found.outcome in ("fired", "suggested")
            with write(self._context.engine) as connection:
                signal = see(connection)(recall(connection, model, name).state) if is_loud else signal
                self._repeated.tell(connection, model, found, now_us=now)
                found, job = settle(
                    connection,
                    model,
                    signal,
                    guards,
                    now_us=now,
                    command=own.training_command(model),
                    targets=self._context.targets,
                )
            if found.outcome in ("fired", "suggested"):
                log.info("%s: %s %s: %s", model, name, job or "suggests a retraining", found.why)
        self._rests[key] = began + (1 + self._rest_by_cost) * (self._timer() - began)

    def _forget(self) -> None:
        with write(self._context.engine) as connection:
            for model, own in self._context.settings.models.items():
                suggests = own.retrain.enabled and not own.retrain.guards.is_automatic
                forget_others(connection, model, own.retrain.active_triggers, suggests=suggests)


def _seen_by(
    model: str, own: ModelSettings, now: Callable[[], int]
) -> dict[TriggerName, Callable[[Connection], See]]:
    """Readers of the triggers that are set: each takes a connection, then the trigger's memory."""
    rules = own.retrain.triggers
    rates = [_rule(rate) for rate in rules.flag_rates]

    scope = LabelScope(model, dataset_of(model), own.retrain.rows, rules=own.rules_digest)

    def labelled_flags(connection: Connection) -> See:
        count = count_new(connection, scope)
        return lambda state: labels_signal(count, own.retrain.labelled_flags, state, is_once=True)

    def flag_rates(connection: Connection) -> See:
        figures = inputs.read_flag_rates(connection, model, rates, now_us=now())
        return lambda state: rates_signal(rates, figures, state)

    def behavior(connection: Connection) -> See:
        regressions = inputs.read_regressions(connection, model)
        return lambda state: behavior_signal(regressions, state)

    def incidents(connection: Connection) -> See:
        open_ = inputs.read_incidents(connection, model, rules.incidents)
        return lambda state: incidents_signal(open_, rules.incidents, state)

    def corrected(connection: Connection) -> See:
        corrections = inputs.read_corrections(connection, scope)
        return lambda state: corrected_signal(corrections, rules.corrected or 1, state)

    def schedule(_: Connection) -> See:
        hours = rules.every_hours or 1.0
        return lambda state: schedule_signal(hours, state, now_us=now())

    def alerts(connection: Connection) -> See:
        firing = firing_alerts(connection, model, rules.alerts, now_us=now())
        return lambda state: alerts_signal(firing, state)

    every: dict[TriggerName, Callable[[Connection], See]] = {
        "labelled_flags": labelled_flags, "flag_rates": flag_rates, "behavior": behavior,
        "incidents": incidents, "corrected": corrected, "schedule": schedule, "alerts": alerts,
    }  # fmt: skip
    names = rules.active if own.retrain.guards.is_automatic else own.retrain.active_triggers
    return {name: see for name, see in every.items() if name in names}


def _rule(rate: FlagRateSettings) -> FlagRateRule:
    return FlagRateRule(rate.assertion, rate.start, rate.rearms_below, rate.hours, rate.min_records)
