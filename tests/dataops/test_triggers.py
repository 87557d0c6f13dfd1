"""Triggers of retraining decide: hysteresis, one odd record, guards, breaker, clocks."""

import math
from dataclasses import replace

import numpy as np
import pytest

from outrider.dataops.triggers.decision import (
    DAY_US,
    RunGuards,
    RunHistory,
    Signal,
    State,
    decide,
    failed_in_row,
)
from outrider.dataops.triggers.signals import (
    DatasetCorrections,
    Figures,
    FiringAlert,
    FlagRateRule,
    Floats,
    OpenIncident,
    Regression,
    alerts_signal,
    behavior_signal,
    corrected_signal,
    incidents_signal,
    labels_signal,
    rates_signal,
    schedule_signal,
)

MINUTE = 60_000_000
HOUR = 60 * MINUTE
GUARDS = RunGuards(cooldown_s=60, daily_budget=3, failures=3)
DUE = Signal("incidents", True, "incident inc_1 is open")
RULE = FlagRateRule("margin", start=0.10, rearm=0.05, hours=24, min_records=100)


@pytest.mark.parametrize(
    ("history", "outcome", "reason"),
    [
        (RunHistory(), "fired", "fired"),
        (RunHistory(is_open=True), "held", "open_run"),
        (RunHistory(today=3), "held", "budget"),
        (RunHistory(today=2), "fired", "fired"),
        (RunHistory(last_us=9 * MINUTE + 1), "held", "cooldown"),
        (RunHistory(last_us=9 * MINUTE), "fired", "fired"),
        (RunHistory(last_us=9 * MINUTE, failed=2), "fired", "fired"),
        (RunHistory(last_us=9 * MINUTE, failed=3), "held", "breaker"),
        (RunHistory(last_us=10 * MINUTE - DAY_US, failed=9), "fired", "fired"),
    ],
)
def test_a_cause_fires_unless_a_guard_holds_it(history: RunHistory, outcome: str, reason: str) -> None:
    found = decide(DUE, GUARDS, history, now_us=10 * MINUTE)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert found.why.startswith("incident inc_1 is open")


def test_a_breaker_of_zero_never_opens() -> None:
    guards = RunGuards(cooldown_s=0, daily_budget=100)
    assert decide(DUE, guards, RunHistory(last_us=0, failed=50), now_us=1).outcome == "fired"


def test_a_suggestion_is_made_once_while_it_stands_and_needs_no_budget() -> None:
    guards = RunGuards(cooldown_s=60, daily_budget=1, is_automatic=False)
    assert decide(DUE, guards, RunHistory(today=5), now_us=1).outcome == "suggested"
    again = decide(DUE, guards, RunHistory(), suggested_us=1, now_us=2)
    assert (again.outcome, again.reason) == ("held", "suggested")
    assert decide(DUE, guards, RunHistory(is_open=True), now_us=2).reason == "open_run"


def test_an_undecided_run_neither_counts_as_failed_nor_ends_the_row() -> None:
    assert failed_in_row(["undecided", "refused", "undecided", "failed", "done", "failed"]) == 2
    assert failed_in_row(["done", "failed"]) == 0
    assert failed_in_row([]) == 0


def proven(flags: int, records: int) -> Figures:
    """A share of so many records, with as much evidence as there can be."""
    return Figures(flags, records, evidence=1e6)


def followed(shares: list[float], records: int = 2_000) -> int:
    """How often a share fires, looked at in turn."""
    state: State = {}
    fired = 0
    for share in shares:
        found = rates_signal([RULE], {"margin": proven(round(share * records), records)}, state)
        fired += found.is_due
        state = found.acted if found.is_due else found.kept
    return fired


def test_a_share_that_hovers_at_its_threshold_fires_once() -> None:
    assert followed([0.13, 0.09, 0.13, 0.08, 0.14] * 20) == 1


def test_a_share_fires_again_once_it_was_below_where_it_is_armed_again() -> None:
    assert followed([0.13, 0.04, 0.13]) == 2
    assert followed([0.13, 0.05, 0.13]) == 1


