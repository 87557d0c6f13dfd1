"""What is no rise: new and resting assertions, slices whose volumes move; and what ends an incident."""

from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import Engine

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule, rate_alarms
from outrider.dataops.flags import quality
from outrider.dataops.flags.registered_assertions import register_offered
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.state.database import write

from .test_incidents import Traffic


@pytest.fixture
def traffic(engine: Engine) -> Traffic:
    return Traffic(engine)


def offer(traffic: Traffic, *names: str, level: str = "warning") -> None:
    """Register assertions as the host offers them, behind the blocks so far."""
    offered = [
        SimpleNamespace(
            name=name, revision="rev", kind="assertion", level=level, description="", owner="", window=None,
            definition="",
        )
        for name in names
    ]  # fmt: skip
    with write(traffic.engine) as connection:
        register_offered(connection, "m", offered, first_seq=traffic.seq, now_us=traffic.now_us)


def test_the_share_of_a_new_assertion_is_its_usual_one_from_its_first_block_on(traffic: Traffic) -> None:
    for _ in range(60):
        traffic.minute(2)
    offer(traffic, "x", "y")
    for _ in range(30):
        traffic.minute(20, assertion="y")
    assert traffic.incidents() == []
    for _ in range(4):
        traffic.minute(60, assertion="y")
    (found,) = traffic.incidents()
    assert (found.assertion, found.details["before"]["share"]) == ("y", 0.2)


def test_an_assertion_that_comes_back_begins_anew(traffic: Traffic) -> None:
    offer(traffic, "x", "y")
    for _ in range(10):
        traffic.minute(20, assertion="y")
    offer(traffic, "x")
    for _ in range(60):
        traffic.minute(2)
    offer(traffic, "x", "y")
    for _ in range(10):
        traffic.minute(20, assertion="y")
    assert traffic.incidents() == []


def test_minutes_in_which_an_assertion_was_suspended_are_not_usual(traffic: Traffic) -> None:
    offer(traffic, "x")
    for _ in range(10):
        traffic.minute(20)
    with write(traffic.engine) as connection:
        quality.suspend(connection, "m", "x", until_us=quality.FOREVER_US, reason="noisy")
    for _ in range(60):
        traffic.minute(0)
    with write(traffic.engine) as connection:
        quality.resume(connection, "m", "x", now_us=traffic.now_us)
    for _ in range(10):
        traffic.minute(20)
    assert traffic.incidents() == []


def test_an_incident_does_not_recover_while_its_assertion_is_suspended(traffic: Traffic) -> None:
    offer(traffic, "x")
    for _ in range(30):
        traffic.minute(2)
    for _ in range(6):
        traffic.minute(40)
    with write(traffic.engine) as connection:
        until_us = traffic.now_us + 20 * MINUTE_US
        quality.suspend(connection, "m", "x", until_us=until_us, reason="noisy")
    for _ in range(19):
        traffic.minute(0)
    assert [row.status for row in traffic.incidents()] == ["open"]
    for _ in range(10):
        traffic.minute(2)
    assert [row.status for row in traffic.incidents()] == ["resolved"]


