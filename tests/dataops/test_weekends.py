"""Weekends held against those before, from stored counts: what is no rise, and what still is one."""

import numpy as np
import pytest
from sqlalchemy import Engine, insert, text

from outrider.assertions.times import utc_text
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow, guarantee_words
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.ledger.minutes import DAY_US, MINUTE_US
from outrider.dataops.state.database import write
from outrider.dataops.state.tables import AssertionRow, table_of

START_US = 20_000 * DAY_US
DAY, SEEN = 1440, 60


def incidents_at(engine: Engine, share: np.ndarray, *, rolled_up: int = 0) -> list[IncidentRow]:
    """Incidents that a look behind the last minute opens; the first minutes stand by the hour."""
    seen = np.full(len(share), SEEN)
    hits = np.random.default_rng(0).binomial(seen, share)
    minute = START_US + np.arange(len(share)) * MINUTE_US
    hours = np.where(np.arange(len(share)) < rolled_up, minute - minute % (60 * MINUTE_US), minute)
    at, of_row = np.unique(hours, return_inverse=True)
    rows = [
        {"at": int(one), "seen": int(whole), "hits": int(own)}
        for one, whole, own in zip(at, np.bincount(of_row, seen), np.bincount(of_row, hits), strict=True)
    ]
    with write(engine) as connection:
        connection.execute(text("INSERT INTO record_count VALUES ('m', '', :at, '1', :seen, :seen)"), rows)
        connection.execute(
            text(
                "INSERT INTO flag_count (model, slot, assertion, revision, slice, minute_us, version, flags,"
                " kept, entities) VALUES ('m', 'champion', 'x', 'r', '', :at, '1', :hits, :hits, :hits)"
            ),
            rows,
        )
        judge = {
            "model": "m", "name": "x", "revision": "r", "kind": "assertion", "level": "warning",
            "description": "", "owner": "", "active": True, "first_seen_us": 0,
        }  # fmt: skip
        connection.execute(insert(table_of(AssertionRow)), [judge])
        now_us = int(minute[-1]) + MINUTE_US
        IncidentBook("m", AlarmRule()).settle(connection, now_us=now_us)
        found = stored_incidents.list_incidents(connection, now_us=now_us)
    return [one for one in found if one.kind == "flags"]


def weeks(days: float, *, weekend: tuple[int, int] = (5, 6), moved: int = 0) -> np.ndarray:
    """Share by minute: a tenth on weekends, a twentieth else."""
    day = (np.arange(int(days * DAY)) + moved) // DAY % 7
    return np.where(np.isin(day, weekend), 0.2, 0.05)


@pytest.mark.parametrize("weekend", [(5, 6), (4, 5)])
@pytest.mark.parametrize("rolled_up", [0, 5 * DAY])
def test_a_weekend_like_the_two_before_is_no_rise(
    engine: Engine, weekend: tuple[int, int], rolled_up: int
) -> None:
    share = weeks(14 + weekend[0] + 0.3, weekend=weekend)
    assert incidents_at(engine, share, rolled_up=rolled_up) == []


def test_a_weekend_that_begins_an_hour_earlier_is_no_rise(engine: Engine) -> None:
    share = np.concatenate([weeks(14), weeks(5.3, moved=60)])
    assert incidents_at(engine, share) == []


def test_the_first_weekend_is_told_and_says_that_none_is_known(engine: Engine) -> None:
    [found] = incidents_at(engine, weeks(5.3))
    assert found.details["guarantee"]["weeks"] == 0
    assert "no weekend is known yet" in guarantee_words(found)


def test_a_weekend_that_only_one_week_had_is_told(engine: Engine) -> None:
    share = np.concatenate([np.full(7 * DAY, 0.05), weeks(7 + 5.3)])
    assert len(incidents_at(engine, share)) == 1


def test_a_fault_that_begins_on_a_weekend_is_a_rise(engine: Engine) -> None:
    share = weeks(14 + 5.3)
    share[-60:] = 0.5
    [found] = incidents_at(engine, share)
    assert found.details["guarantee"]["weeks"] == 2
    assert found.details["onset"]["likeliest"] == utc_text(START_US + (len(share) - 60) * MINUTE_US)
    assert "weekend" not in guarantee_words(found)


def test_a_fault_on_a_weekday_is_a_rise_though_weekends_have_such_shares(engine: Engine) -> None:
    share = weeks(14 + 3.3)
    share[-60:] = 0.2
    assert len(incidents_at(engine, share)) == 1


def test_an_assertion_that_did_not_judge_in_the_weeks_before_knows_no_weekend(engine: Engine) -> None:
    share = weeks(14 + 5.3)
    share[: 12 * DAY] = 0.0
    assert len(incidents_at(engine, share)) == 1
