"""Triggers of retraining: signals, guards and the decision.

Pure. A trigger tells what it sees as a :class:`Signal`; :func:`decide` holds that against the guards that all
triggers share, and says why a run starts, is only suggested, waits, or has no cause.
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
"""What a trigger remembers between two looks, as JSON."""
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
    """Runs refused or failed in a row, from which on one a day is tried; 0 is any number."""
    is_automatic: bool = True
    """False where a run is only suggested to a person."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Retrainings of a model so far."""

    is_open: bool = False
    """Whether one is queued or running."""
    last_us: int | None = None
    """When the newest automatic one was made."""
    today: int = 0
    """Automatic ones of the last 24 hours."""
    failed: int = 0
    """Automatic ones refused or failed in a row, up to now."""
    newest_us: int | None = None
    """When the newest one of any kind was made."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal of one trigger: its cause, score and memory.

    Attributes
    ----------
    is_due
        Whether there is a cause that nothing has been done about.
    stands
        Whether its cause lasts, so that a suggestion is not out of date.
    why
        Sentence; names no record, entity or slice.
    acted, kept
        What it remembers once something is done about it, and otherwise.
    reason
        Word for a signal that is not due.
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
    """Decision on a signal, for the log."""

    trigger: TriggerName
    outcome: TriggerOutcome
    reason: str
    """One word: equal ones in a row are one row of the log."""
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
    """Guard that holds a run, as word and sentence; else None."""
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
