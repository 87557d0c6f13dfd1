"""An incident says the share now, of whom it is, and whose the next step is."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from outrider.assertions.times import utc_text
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incident_share import ENOUGH, MOST_MINUTES, RECENT_MINUTES, _since
from outrider.dataops.flags.registered_assertions import columns_of_sender, note_reads
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.state.database import write
from outrider.dataops.triggers.inputs import read_incidents

from .test_incidents import Traffic
from .test_version_causes import Counted


@pytest.fixture
def traffic(engine: Engine) -> Traffic:
    return Traffic(engine)


def one(traffic: Traffic) -> IncidentRow:
    (found,) = traffic.incidents()
    return found


def rising(traffic: Traffic, *shares: int, reads: list[str] | None = None) -> None:
    """Half an hour of one flag in a hundred in two slices, then minutes in which slice a has more."""
    for _ in range(30):
        traffic.parts({"a": 1, "b": 1})
    if reads is not None:
        with write(traffic.engine) as connection:
            note_reads(connection, "m", {"x": reads})
    for share in shares:
        traffic.parts({"a": share, "b": 1})


def test_share_is_that_of_now_when_it_has_grown_since_the_opening(traffic: Traffic) -> None:
    rising(traffic, 15, 15, 15)
    assert one(traffic).sentence.startswith("x flags 15.0 % of the entities of a in the last ")
    for _ in range(RECENT_MINUTES + 1):
        traffic.parts({"a": 100, "b": 1})
    found = one(traffic)
    assert found.share is not None
    assert (found.share.share, found.share.of, found.share.seen) == (1.0, "entities of a", 500)
    assert found.sentence.startswith("x flags 100.0 % of the entities of a in the last 5 minutes, since ")
    assert found.sentence.endswith("; 1.0 % before")
    assert found.details["now"]["share"] == 0.15  # of its opening: evidence, and no headline


def test_events_say_the_share_that_pages_say_when_sent(traffic: Traffic) -> None:
    rising(traffic, 15, 15, 15)
    ((_, opened),) = traffic.told()
    assert opened["share"]["share"] == opened["now"]["share"] == 0.15
    assert opened["sentence"].startswith("x flags 15.0 % of the entities of a in the last ")
    for _ in range(6):
        traffic.parts({"a": 100, "b": 1})
    for _ in range(8):
        traffic.parts({"a": 1, "b": 1})
    (_, (event, resolved)) = traffic.told()
    found = one(traffic)
    assert (event, found.status) == ("incident.resolved", "resolved")
    assert found.share is not None
    assert resolved["share"] == found.present["share"] == found.details["share"]
    assert resolved["sentence"] == found.sentence
    assert found.sentence.startswith("x flagged ")
    assert " % of the entities of a from " in found.sentence
    assert 0.3 < found.share.share < 0.7
    assert found.share.highest is not None
    assert found.share.highest >= found.share.share
    assert found.next_step == ""


def test_share_of_a_resolved_incident_stays_when_its_counts_are_gone(traffic: Traffic) -> None:
    rising(traffic, 40, 40, 40)
    with write(traffic.engine) as connection:
        stored_incidents.resolve(connection, one(traffic).id, now_us=traffic.now_us, why="mended")
    before = one(traffic)
    with write(traffic.engine) as connection:
        connection.execute(text("DELETE FROM flag_count"))
        connection.execute(text("DELETE FROM record_count"))
    assert one(traffic).share == before.share
    assert before.share is not None
    assert before.share.share == 0.4


def test_no_record_for_a_while_is_said_and_is_no_zero(traffic: Traffic) -> None:
    rising(traffic, 100, 100, 100)
    last = utc_text(traffic.now_us + MINUTE_US)[11:16]
    with traffic.engine.connect() as connection:
        now_us = traffic.now_us + 40 * MINUTE_US
        (found,) = stored_incidents.list_incidents(connection, now_us=now_us)
    assert found.share is not None
    assert (found.share.share, found.share.is_now) == (1.0, False)
    assert f" minutes before 2026-09-21 {last} UTC, since " in found.sentence
    assert found.sentence.endswith(f"; 1.0 % before; no record was judged since 2026-09-21 {last} UTC")
    assert found.sentence.startswith("x flagged 100.0 % of the entities of a in the ")


def test_share_of_nothing_is_none_and_the_figure_says_when_it_was_true(traffic: Traffic) -> None:
    rising(traffic, 30, 30, 30)
    with traffic.engine.connect() as connection:  # the clock was set back behind the onset
        (found,) = stored_incidents.list_incidents(connection, now_us=traffic.now_us - 20 * MINUTE_US)
    assert found.share is None
    assert found.sentence.startswith("x flagged 30.0 % of the entities of a when it opened, since ")


def test_a_return_is_another_incident_with_a_share_of_its_own(traffic: Traffic) -> None:
    rising(traffic, 60, 60, 60)
    for _ in range(12):
        traffic.parts({"a": 1, "b": 1})
    for _ in range(3):
        traffic.parts({"a": 20, "b": 1})
    first, second = traffic.incidents()
    assert (first.status, second.status) == ("resolved", "open")
    assert second.share is not None
    assert second.share.share == pytest.approx(0.2, abs=0.01)


def test_share_of_a_canary_is_of_its_own_entities(engine: Engine) -> None:
    counted = Counted(engine)
    (row,) = counted.minutes(
        130, lambda at: {"1": (190, 0.05)} | ({"2-canary": (10, 0.5)} if at >= 90 else {})
    )
    assert row.share is not None
    assert row.share.of == "entities of version 2-canary"
    assert row.share.seen < 100
    assert row.share.share == pytest.approx(0.5, abs=0.25)


def test_critical_incident_counts_its_records_and_says_the_share(traffic: Traffic) -> None:
    for _ in range(3):
        traffic.parts({"a": 0, "b": 0}, level="critical")
    traffic.parts({"a": 40, "b": 0}, level="critical")
    traffic.parts({"a": 60, "b": 0}, level="critical")
    traffic.quiet(60)
    found = one(traffic)
    assert found.sentence.startswith("x has flagged 100 records of a since 2026-")
    assert "; 50.0 % of the entities of a in the last " in found.sentence
    with write(traffic.engine) as connection:
        stored_incidents.resolve(connection, found.id, now_us=traffic.now_us, why="mended")
    assert re.search(
        r"since [^;]+; [\d.]+ % of the entities of a from [^;]+ to [^;]+, [\d.]+ % at its highest$",
        one(traffic).sentence,
    )


@given(
    st.dictionaries(st.integers(1, 90), st.integers(1, 200), min_size=1),
)
def test_window_is_five_minutes_or_as_many_as_have_enough(counts: dict[int, int]) -> None:
    until = 1_000 * MINUTE_US
    seen = {until - back * MINUTE_US: count for back, count in counts.items()}
    minutes = (until - _since(seen, until)) // MINUTE_US
    held = sum(count for back, count in counts.items() if back <= minutes)
    assert RECENT_MINUTES <= minutes <= MOST_MINUTES
    assert held >= ENOUGH or minutes == MOST_MINUTES
    if minutes > RECENT_MINUTES:
        assert sum(count for back, count in counts.items() if back < minutes) < ENOUGH


@pytest.mark.parametrize(
    ("reads", "action", "words"),
    [
        (["inputs.area_m2"], "check_sender", "check what sends area_m2 for a"),
        (["inputs.area_m2", "attrs.app"], "check_sender", "check what sends app, area_m2 for a"),
        (["inputs.*"], "check_sender", "check what sends the inputs for a"),
        (["inputs.area_m2", "outputs.price"], "label", "label some of its records"),
        (["outputs.price"], "label", "label some of its records"),
        (["*"], "label", "label some of its records; which columns x reads is not known"),
        (None, "label", "label some of its records; which columns x reads is not known"),
    ],
)
def test_next_step_follows_from_what_the_assertion_reads(
    traffic: Traffic, reads: list[str] | None, action: str, words: str
) -> None:
    rising(traffic, 30, 30, 30, reads=reads)
    found = one(traffic)
    assert (found.details["action"], found.next_step) == (action, words)
    ((_, told),) = traffic.told()
    assert (told["action"], told["next_step"]) == (action, words)


def test_a_promotion_near_the_onset_does_not_roll_back_what_inputs_alone_show(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.parts({"a": 1, "b": 1})
    with write(traffic.engine) as connection:
        note_reads(connection, "m", {"x": ["inputs.area_m2"]})
        connection.execute(
            text(
                'INSERT INTO champion_change (model, version, action, replaced, at_us, "by", reason, seq)'
                " VALUES ('m', '2', 'promoted', '1', :at, 'ann', '', 0)"
            ),
            {"at": traffic.now_us},
        )
    for _ in range(4):
        traffic.parts({"a": 40, "b": 1})
    found = one(traffic)
    assert found.details["event"]["kind"] == "promoted"
    assert found.details["action"] == "check_sender"


@pytest.mark.parametrize(("reads", "is_counted"), [(["inputs.area_m2"], False), (["outputs.price"], True)])
def test_trigger_counts_no_incident_that_a_sender_has_to_mend(
    traffic: Traffic, reads: list[str], is_counted: bool
) -> None:
    rising(traffic, 30, 30, 30, reads=reads)
    with traffic.engine.connect() as connection:
        counted = read_incidents(connection, "m", "warning")
    assert bool(counted) == is_counted


def test_columns_that_are_read_later_are_added_and_end_the_advice_to_the_sender(traffic: Traffic) -> None:
    traffic.minute(1)
    with write(traffic.engine) as connection:
        note_reads(connection, "m", {"x": ["inputs.area_m2"]})
        assert columns_of_sender(connection, "m", ["x"]) == ["inputs.area_m2"]
        note_reads(connection, "m", {"x": ["outputs.price"], "gone": ["inputs.a"]})
        assert columns_of_sender(connection, "m", ["x"]) == []
        stored: Any = connection.scalar(text("SELECT reads FROM assertion WHERE name = 'x'"))
    assert json.loads(stored) == ["inputs.area_m2", "outputs.price"]


def test_kinds_with_figures_of_their_opening_say_so(engine: Engine) -> None:
    row = IncidentRow(
        id="i", model="m", assertion="loss", slice="", kind="performance", status="open",
        opened_us=1_790_000_000_000_000, last_flag_us=0, muted_until_us=0, resolved_us=None, flags=3,
        level="warning", first_record="", note="version 1: 3.0% wrong before, 9.0% since", details={},
    )  # fmt: skip
    assert row.sentence == f"{row.note} (when it opened, 2026-09-21 14:13 UTC)"
