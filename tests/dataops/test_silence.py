"""Silence of labels and behind clocks that were ahead; counts that come late."""

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.minute_counts import MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.silence import SilenceWatch
from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.ledger.commit import Effects, apply
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import RecordCount, table_of
from tests.table_rows import append

from .test_incidents import RULE, START_US, TARGETS, Traffic


@pytest.fixture
def traffic(engine: Engine) -> Traffic:
    return Traffic(engine)


def silent(traffic: Traffic) -> list[tuple[str, str]]:
    return [(row.assertion, row.status) for row in traffic.incidents() if row.kind == "silence"]


def told(engine: Engine, *, day: int) -> list[int]:
    """Hours of a day at which silence is told of a model that hears from Monday to Friday, 8 to 18 h.

    What comes on that day is not counted yet.
    """
    table = table_of(RecordCount)
    counted = {"model": "m", "slice": "", "version": "", "records": 1, "entities": 1}
    hours = [24 * each + hour for each in range(day) for hour in range(8, 18) if each % 7 < 5]
    rows = [counted | {"minute_us": (60 * hour + at) * MINUTE_US} for hour in hours for at in range(60)]
    with write(engine) as connection:
        connection.execute(insert(table), rows)
        watch = SilenceWatch("m", AlarmRule(), 0)
        return [hour for hour in range(24) if watch.look(connection, (24 * day + hour) * 60 * MINUTE_US)]


@pytest.mark.parametrize(
    ("day", "expected"),
    [(9, 8), (12, None), (13, None), (14, 8), (5, 8)],
    ids=["Wednesday", "Saturday", "Sunday", "Monday", "first Saturday"],
)
def test_silence_is_told_by_the_hours_of_a_week(engine: Engine, day: int, expected: int | None) -> None:
    hours = told(engine, day=day)
    if expected is None:
        assert hours == []
    else:
        assert expected < hours[0] <= expected + 2
        assert hours == list(range(hours[0], 24))


def label(traffic: Traffic) -> None:
    at_us = traffic.now_us
    values: dict[str, Any] = {"model": "m", "seq": traffic.seq, "row": 0, "record_id": f"r{traffic.seq}-0"}
    values |= {"label": {"y": 1}, "source": "", "ts_us": at_us, "received_us": at_us}
    table = table_of(Label)
    with write(traffic.engine) as connection:
        connection.execute(insert(table).values(values))


@pytest.mark.costly("hours of minutes pass")
def test_labels_that_stop_are_told_beside_records_that_go_on(traffic: Traffic) -> None:
    for minute in range(180):
        traffic.minute(1, records=20)
        if minute % 2:
            label(traffic)
    assert silent(traffic) == []
    for _ in range(80):
        traffic.minute(1, records=20)
    assert silent(traffic) == [("labels", "open")]
    label(traffic)
    traffic.minute(1, records=20)
    assert silent(traffic) == [("labels", "resolved")]


def test_a_worker_that_was_stopped_hears_no_silence_of_its_own(traffic: Traffic) -> None:
    for _ in range(120):
        traffic.minute(1, records=20)
    for _ in range(30):  # one restart after the other, for a night
        traffic.now_us += 20 * MINUTE_US
        traffic.book = IncidentBook("m", RULE, TARGETS)
        traffic.quiet(120)
        traffic.quiet(120)
    assert silent(traffic) == []
    for _ in range(40):
        traffic.quiet(60)
    assert silent(traffic) == [("records", "open")]


def test_counts_of_a_clock_that_was_ahead_hide_no_silence(traffic: Traffic) -> None:
    with write(traffic.engine) as connection:
        row = {
            "model": "m",
            "slice": "a",
            "minute_us": minute_of(START_US) + 1_440 * MINUTE_US,
            "version": "",
        }
        connection.execute(insert(table_of(RecordCount)).values(**row, records=1, entities=1))
    for _ in range(120):
        traffic.minute(1, records=20)
    for _ in range(40):
        traffic.quiet(60)
    assert silent(traffic) == [("records", "open")]
    traffic.quiet(60)
    assert silent(traffic) == [("records", "open")]


def late(traffic: Traffic, minutes: int, entities: int, run: int) -> None:
    """Flag records of an earlier minute by a window, a block for every flag of each entity."""
    seq = traffic.seq - minutes
    for own in range(run):
        traffic.seq += 1
        effects = Effects(
            "m", "champion", traffic.seq, received_us=traffic.now_us,
            received={traffic.seq: traffic.now_us, seq: traffic.now_us - minutes * MINUTE_US},
        )  # fmt: skip
        for entity in range(entities):
            key = f"r{seq}-{entity * run + own}"
            flag = f"late{seq}-{key}", "m", key, "x", "rev", "champion", "1", 1.0, "warning", None, seq
            append(effects.flags, (*flag, entity * run + own, 0))
        with write(traffic.engine) as connection:
            found = count_flags(connection, effects, FlagBudget(), traffic.entities)
            apply(connection, effects)
            traffic.book.follow(connection, found, now_us=traffic.now_us)


def test_an_entity_that_is_flagged_late_counts_once_a_minute(traffic: Traffic) -> None:
    for _ in range(20):
        traffic.minute(0, run=10)
    late(traffic, 8, entities=2, run=10)
    counts = MinuteCounts("m", 60)
    with traffic.engine.connect() as connection:
        counts.read(connection, traffic.now_us + MINUTE_US)
    assert counts.of("x", "a")[0].sum() == 2


@pytest.mark.parametrize("minutes", [5, 40])
def test_flags_of_earlier_minutes_are_read_however_late(traffic: Traffic, minutes: int) -> None:
    for _ in range(60):
        traffic.minute(0)
    late(traffic, minutes, entities=7, run=1)
    traffic.minute(0)
    traffic.minute(0)
    fresh = MinuteCounts("m", traffic.book._counts.minutes)
    with traffic.engine.connect() as connection:
        fresh.read(connection, traffic.now_us)
    known = traffic.book._counts.of("x", "a")[0]
    assert known.sum() == fresh.of("x", "a")[0].sum() == 7
