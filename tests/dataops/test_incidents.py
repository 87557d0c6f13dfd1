"""Flags become one incident per cause and onset, and each is told once."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, text

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.explanation import iso
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.version_mismatch import VERSION, count_versions
from outrider.dataops.flags.rate_limit import FlagBudget, MinuteEntities, count_flags
from outrider.dataops.ledger.commit import Effects, apply, flag_id
from outrider.dataops.ledger.stated_values import OTHERS, PLACES, StatedValues
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import write
from outrider.errors import NotFound, OutriderError
from tests.table_rows import append

START_US = 1_790_000_040_000_000
TARGETS = [WebhookTarget("http://127.0.0.1:9/", ("incident.opened", "incident.resolved"))]
RULE = AlarmRule(alpha=0.01, horizon_s=86_400.0, baseline_s=7_200.0, quiet_s=300.0)


class Traffic:
    """Commits minutes of records of one slice, as the worker does."""

    def __init__(self, engine: Engine, rule: AlarmRule = RULE) -> None:
        self.engine = engine
        self.book = IncidentBook("m", rule, TARGETS)
        self.seq = 0
        self.now_us = START_US
        self.entities = MinuteEntities()

    def minute(
        self,
        flags: int,
        *,
        level: str = "warning",
        records: int = 100,
        part: str = "a",
        assertion: str = "x",
        run: int = 1,
    ) -> None:
        self.parts({part: flags}, level=level, records=records, assertion=assertion, run=run)

    def parts(
        self,
        flags: dict[str, int],
        *,
        level: str = "warning",
        records: int = 100,
        assertion: str = "x",
        run: int = 1,
    ) -> None:
        """Commit one minute: flags by slice, so many records in each, ``run`` of them of one entity."""
        self.seq += 1
        self.now_us += 60_000_000
        effects = Effects(
            "m", "champion", self.seq, received_us=self.now_us, received={self.seq: self.now_us}
        )
        places = [(part, row, row < count) for part, count in flags.items() for row in range(records)]
        for row, (part, own, is_flagged) in enumerate(places):
            key = f"r{self.seq}-{row}"
            entity = None if run == 1 else f"{part}{self.seq}-{own // run}"
            append(effects.records, ("m", key, self.seq, row, 0, row, "1", entity, part, "0", 1.0, False))
            if is_flagged:
                judged = flag_id("m", "1", assertion, "rev", key), "m", key, assertion, "rev", "champion"
                append(effects.flags, (*judged, "1", 1.0, level, None, self.seq, row, 0))
        with write(self.engine) as connection:
            connection.execute(
                text(
                    "INSERT OR IGNORE INTO assertion (model, name, revision, kind, level, description, owner,"
                    " active, suspended_until_us, suspension, first_seen_us, first_seq, definition,"
                    " window_by, judged_us, reads, of_sender)"
                    " VALUES ('m', :name, 'rev', 'assertion', :level, '', '', 1, 0, '', 0, 0, '', '', 0,"
                    " '[]', 0)"
                ),
                {"name": assertion, "level": level},
            )
            found = count_flags(connection, effects, FlagBudget(), self.entities)
            apply(connection, effects)
            self.book.follow(connection, found, now_us=self.now_us)

    def quiet(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)
        with write(self.engine) as connection:
            self.book.settle(connection, now_us=self.now_us)

    def incidents(self) -> list[IncidentRow]:
        with self.engine.connect() as connection:
            return list(reversed(stored_incidents.list_incidents(connection, now_us=self.now_us)))

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        with self.engine.connect() as connection:
            found = connection.execute(text("SELECT event, payload FROM outbox ORDER BY rowid")).all()
        return [(row.event, json.loads(row.payload)["data"]) for row in found]


@pytest.fixture
def traffic(engine: Engine) -> Traffic:
    return Traffic(engine)


def test_a_critical_flag_opens_an_incident_that_is_told_once(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    traffic.minute(40, level="critical")
    traffic.minute(0)
    found = traffic.incidents()
    assert [(row.assertion, row.slice, row.status, row.flags) for row in found] == [("x", "", "open", 41)]
    assert found[0].first_record == "r1-0"
    assert [event for event, _ in traffic.told()] == ["incident.opened"]
    assert traffic.told()[0][1]["id"] == found[0].id


def test_a_usual_share_opens_none_and_a_rise_opens_one_with_its_cause(traffic: Traffic) -> None:
    for minute in range(30):
        traffic.minute(minute % 3)
    assert traffic.incidents() == []
    onset = traffic.now_us + 60_000_000
    for _ in range(4):
        traffic.minute(25)
    (found,) = traffic.incidents()
    assert (found.status, found.kind, found.level, found.assertion) == ("open", "flags", "warning", "x")
    details = found.details
    assert details["onset"]["likeliest"] == iso(onset)
    assert details["onset"]["first"] <= iso(onset) < details["onset"]["last"]
    assert details["before"]["share"] == pytest.approx(0.01, abs=0.002)
    assert details["now"]["share"] == 0.25
    assert details["now"]["low"] < 0.25 < details["now"]["high"]
    assert len(details["records"]) == 5
    assert details["action"] == "label"
    assert details["page"] == f"/incidents/{found.id}"
    assert details["guarantee"] == {"alpha": 0.01, "horizon_s": 86_400.0, "weeks": 0}
    ((event, told),) = traffic.told()
    assert event == "incident.opened"
    assert told["explained_by"] == details["explained_by"]
    assert told["first_record"] == details["records"][0]


def test_a_share_above_a_third_can_rise(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(40)
    assert traffic.incidents() == []
    for _ in range(4):
        traffic.minute(70)
    assert len(traffic.incidents()) == 1


def test_what_fires_from_the_first_record_is_usual(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(60)
    assert traffic.incidents() == []


def test_a_rise_within_the_effect_floor_is_no_news(engine: Engine) -> None:
    traffic = Traffic(engine, replace(RULE, odds=3.0))
    for minute in range(60):
        traffic.minute(10 if minute < 30 else 20)
    assert traffic.incidents() == []


def test_the_slice_at_fault_is_the_cause_and_healthy_ones_have_no_incident(traffic: Traffic) -> None:
    for minute in range(30):
        traffic.parts(dict.fromkeys("abcd", minute % 3), records=50)
    for _ in range(4):
        traffic.parts({"a": 1, "b": 30, "c": 2, "d": 1}, records=50)
    assert [(row.slice, row.details["explained_by"][0]["slice"]) for row in traffic.incidents()] == [
        ("b", "b")
    ]


def test_two_slices_at_fault_are_two_incidents_and_all_at_once_is_one(engine: Engine) -> None:
    traffic = Traffic(engine)
    for _ in range(30):
        traffic.parts(dict.fromkeys("abcdefgh", 1), records=40)
    for _ in range(4):
        traffic.parts(dict.fromkeys("abcdefgh", 1) | {"b": 20, "c": 30}, records=40)
    assert sorted(row.slice for row in traffic.incidents()) == ["b", "c"]


def test_a_rise_of_every_slice_is_one_incident_of_all_records(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.parts(dict.fromkeys("abcdefgh", 1), records=40)
    for _ in range(4):
        traffic.parts(dict.fromkeys("abcdefgh", 20), records=40)
    assert [row.slice for row in traffic.incidents()] == [""]


@pytest.mark.parametrize("run", [1, 100])
def test_records_of_one_entity_are_one_observation(traffic: Traffic, run: int) -> None:
    for _ in range(30):
        traffic.minute(2, run=run)
    for _ in range(3):
        traffic.minute(100, run=run)
    assert bool(traffic.incidents()) == (run == 1)


def test_a_share_that_is_usual_again_recovers_and_a_second_rise_is_another(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(2)
    for _ in range(10):
        traffic.minute(40)
    assert [row.status for row in traffic.incidents()] == ["open"]
    for _ in range(6):
        traffic.minute(3)
    (found,) = traffic.incidents()
    assert found.status == "resolved"
    assert "the share is what it was before" in found.note
    assert found.flags > 200  # those that came meanwhile belong to it
    assert [event for event, _ in traffic.told()] == ["incident.opened", "incident.resolved"]
    for _ in range(10):
        traffic.minute(40)
    assert [row.status for row in traffic.incidents()] == ["resolved", "open"]


def test_a_person_who_resolves_makes_it_the_new_normal(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(2)
    for _ in range(6):
        traffic.minute(40)
    with write(traffic.engine) as connection:
        found = traffic.incidents()[0].id
        stored_incidents.resolve(connection, found, now_us=traffic.now_us, why="as wanted")
    for _ in range(40):
        traffic.minute(40)
    assert [row.status for row in traffic.incidents()] == ["resolved"]


def test_a_worker_that_starts_again_decides_the_same(engine: Engine) -> None:
    traffic = Traffic(engine)
    for minute in range(36):
        traffic.minute(2 if minute < 30 else 20)
        traffic.book = IncidentBook("m", RULE, TARGETS)
    assert [row.details["onset"]["likeliest"] for row in traffic.incidents()] == [
        iso(START_US + 31 * 60_000_000)
    ]


def test_counts_read_minute_by_minute_equal_those_read_at_once(traffic: Traffic) -> None:
    for minute in range(40):
        traffic.parts({"a": minute % 3, "b": minute % 5}, records=20)
        if minute % 7 == 0:
            traffic.quiet(180)
    known = traffic.book._counts
    for now_us in (traffic.now_us, traffic.now_us - 3_600_000_000, traffic.now_us):
        fresh = MinuteCounts("m", known.minutes)
        with traffic.engine.connect() as connection:
            known.read(connection, now_us)
            fresh.read(connection, now_us)
        assert known.rows.keys() == fresh.rows.keys()
        assert all(np.array_equal(known.rows[key], row) for key, row in fresh.rows.items())
        assert known.of("x", ALL)[0].sum() == sum(known.of("x", part)[0].sum() for part in ("a", "b"))


def test_the_metric_names_what_the_incident_and_the_event_name(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(2)
    for _ in range(4):
        traffic.minute(30)
    (found,), ((_, told),) = traffic.incidents(), traffic.told()
    with traffic.engine.connect() as connection:
        assert stored_incidents.open_alarms(connection) == [("m", "flags", "warning", found.assertion)]
    assert (told["assertion"], told["slice"]) == (found.assertion, found.slice)
    with write(traffic.engine) as connection:
        until_us = traffic.now_us + 60_000_000
        stored_incidents.mute(connection, found.id, until_us=until_us, now_us=traffic.now_us)
        assert stored_incidents.open_alarms(connection) == []


def test_silence_of_records_is_told_by_their_own_rhythm(traffic: Traffic) -> None:
    for _ in range(90):
        traffic.minute(1)
    for _ in range(4):
        traffic.quiet(60)
    assert traffic.incidents() == []
    for _ in range(16):
        traffic.quiet(60)
    (found,) = traffic.incidents()
    assert (found.kind, found.assertion, found.status) == ("silence", "records", "open")
    assert "no records of m since" in found.note
    assert found.details["action"] == "check_sender"
    traffic.minute(1)
    traffic.minute(1)
    assert [(row.status, row.note.rpartition("; ")[2]) for row in traffic.incidents()] == [
        ("resolved", "records come again")
    ]


def test_minutes_without_records_that_are_usual_are_no_silence(traffic: Traffic) -> None:
    for _ in range(40):
        traffic.minute(1)
        for _ in range(4):
            traffic.quiet(60)
    for _ in range(12):
        traffic.quiet(60)
    assert traffic.incidents() == []


def test_silence_resolves_and_the_next_onset_is_another_incident(traffic: Traffic) -> None:
    traffic.minute(10, level="critical")
    traffic.quiet(299)
    assert traffic.incidents()[0].status == "open"
    traffic.quiet(2)
    first = traffic.incidents()[0]
    assert (first.status, first.resolved_us, first.note) == ("resolved", traffic.now_us, "quiet for 300 s")
    traffic.minute(1, level="critical")
    assert [row.status for row in traffic.incidents()] == ["resolved", "open"]
    assert len({row.id for row in traffic.incidents()}) == 2
    assert [event for event, _ in traffic.told()] == [
        "incident.opened",
        "incident.resolved",
        "incident.opened",
    ]


def test_an_acknowledged_incident_goes_on_and_is_resolved_by_silence(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    with write(traffic.engine) as connection:
        stored_incidents.acknowledge(
            connection, traffic.incidents()[0].id, now_us=traffic.now_us, note="Ada looks", who="ada"
        )
    traffic.minute(1, level="critical")
    assert [(row.status, row.flags) for row in traffic.incidents()] == [("acknowledged", 2)]
    traffic.quiet(400)
    found = traffic.incidents()[0]
    assert (found.status, found.note) == ("resolved", "Ada looks; quiet for 300 s")
    told = [(step["what"], step["by"], step["why"]) for step in found.details["history"]]
    assert told == [("acknowledged", "ada", "Ada looks"), ("resolved", "", "quiet for 300 s")]


def test_a_note_is_added_to_why_an_incident_opened(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    with write(traffic.engine) as connection:
        connection.execute(text("UPDATE incident SET note = '1 % before'"))
        incident = traffic.incidents()[0].id
        stored_incidents.acknowledge(connection, incident, now_us=traffic.now_us, note="Ada looks")
        stored_incidents.acknowledge(connection, incident, now_us=traffic.now_us)
        stored_incidents.mute(
            connection, incident, until_us=traffic.now_us + 1, now_us=traffic.now_us, note="known"
        )
    assert traffic.incidents()[0].note == "1 % before; Ada looks; known"


def test_muted_stays_silent_until_its_time_and_is_told_anew_after_it(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    muted_until = traffic.now_us + 3_600_000_000
    with write(traffic.engine) as connection:
        stored_incidents.mute(
            connection, traffic.incidents()[0].id, until_us=muted_until, now_us=traffic.now_us
        )
    traffic.quiet(1000)  # silence does not end it: what comes next would be told
    traffic.minute(5, level="critical")
    assert [(row.status, row.flags) for row in traffic.incidents()] == [("muted", 6)]
    assert len(traffic.told()) == 1
    traffic.now_us = muted_until
    traffic.minute(1, level="critical")
    assert [row.status for row in traffic.incidents()] == ["resolved", "open"]
    assert [event for event, _ in traffic.told()] == [
        "incident.opened",
        "incident.resolved",
        "incident.opened",
    ]


def test_a_person_resolves_and_what_is_wrong_is_refused(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    incident = traffic.incidents()[0].id
    with write(traffic.engine) as connection:
        stored_incidents.resolve(connection, incident, now_us=traffic.now_us, why="fixed", targets=TARGETS)
        stored_incidents.resolve(connection, incident, now_us=traffic.now_us, why="again", targets=TARGETS)
    assert traffic.incidents()[0].note == "fixed"
    assert len(traffic.told()) == 2
    with write(traffic.engine) as connection:
        with pytest.raises(OutriderError, match="is resolved"):
            stored_incidents.acknowledge(connection, incident, now_us=1)
        with pytest.raises(OutriderError, match="time to come"):
            stored_incidents.mute(connection, incident, until_us=1, now_us=2)
        with pytest.raises(NotFound, match="no incident 'inc_0'"):
            stored_incidents.get(connection, "inc_0")


def test_a_new_process_goes_on_where_the_old_one_ended(engine: Engine) -> None:
    first = Traffic(engine)
    first.minute(1, level="critical")
    second = Traffic(engine)
    second.seq, second.now_us = first.seq, first.now_us
    second.minute(1, level="critical")
    assert [(row.status, row.flags) for row in second.incidents()] == [("open", 2)]
    with engine.connect() as connection:
        assert not second.book.is_due(connection, now_us=second.now_us)
        assert second.book.is_due(connection, now_us=second.now_us + 301_000_000)


# ---- another version than the champion's ---------------------------------------------------------------


class Versions(Traffic):
    """Minutes of records by the version that they state; version 2 is champion."""

    def __init__(self, engine: Engine, changed_us: int = START_US) -> None:
        super().__init__(engine)
        self.stated = StatedValues("m")
        self.point("2", changed_us)

    def point(self, version: str, at_us: int) -> None:
        with write(self.engine) as connection:
            connection.execute(text("UPDATE model_version SET status = 'retired'"))
            connection.execute(
                text(
                    "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note,"
                    " source) VALUES ('m', :v, 'champion', '', 0, :at, '', '{}')"
                    " ON CONFLICT DO UPDATE SET status = 'champion', changed_us = :at"
                ),
                {"v": version, "at": at_us},
            )

    def state(self, **counts: int) -> None:
        """One more minute; ``v1=5`` are five records of version 1, ``none`` say none."""
        self.seq += 1
        self.now_us += 60_000_000
        effects = Effects(
            "m", "champion", self.seq, received_us=self.now_us, received={self.seq: self.now_us}
        )
        versions = [name for name, n in counts.items() for _ in range(n)]
        for row, name in enumerate(versions):
            version = None if name == "none" else name.removeprefix("v")
            key = f"r{self.seq}-{row}"
            append(effects.records, ("m", key, self.seq, row, 0, row, version, None, "a", "0", 1.0, False))
        stated = effects.records["version"]
        named = self.stated.meet(
            "version", stated, np.full(len(stated), self.now_us // 60_000_000 * 60_000_000)
        )
        effects.stated_versions = [
            one if is_named else OTHERS for one, is_named in zip(stated, named.tolist(), strict=True)
        ]
        with write(self.engine) as connection:
            found = count_flags(connection, effects, FlagBudget())
            apply(connection, effects)
            count_versions(connection, effects)
            self.book.follow(connection, found, now_us=self.now_us)

    def found(self) -> list[tuple[str, str, str]]:
        rows = [row for row in self.incidents() if row.kind == VERSION]
        return [(row.status, row.assertion, row.note) for row in sorted(rows, key=lambda row: row.opened_us)]


def test_another_version_for_ten_minutes_is_one_incident_and_passes(engine: Engine) -> None:
    traffic = Versions(engine)
    for _ in range(10):
        traffic.state(v1=30, v2=70, none=5)
        assert traffic.found() == []
    traffic.state(v1=30, v2=70)
    note = "of 1000 records that state a version 30.0% version 1; version 2 is champion"
    assert traffic.found() == [("open", "version mismatch", note)]
    for _ in range(3):
        traffic.state(v1=30, v2=70)
    assert len(traffic.found()) == 1
    for _ in range(10):
        traffic.state(v2=70)
    assert traffic.found() == [("resolved", "version mismatch", f"{note}; records state version 2")]
    opened = [data for event, data in traffic.told() if event == "incident.opened"]
    assert opened[0]["versions"] == {"1": 300, "2": 700}


def test_ten_minutes_count_from_the_change_of_the_champion(engine: Engine) -> None:
    traffic = Versions(engine)
    for _ in range(20):
        traffic.state(v2=100)
    traffic.point("3", traffic.now_us)  # and takes nine minutes to roll out
    for _ in range(9):
        traffic.state(v2=100)
    for _ in range(20):
        traffic.state(v3=100)
    assert traffic.found() == []


def test_another_promotion_ends_it_and_the_time_begins_anew(engine: Engine) -> None:
    traffic = Versions(engine)
    for _ in range(12):
        traffic.state(v1=100)
    assert [status for status, *_ in traffic.found()] == ["open"]
    traffic.point("1", traffic.now_us)
    traffic.state(v1=100)
    assert traffic.found()[0][0] == "resolved"
    assert traffic.found()[0][2].endswith("version 1 became champion")


def test_what_a_client_held_back_and_a_trace_of_another_version_are_none(engine: Engine) -> None:
    traffic = Versions(engine)
    traffic.state(v2=100)
    traffic.state(v1=5000)  # an hour of records of before, at once
    for _ in range(25):
        traffic.state(v1=1, v2=1000)
    assert traffic.found() == []


def test_sparse_records_are_seen_and_records_without_a_version_are_not(engine: Engine) -> None:
    traffic = Versions(engine)
    for minute in range(15):
        traffic.state(**({"v1": 1} if minute % 5 == 0 else {"none": 3}))
    assert [status for status, *_ in traffic.found()] == ["open"]
    quiet = Versions(engine, changed_us=traffic.now_us)
    quiet.seq, quiet.now_us = traffic.seq, traffic.now_us
    for _ in range(15):
        quiet.state(none=10)
    assert [status for status, *_ in quiet.found()] == ["resolved"]


def test_invented_versions_are_counted_as_one(engine: Engine) -> None:
    traffic = Versions(engine)
    for minute in range(12):
        traffic.state(**{f"v{minute}-{n}": 1 for n in range(200)})
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT count(DISTINCT version) FROM version_count")).scalar()
    assert kept == PLACES + 1
    assert "other versions" in traffic.found()[0][2]


def test_a_champion_from_a_clock_that_was_ahead_hides_nothing(engine: Engine) -> None:
    traffic = Versions(engine, changed_us=START_US + 86_400_000_000)
    for _ in range(12):
        traffic.state(v1=10)
    assert [status for status, *_ in traffic.found()] == ["open"]
    traffic.quiet(400)
    traffic.quiet(700)
    assert [status for status, *_ in traffic.found()] == ["resolved"]


def test_counts_of_versions_are_kept_for_an_hour(engine: Engine) -> None:
    traffic = Versions(engine)
    for _ in range(70):
        traffic.state(v2=1)
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT count(*) FROM version_count")).scalar()
    assert kept == 61
