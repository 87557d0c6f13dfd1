"""Signals of the triggers of retraining, each from its inputs.

Pure. What was acted on is remembered until its cause ends: an incident, regression or alert fires once, a
share again only after it fell below its rearm level.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import excess
from outrider.assertions.times import utc_text

from .decision import Signal, State, TriggerName

Floats = NDArray[np.float64]
MOST_NAMED = 3
ERROR_PER_DAY = 0.001
"""Daily chance of a false alarm of a share."""
PROVEN = math.log(1.0 / ERROR_PER_DAY + 1.0)
"""Logarithm of the evidence that fires; see :func:`outrider.assertions.detection.excess`."""
_MINUTES_PER_DAY = 1440
_HISTORY_MINUTES = 7 * _MINUTES_PER_DAY


@dataclass(frozen=True, slots=True)
class FlagRateRule:
    assertion: str
    start: float
    rearm: float
    hours: float
    min_records: int

    @property
    def minutes(self) -> int:
        return max(1, round(60 * self.hours))

    @property
    def history(self) -> int:
        return max(self.minutes, _HISTORY_MINUTES)


@dataclass(frozen=True, slots=True)
class Figures:
    flags: int
    records: int
    evidence: float = -math.inf
    """Log evidence that the share is above the rule's start; -inf while the scatter is unknown."""

    @classmethod
    def of(cls, rule: FlagRateRule, flags: Floats, records: Floats, entities: Floats) -> Self:
        """Figures from counts by minute, shape (minutes,) each; evidence counts entities, because
        their records are alike."""
        own = slice(-rule.minutes, None)
        flagged = np.minimum(flags, records)
        hits = entities * flagged / np.maximum(records, 1.0)
        evidence = excess(hits, entities, limit=rule.start, window=rule.minutes, share=1 / _MINUTES_PER_DAY)
        return cls(int(flagged[own].sum()), int(records[own].sum()), evidence)

    @property
    def share(self) -> float:
        return self.flags / self.records if self.records else 0.0


def _is_proven(rule: FlagRateRule, found: Figures) -> bool:
    return found.share > rule.start and found.evidence >= PROVEN


@dataclass(frozen=True, slots=True)
class Regression:
    version: str
    suite: str
    test: str
    passed_us: int
    rate: float
    """Share of its cases that fail now."""


@dataclass(frozen=True, slots=True)
class OpenIncident:
    id: str
    level: str
    assertion: str
    opened_us: int


@dataclass(frozen=True, slots=True)
class FiringAlert:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class DatasetCorrections:
    base: str
    """Empty where unknown."""
    rows: int = 0


def labels_signal(count: int, threshold: int, state: State, *, is_once: bool) -> Signal:
    """Signal of labels that the dataset does not hold; ``is_once`` is due once until the count falls,
    because a suggestion makes no dataset."""
    stands = count >= threshold
    found = _of_causes(
        "labelled_flags", {"labels": ""} if stands else {}, state if is_once else {}, lambda _: ""
    )
    why = f"{count:,} labels are not in the dataset; {threshold:,} start a run"
    inputs = {"labelled_flags": count}
    return replace(found, why=why, score=float(count), threshold=float(threshold), inputs=inputs)


def rates_signal(rules: Sequence[FlagRateRule], figures: Mapping[str, Figures], state: State) -> Signal:
    """Signal of shares of flagged records, with hysteresis: starts once proven above ``start``, ends
    below ``rearm``."""
    acted, standing, told = set(state.get("acted", ())), {}, {}
    for rule in rules:
        found = figures.get(rule.assertion, Figures(0, 0))
        is_known, was = found.records >= rule.min_records, rule.assertion in acted
        if (found.share >= rule.rearm or not is_known) if was else (is_known and _is_proven(rule, found)):
            standing[rule.assertion] = _rate_sentence(rule, found)
        told[rule.assertion] = rule, found
    signal = _of_causes("flag_rates", standing, state, lambda name: standing[name])
    due = next((name for name in standing if name not in acted), None)
    name = due or max(told, key=lambda name: told[name][1].share / told[name][0].start)
    rule, found = told[name]
    why, reason = signal.why, signal.reason
    if due is None:
        why, reason = _rate_sentence(rule, found), "below"
        if name in standing:
            why, reason = f"{why}; acted on already, again once it was below {rule.rearm:.1%}", "acted"
        elif found.records < rule.min_records:
            why, reason = f"{why}; {rule.min_records:,} records are needed", "too_few_records"
        elif found.evidence == -math.inf:
            why, reason = f"{why}; how much it scatters is known after {rule.hours / 4:g} hours", "too_short"
    inputs = {"assertion": name, "flags": found.flags, "records": found.records}
    inputs["evidence"] = round(found.evidence, 3) if math.isfinite(found.evidence) else None
    return replace(signal, why=why, reason=reason, score=found.share, threshold=rule.start, inputs=inputs)


