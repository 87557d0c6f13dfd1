"""Silence of labels and behind clocks that were ahead; counts that come late."""

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.flags.incidents import IncidentBook
from outrider.dataops.flags.minute_counts import MinuteCounts
from outrider.dataops.flags.rate_limit import FlagBudget, MinuteEntities, count_flags
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


def label(traffic: Traffic) -> None:
    values: dict[str, Any] = {
        "model": "m", "seq": traffic.seq, "row": 0, "received_us": traffic.now_us, "record_id": f"r{traffic.seq}-0",
        "label": "1", "source": "", "tier": "human", "ts_us": traffic.now_us,
    }  # fmt: skip
    table = table_of(Label)
    with write(traffic.engine) as connection:
        connection.execute(insert(table).values({k: v for k, v in values.items() if k in table.c}))


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
