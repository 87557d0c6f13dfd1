"""Triggers of retraining: signals, guards and the decision.

Pure: a trigger gives a :class:`Signal`, and :func:`decide` checks the guards and says why a run starts, is
suggested, waits, or has no cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

TriggerName: TypeAlias = Literal[
    "labelled_flags",
    "flag_rates",
    "behavior",
    "incidents",
    "corrected",
    "schedule",
    "alerts",
    "manual",
]
TriggerOutcome: TypeAlias = Literal["fired", "suggested", "held", "quiet"]
State: TypeAlias = Mapping[str, Any]
TRIGGERS: tuple[TriggerName, ...] = get_args(TriggerName)
TRIGGER_OUTCOMES: tuple[TriggerOutcome, ...] = get_args(TriggerOutcome)
DAY_US = 86_400_000_000
FAILED = ("refused", "failed")


@dataclass(frozen=True, slots=True)
class RunGuards:
    """Guards of automatic runs; see ``[models.*.retrain]`` in the configuration."""

    cooldown_s: float
    daily_budget: int
    failures: int = 0
    """Refused or failed runs in a row after which one a day is tried; 0 disables this."""
    is_automatic: bool = True


@dataclass(frozen=True, slots=True)
class RunHistory:
    is_open: bool = False
    last_us: int | None = None
    today: int = 0
    failed: int = 0
    newest_us: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal of one trigger.

    ``stands`` keeps a suggestion current; ``why`` names no record, entity or slice; ``acted`` and
    ``kept`` are its memory with and without an action.
    """

    trigger: TriggerName
    is_due: bool
    why: str
    score: float | None = None
    threshold: float | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    acted: State = field(default_factory=dict)
    kept: State = field(default_factory=dict)
    stands: bool = True
    reason: str = "below"


@dataclass(frozen=True, slots=True)
class Evaluation:
    trigger: TriggerName
    outcome: TriggerOutcome
    reason: str
    """One word; equal ones in a row share a row of the log."""
    why: str
    score: float | None = None
    threshold: float | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


def decide(
    signal: Signal, guards: RunGuards, history: RunHistory, *, suggested_us: int | None = None, now_us: int
) -> Evaluation:
    """Decision on a trigger's signal.

    Parameters
    ----------
    suggested_us
        When the suggestion that stands was made; None for none.

    Examples
    --------
    >>> seen = Signal("incidents", True, "incident inc_1 is open")
    >>> decide(seen, RunGuards(3600.0, 4), RunHistory(), now_us=0).outcome
    'fired'
    >>> decide(seen, RunGuards(3600.0, 4), RunHistory(is_open=True), now_us=0).why
    'incident inc_1 is open; held: a retraining is queued or running'
    """
    told = signal.why, signal.score, signal.threshold, signal.inputs
    if not signal.is_due:
        return Evaluation(signal.trigger, "quiet", signal.reason, *told)
    stop = held(guards, history, suggested_us=suggested_us, now_us=now_us)
    if stop is not None:
        reason, why = stop
        return Evaluation(signal.trigger, "held", reason, f"{signal.why}; held: {why}", *told[1:])
    outcome: TriggerOutcome = "fired" if guards.is_automatic else "suggested"
    return Evaluation(signal.trigger, outcome, outcome, *told)


def held(
    guards: RunGuards, history: RunHistory, *, suggested_us: int | None = None, now_us: int
) -> tuple[str, str] | None:
    if history.is_open:
        return "open_run", "a retraining is queued or running"
    if not guards.is_automatic:
        return None if suggested_us is None else ("suggested", "it is suggested since " + _time(suggested_us))
    if history.today >= guards.daily_budget:
        return "budget", f"{history.today} of {guards.daily_budget} automatic runs in 24 hours"
    last_us = history.last_us
    if last_us is None:
        return None
    ends_us = last_us + int(guards.cooldown_s * 1e6)
    if now_us < ends_us:
        return "cooldown", f"cooldown until {_time(ends_us)}"
    ends_us = last_us + DAY_US
    if 0 < guards.failures <= history.failed and now_us < ends_us:
        return "breaker", (
            f"the last {history.failed} automatic runs were refused or failed; one more at "
            f"{_time(ends_us)}, or after a promotion or a retraining that a person asks for"
        )
    return None


def failed_in_row(outcomes: Sequence[str]) -> int:
    """Number of refused or failed runs up to now.

    Undecided and cancelled ones neither count nor end the row.

    Parameters
    ----------
    outcomes
        Statuses of ended jobs, newest first.

    Examples
    --------
    >>> failed_in_row(["refused", "undecided", "cancelled", "failed", "done", "refused"])
    2
    """
    count = 0
    for status in outcomes:
        if status in FAILED:
            count += 1
        elif status not in ("undecided", "cancelled"):
            break
    return count


def _time(at_us: int) -> str:
    from outrider.assertions.times import utc_text  # settings are read without numpy

    return utc_text(at_us)[:16] + "Z"
