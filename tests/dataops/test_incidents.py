"""Flags become one incident per assertion, slice and onset, and each is told once."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from outrider.dataops.flags import incidents, stored_incidents
from outrider.dataops.flags.incidents import Figures, IncidentBook, IncidentRule, is_onset
from outrider.dataops.flags.rate_limit import FlagBudget, NewFlags, count_flags
from outrider.dataops.flags.version_mismatch import count_versions
from outrider.dataops.ledger.commit import Effects, apply, flag_id
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import write
from outrider.errors import NotFound, OutriderError
from tests.table_rows import append

START_US = 1_790_000_040_000_000
TARGETS = [WebhookTarget("http://127.0.0.1:9/", ("incident.opened", "incident.resolved"))]
RULE = IncidentRule(flags=5, factor=3.0, window_s=120.0, baseline_s=3600.0, quiet_s=300.0)


class Traffic:
    """Commits minutes of records of one slice, as the worker does."""

    def __init__(self, engine: Engine, rule: IncidentRule = RULE) -> None:
        self.engine = engine
        self.book = IncidentBook("m", rule, TARGETS)
        self.seq = 0
        self.now_us = START_US

    def minute(
        self, flags: int, *, level: str = "warning", records: int = 100, part: str = "a", assertion: str = "x"
    ) -> None:
        self.seq += 1
        self.now_us += 60_000_000
        effects = Effects(
            "m", "champion", self.seq, received_us=self.now_us, received={self.seq: self.now_us}
        )
        for row in range(records):
            key = f"r{self.seq}-{row}"
            append(effects.records, ("m", key, self.seq, row, 0, row, "1", None, part, "0", 1.0, False))
            if row < flags:
                identity = flag_id("m", "1", assertion, "rev", key)
                append(
                    effects.flags,
                    (
                        identity,
                        "m",
                        key,
                        assertion,
                        "rev",
                        "champion",
                        "1",
                        1.0,
                        level,
                        None,
                        self.seq,
                        row,
                        0,
                    ),
                )
        with write(self.engine) as connection:
            found = count_flags(connection, effects, FlagBudget())
            apply(connection, effects)
            self.book.follow(connection, found, now_us=self.now_us)

    def quiet(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)
        with write(self.engine) as connection:
            self.book.settle(connection, now_us=self.now_us)

    def incidents(self) -> list[stored_incidents.IncidentRow]:
        with self.engine.connect() as connection:
            return list(reversed(stored_incidents.list_incidents(connection)))

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        with self.engine.connect() as connection:
            found = connection.execute(text("SELECT event, payload FROM outbox ORDER BY rowid")).all()
        return [(row.event, json.loads(row.payload)["data"]) for row in found]


@pytest.fixture
def traffic(engine: Engine) -> Traffic:
    return Traffic(engine)


def test_the_rule_wants_enough_flags_and_an_unusual_share() -> None:
    usual = Figures(100, 10_000)
    assert not is_onset("warning", Figures(4, 10), usual, RULE)
    assert not is_onset("warning", Figures(30, 1000), usual, RULE)
    assert is_onset("warning", Figures(31, 1000), usual, RULE)
    assert is_onset("warning", Figures(5, 1000), Figures(0, 0), RULE)
    assert is_onset("critical", Figures(1, 1000), usual, RULE)
    assert not is_onset("info", Figures(1000, 1000), usual, RULE)


def test_a_critical_flag_opens_an_incident_that_is_told_once(traffic: Traffic) -> None:
    traffic.minute(1, level="critical")
    traffic.minute(40, level="critical")
    traffic.minute(0)
    found = traffic.incidents()
    assert [(row.assertion, row.slice, row.status, row.flags) for row in found] == [("x", "a", "open", 41)]
    assert found[0].first_record == "r1-0"
    assert [event for event, _ in traffic.told()] == ["incident.opened"]
    assert traffic.told()[0][1]["id"] == found[0].id


def test_single_flags_of_a_noisy_assertion_open_none_and_a_jump_opens_one(traffic: Traffic) -> None:
    for minute in range(30):
        traffic.minute(minute % 3)  # 1 % on average; the window of two minutes sees up to 3
    assert traffic.incidents() == []
    traffic.minute(12)
    assert [row.status for row in traffic.incidents()] == ["open"]


def test_slices_have_incidents_of_their_own(traffic: Traffic) -> None:
    traffic.minute(10, part="a")
    traffic.minute(10, part="b")
    assert [row.slice for row in traffic.incidents()] == ["a", "b"]


def test_slices_that_a_sender_invents_are_one_incident_beyond_the_hourly_number(engine: Engine) -> None:
    traffic = Traffic(engine, replace(RULE, per_hour=5))
    for number in range(40):
        traffic.minute(1, level="critical", part=f"clinic {number}")
    found = traffic.incidents()
    assert [row.slice for row in found] == [*(f"clinic {number}" for number in range(5)), ""]
    assert (found[-1].kind, found[-1].level, found[-1].flags) == ("flood", "critical", 35)
    assert "of x are told here together, from slice 'clinic 5' on" in found[-1].note
    opened = [told for event, told in traffic.told() if event == "incident.opened"]
    assert [told["slice"] for told in opened] == [row.slice for row in found]
    assert opened[-1]["note"] == found[-1].note
    traffic.quiet(301)
    assert {row.status for row in traffic.incidents()} == {"resolved"}
    traffic.now_us += 3_600_000_000
    traffic.minute(1, level="critical", part="another")
    assert [row.slice for row in traffic.incidents()][-1] == "another"


def test_of_very_many_slices_the_largest_are_looked_at(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "MOST_LOOKED", 3)
    book, asked = IncidentBook("m", RULE), []
    usual = incidents._figures

    def counted(connection: Connection, *key: Any) -> Figures:
        asked.append(key[2])
        return usual(connection, *key)

    monkeypatch.setattr(incidents, "_figures", counted)
    found = [
        NewFlags("x", "rev", "warning", f"s{number}", START_US, number, number, "r")
        for number in range(5, 15)
    ]
    with write(engine) as connection:
        for new in found:
            rows = {"model": "m", "slot": "champion", "minute": START_US, "slice": new.slice, "n": new.flags}
            connection.execute(
                text(
                    "INSERT INTO flag_count VALUES (:model, :slot, 'x', 'rev', :slice, :minute, '1', :n, :n)"
                ),
                rows,
            )
            connection.execute(
                text("INSERT INTO record_count VALUES (:model, :slice, :minute, '1', 100)"), rows
            )
        book.follow(connection, found, now_us=START_US)
    assert asked == ["s14", "s13", "s12"]
    opened = [row.slice for row in Traffic(engine).incidents()]
    assert sorted(opened) == ["s12", "s13", "s14"]


def test_a_flood_hides_no_other_assertion_and_ends_when_its_mute_does(engine: Engine) -> None:
    traffic = Traffic(engine, replace(RULE, per_hour=2))
    for number in range(4):
        traffic.minute(1, level="critical", part=str(number))
    traffic.minute(1, level="critical", part="a", assertion="y")
    assert [(row.assertion, row.kind) for row in traffic.incidents()][2:] == [
        ("further slices", "flood"),
        ("y", "flags"),
    ]
    (flood,) = [row for row in traffic.incidents() if row.kind == "flood"]
    with write(engine) as connection:
        stored_incidents.mute(
            connection, flood.id, until_us=traffic.now_us + 90_000_000, now_us=traffic.now_us
        )
    for number in range(4, 7):
        traffic.minute(1, level="critical", part=str(number))
    floods = [row for row in traffic.incidents() if row.kind == "flood"]
    assert [(row.status, row.flags) for row in floods] == [("resolved", 3), ("open", 2)]


def test_what_is_usual_again_resolves_although_flags_go_on(traffic: Traffic) -> None:
    for _ in range(20):
        traffic.minute(2)
    traffic.minute(40)
    for _ in range(4):
        traffic.minute(3)
    assert [row.status for row in traffic.incidents()] == ["open"]
    for _ in range(4):
        traffic.minute(3)
    found = traffic.incidents()
    assert [row.status for row in found] == ["resolved"]
    assert found[0].flags > 50  # those that came meanwhile belong to it
    assert [event for event, _ in traffic.told()] == ["incident.opened", "incident.resolved"]


def test_what_fires_from_the_start_is_told_once_and_then_usual(traffic: Traffic) -> None:
    for _ in range(30):
        traffic.minute(10)
    assert [row.status for row in traffic.incidents()] == ["resolved"]
    traffic.minute(80)
    assert [row.status for row in traffic.incidents()] == ["resolved", "open"]


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
        stored_incidents.acknowledge(connection, traffic.incidents()[0].id, note="Ada looks")
    traffic.minute(1, level="critical")
    assert [(row.status, row.flags) for row in traffic.incidents()] == [("acknowledged", 2)]
    traffic.quiet(400)
    found = traffic.incidents()[0]
    assert (found.status, found.note) == ("resolved", "Ada looks; quiet for 300 s")


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
            stored_incidents.acknowledge(connection, incident)
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
        self.named: set[str] = set()
        self.point("2", changed_us)

    def point(self, version: str, at_us: int) -> None:
        with write(self.engine) as connection:
            connection.execute(text("UPDATE model_version SET status = 'retired'"))
            connection.execute(
                text(
                    "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note)"
                    " VALUES ('m', :v, 'champion', '', 0, :at, '')"
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
        with write(self.engine) as connection:
            found = count_flags(connection, effects, FlagBudget())
            apply(connection, effects)
            count_versions(connection, effects, self.named)
            self.book.follow(connection, found, now_us=self.now_us)

    def found(self) -> list[tuple[str, str, str]]:
        rows = [row for row in self.incidents() if row.kind == incidents.VERSION]
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
    assert kept == 21
    assert "(others)" in traffic.found()[0][2]


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