def test_an_incident_of_a_slice_that_vanishes_ends(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.parts(dict.fromkeys("ab", 1), records=50)
    for _ in range(6):
        traffic.parts({"a": 1, "b": 30}, records=50)
    for _ in range(119):
        traffic.parts({"a": 0}, records=5)
    assert [row.status for row in traffic.incidents()] == ["open"]
    for _ in range(3):
        traffic.parts({"a": 0}, records=5)
    (found,) = traffic.incidents()
    assert (found.status, found.note.rpartition("; ")[2]) == ("resolved", "nothing came for 7200 s")


def test_a_share_that_falls_half_the_way_is_the_same_incident(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(2)
    for _ in range(10):
        traffic.minute(60)
    for _ in range(30):
        traffic.minute(12)
    assert [row.status for row in traffic.incidents()] == ["open"]
    for _ in range(6):
        traffic.minute(2)
    assert [row.status for row in traffic.incidents()] == ["resolved"]


def test_an_incident_of_few_records_ends_once_enough_are_usual(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(1)
    for _ in range(6):
        traffic.minute(40)
    for _ in range(12):
        traffic.minute(0, records=1)
        traffic.quiet(120)
    (found,) = traffic.incidents()
    assert found.status == "resolved"
    assert "the share is what it was before" in found.note


def test_an_incident_of_an_assertion_that_is_gone_says_so(traffic: Traffic) -> None:
    offer(traffic, "x")
    for _ in range(30):
        traffic.minute(2)
    for _ in range(6):
        traffic.minute(40)
    offer(traffic)
    traffic.quiet(400)
    (found,) = traffic.incidents()
    assert found.status == "resolved"
    assert found.note.endswith("x is no assertion of level warning any more")


def test_a_muted_rise_that_stands_is_told_again_behind_it(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(2)
    for _ in range(6):
        traffic.minute(30)
    with write(traffic.engine) as connection:
        (first,) = traffic.incidents()
        until_us = traffic.now_us + 20 * MINUTE_US
        stored_incidents.mute(connection, first.id, until_us=until_us, now_us=traffic.now_us)
    for _ in range(30):
        traffic.minute(30)
    assert [row.status for row in traffic.incidents()] == ["resolved", "open"]
    assert len(traffic.told()) == 3


def test_a_slice_that_appears_is_compared_with_the_others_until_it_is_like_them(traffic: Traffic) -> None:
    for _ in range(60):
        traffic.parts({"a": 10}, records=50)
    for _ in range(10):
        traffic.parts({"a": 10, "b": 35}, records=50)
    (found,) = traffic.incidents()
    assert (found.slice, found.details["before"]["share"]) == ("b", pytest.approx(0.2, abs=0.01))
    for _ in range(8):
        traffic.parts({"a": 10, "b": 15}, records=50)
    assert [row.status for row in traffic.incidents()] == ["resolved"]


def mixed(
    rng: np.random.Generator, minutes: int, *, odds: float = 1.0, is_sudden: bool = False
) -> MinuteCounts:
    """Two slices of 1 % and 8 % whose volumes go up and down by day, or change once."""
    day = np.sin(2 * np.pi * np.arange(minutes) / 1_440)
    if is_sudden:
        day = np.where(np.arange(minutes) < minutes - 90, 1.0, -1.0)
    counts = MinuteCounts("m", minutes, 0)
    for part, share, sign in (("eu", 0.01, 1), ("us", 0.08, -1)):
        seen = rng.poisson(20 * (1 + 0.9 * sign * day))
        rate = np.where(np.arange(minutes) < minutes - 60, share, share * odds)
        counts.rows["", part] = seen.astype(float)
        counts.rows["x", part] = rng.binomial(seen, rate).astype(float)
    for name in ("", "x"):
        counts.rows[name, ALL] = counts.rows[name, "eu"] + counts.rows[name, "us"]
    return counts


@pytest.mark.parametrize("is_sudden", [False, True])
def test_volumes_of_slices_that_move_are_no_rise_of_all_records(is_sudden: bool) -> None:
    rule = AlarmRule()
    for seed in range(5):
        counts = mixed(np.random.default_rng(seed), 1_080, is_sudden=is_sudden)
        assert rate_alarms(counts, ["x"], rule, standing=set()) == []
        for key in [key for key in counts.rows if key[1] != ALL]:
            del counts.rows[key]  # without slices a sudden one would be one
        assert len(rate_alarms(counts, ["x"], rule, standing=set())) == is_sudden


def test_a_rise_beside_volumes_that_move_is_found() -> None:
    found = rate_alarms(mixed(np.random.default_rng(1), 1_080, odds=5.0), ["x"], AlarmRule(), standing=set())
    assert {one.slice for one in found} >= {ALL, "us"}
    assert all(abs(one.onset_us // MINUTE_US - 1_020) <= 2 for one in found)