def behavior_signal(regressions: Sequence[Regression], state: State) -> Signal:
    standing = {f"{r.version}/{r.suite}/{r.test}@{r.passed_us}": r for r in regressions}

    def tell(cause: str) -> str:
        found = standing[cause]
        when = utc_text(found.passed_us)[:10]
        return f"{found.test} ({found.suite}) fails in {found.rate:.1%} of its cases and passed on {when}"

    found = _of_causes("behavior", standing, state, tell)
    return _counted(found, "no test fails that the champion passed before", len(standing))


def incidents_signal(incidents: Sequence[OpenIncident], level: str, state: State) -> Signal:
    standing = {one.id: one for one in incidents}

    def tell(cause: str) -> str:
        found = standing[cause]
        return f"incident {cause} of {found.assertion} ({found.level}) is open"

    found = _of_causes("incidents", standing, state, tell)
    return _counted(found, f"no incident of level {level} or above is open", len(standing))


def alerts_signal(alerts: Sequence[FiringAlert], state: State) -> Signal:
    standing = {one.id: one for one in alerts}
    found = _of_causes("alerts", standing, state, lambda cause: f"alert {standing[cause].name} fires")
    return _counted(found, "no alert fires that triggers.alerts names", len(standing))


def corrected_signal(found: DatasetCorrections, threshold: int, state: State) -> Signal:
    """Signal of rows corrected since the champion learned them; acted-on rows count again only with
    another champion."""
    if not found.base:
        why = "nobody knows which dataset version the champion learned from"
        return Signal("corrected", False, why, threshold=float(threshold), stands=False, reason="unknown")
    before = int(state.get("rows", 0)) if state.get("base") == found.base else 0
    rows = max(found.rows - before, 0)
    since = f"since {found.base}" + (f" and the run that {before:,} of them started" if before else "")
    return Signal(
        "corrected",
        rows >= threshold,
        f"{rows:,} rows were corrected or withdrawn {since}; {threshold:,} start a run",
        score=float(rows),
        threshold=float(threshold),
        inputs={"base": found.base, "rows": found.rows, "acted_on": before},
        acted={"base": found.base, "rows": found.rows},
        kept={"base": found.base, "rows": before},
        stands=before > 0 or rows >= threshold,
    )


def schedule_signal(every_hours: float, state: State, *, now_us: int) -> Signal:
    """Signal of the time since the schedule's last run, from its first look on.

    A clock set ahead makes it due once, one set back restarts it.
    """
    last_us = min(int(state.get("last_us", now_us)), now_us)
    hours = (now_us - last_us) / 3.6e9
    return Signal(
        "schedule",
        hours >= every_hours,
        f"{hours:.1f} hours since {utc_text(last_us)[:16]}Z; every {every_hours:g} hours",
        score=round(hours, 3),
        threshold=float(every_hours),
        acted={"last_us": now_us},
        kept={"last_us": last_us},
    )


def _of_causes(
    trigger: TriggerName, standing: Mapping[str, object], state: State, tell: Callable[[str], str]
) -> Signal:
    """Signal of causes that are each acted on once."""
    acted = set(state.get("acted", ()))
    new = [cause for cause in standing if cause not in acted]
    more = f", and {len(new) - MOST_NAMED} more" if len(new) > MOST_NAMED else ""
    return Signal(
        trigger,
        bool(new),
        "; ".join(tell(cause) for cause in new[:MOST_NAMED]) + more,
        acted={"acted": sorted(standing)},
        kept={"acted": sorted(acted & standing.keys())},
        stands=bool(standing),
        reason="acted" if standing else "below",
    )


def _counted(found: Signal, none: str, standing: int) -> Signal:
    """Signal with the number of its causes, and a sentence where none is new."""
    why = found.why or (f"{standing} known, acted on already" if standing else none)
    due = standing - len(found.kept["acted"])
    return replace(found, why=why, score=float(due), threshold=1.0, inputs={"standing": standing})


def _rate_sentence(rule: FlagRateRule, found: Figures) -> str:
    is_proven = "proven to be above" if _is_proven(rule, found) else "not proven to be above"
    return (
        f"{rule.assertion} flags {found.share:.1%} of {found.records:,} records of {rule.hours:g} hours, "
        f"{is_proven} the {rule.start:.1%} that start a run (in error on at most {ERROR_PER_DAY:.1%} of days)"
    )