def minutes_of(rate: float, *, days: int = 8, each: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Flags, records and entities by minute: of an entity all records are flagged or none."""
    rng = np.random.default_rng(7)
    entities: Floats = np.asarray(rng.poisson(10, days * 1440), dtype=np.float64)
    return np.asarray(each * rng.binomial(entities.astype(int), rate)), each * entities, entities


def fires(minutes: tuple[Floats, Floats, Floats], until: int) -> bool:
    """Does a share fire that is looked at behind a minute?"""
    figures = Figures.of(RULE, *(side[:until] for side in minutes))
    return rates_signal([RULE], {"margin": figures}, {}).is_due


@pytest.mark.parametrize(("rate", "each"), [(0.08, 1), (0.09, 1), (0.099, 1), (0.09, 200), (0.0, 1)])
def test_rates_signal_never_fires_below_its_start_when_looked_at_for_days(rate: float, each: int) -> None:
    minutes = minutes_of(rate, each=each)
    assert not any(fires(minutes, until) for until in range(60, 8 * 1440, 45))


@pytest.mark.parametrize(("rate", "hours"), [(0.12, 24), (0.15, 6.1), (1.0, 6.1)])
def test_rates_signal_fires_within_hours_when_the_rate_is_above_its_start(rate: float, hours: float) -> None:
    minutes = minutes_of(rate, days=1)
    assert not fires(minutes, 5 * 60), "how much it scatters is not known yet"
    assert fires(minutes, round(hours * 60))


def test_rates_signal_counts_entities_when_each_has_many_records() -> None:
    few = minutes_of(0.13, days=1)[2] * 0 + 1.0
    hits: Floats = np.asarray(np.random.default_rng(1).binomial(1, 0.13, len(few)), dtype=np.float64)
    assert hits.mean() > 0.11
    found = Figures.of(RULE, 1_000.0 * hits, 1_000.0 * few, few)
    assert found.records == 1_440_000
    signal = rates_signal([RULE], {"margin": found}, {})
    assert not signal.is_due
    assert "not proven to be above the 10.0%" in signal.why
    assert "in error on at most 0.1% of days" in signal.why


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_rates_signal_at_the_ends_of_a_rate_is_proven_by_one_flag_or_never(start: float) -> None:
    found = Figures.of(replace(RULE, start=start), *minutes_of(1.0, days=1))
    assert found.evidence == (math.inf if start == 0.0 else -math.inf)


def test_one_odd_record_never_fires_whatever_the_threshold() -> None:
    rule = FlagRateRule("margin", start=1e-6, rearm=0.0, hours=1, min_records=100)
    few = rates_signal([rule], {"margin": proven(1, 1)}, {})
    assert (few.is_due, few.reason) == (False, "too_few_records")
    assert followed([0.5], records=99) == 0
    assert "100 records are needed" in few.why


def test_without_records_a_share_that_fired_stays_as_it_is() -> None:
    first = rates_signal([RULE], {"margin": proven(400, 2_000)}, {})
    still = rates_signal([RULE], {"margin": Figures(0, 0)}, first.acted)
    assert not still.is_due
    assert still.kept == first.acted
    back = rates_signal([RULE], {"margin": proven(400, 2_000)}, still.kept)
    assert (back.is_due, back.reason) == (False, "acted")


def test_of_several_shares_each_fires_for_itself() -> None:
    other = FlagRateRule("dark", 0.2, 0.1, 24, 100)
    high = {"margin": proven(400, 2_000), "dark": proven(0, 2_000)}
    first = rates_signal([RULE, other], high, {})
    assert (first.is_due, first.inputs["assertion"]) == (True, "margin")
    both = rates_signal([RULE, other], high | {"dark": proven(900, 2_000)}, first.acted)
    assert (both.is_due, both.inputs["assertion"]) == (True, "dark")
    assert both.acted == {"acted": ["dark", "margin"]}


def test_an_incident_fires_once_and_the_next_one_again() -> None:
    one, two = OpenIncident("inc_1", "critical", "margin", 1), OpenIncident("inc_2", "warning", "dark", 2)
    first = incidents_signal([one], "warning", {})
    assert (first.is_due, first.score) == (True, 1.0)
    assert first.why == "incident inc_1 of margin (critical) is open"
    again = incidents_signal([one], "warning", first.acted)
    assert (again.is_due, again.reason, again.stands) == (False, "acted", True)
    assert incidents_signal([one, two], "warning", again.kept).why.startswith("incident inc_2")
    over = incidents_signal([], "warning", again.kept)
    assert (over.is_due, over.kept, over.stands) == (False, {"acted": []}, False)


def test_a_flood_of_incidents_is_one_short_sentence() -> None:
    flood = [OpenIncident(f"inc_{n}", "critical", "margin", n) for n in range(500)]
    found = incidents_signal(flood, "critical", {})
    assert found.why.endswith("and 497 more")
    assert len(found.why) < 250


def test_a_regression_fires_once_until_the_test_passed_again() -> None:
    broken = Regression("1", "test_toy", "test_x", passed_us=HOUR, rate=0.4)
    first = behavior_signal([broken], {})
    assert first.is_due
    assert first.why == "test_x (test_toy) fails in 40.0% of its cases and passed on 1970-01-01"
    assert not behavior_signal([broken], first.acted).is_due
    again = Regression("1", "test_toy", "test_x", passed_us=2 * HOUR, rate=0.4)
    assert behavior_signal([again], first.acted).is_due


def test_an_alert_fires_once() -> None:
    first = alerts_signal([FiringAlert("ab@1", "Drift")], {})
    assert (first.is_due, first.why) == (True, "alert Drift fires")
    assert not alerts_signal([FiringAlert("ab@1", "Drift")], first.acted).is_due
    assert alerts_signal([FiringAlert("ab@2", "Drift")], first.acted).is_due


def test_corrected_rows_fire_once_until_as_many_more_are_corrected() -> None:
    found = corrected_signal(DatasetCorrections("m-flagged@3", 12), 10, {})
    assert (found.is_due, found.score) == (True, 12.0)
    assert not corrected_signal(DatasetCorrections("m-flagged@3", 21), 10, found.acted).is_due
    assert corrected_signal(DatasetCorrections("m-flagged@3", 22), 10, found.acted).is_due
    learned = corrected_signal(DatasetCorrections("m-flagged@4", 10), 10, found.acted)
    assert learned.is_due, "another champion, which learned from a later version"


def test_corrections_of_a_champion_of_unknown_origin_do_not_fire() -> None:
    found = corrected_signal(DatasetCorrections("", 0), 1, {})
    assert (found.is_due, found.reason) == (False, "unknown")


def test_a_schedule_begins_with_its_first_look() -> None:
    first = schedule_signal(24, {}, now_us=100 * HOUR)
    assert not first.is_due
    assert not schedule_signal(24, first.kept, now_us=123 * HOUR).is_due
    due = schedule_signal(24, first.kept, now_us=124 * HOUR)
    assert due.is_due
    assert not schedule_signal(24, due.acted, now_us=125 * HOUR).is_due


def test_a_schedule_that_was_held_stays_due() -> None:
    held = schedule_signal(24, {"last_us": 0}, now_us=30 * HOUR)
    assert schedule_signal(24, held.kept, now_us=31 * HOUR).is_due


def test_a_clock_a_day_ahead_makes_a_schedule_due_once() -> None:
    state: State = {"last_us": 0}
    fired = 0
    for now in [h * HOUR for h in (1, 25, 26, 27, 3, 4, 5, 26)]:
        found = schedule_signal(24, state, now_us=now)
        fired += found.is_due
        state = found.acted if found.is_due else found.kept
    assert fired == 1


def test_a_schedule_after_a_long_stop_fires_once() -> None:
    found = schedule_signal(1, {"last_us": 0}, now_us=1_000 * HOUR)
    assert found.is_due
    assert not schedule_signal(1, found.acted, now_us=1_000 * HOUR + 1).is_due


def test_enough_labels_are_due_each_time_for_jobs_and_once_for_a_suggestion() -> None:
    found = labels_signal(5, 3, {}, is_once=False)
    assert (found.is_due, found.score, found.inputs) == (True, 5.0, {"labelled_flags": 5})
    assert labels_signal(5, 3, found.acted, is_once=False).is_due
    assert not labels_signal(5, 3, found.acted, is_once=True).is_due
    less = labels_signal(2, 3, found.acted, is_once=True)
    assert (less.is_due, less.stands, less.kept) == (False, False, {"acted": []})
