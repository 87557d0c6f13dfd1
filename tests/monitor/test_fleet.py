"""Fleet: verdicts of models in order, their hours, the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.stored_incidents import acknowledge
from outrider.dataops.ledger.losses import WRONG
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.series_tables import LossBlock, LossCount
from outrider.dataops.state.tables import AssertionRow, FlagCount, Incident, LiveRate, RecordCount, table_of
from outrider.monitor.views.fleet.reader import fleet_json, read_fleet
from tests.databases import migrated

HOUR_US = 3_600_000_000
NOW_US = 500_000 * HOUR_US + 1_800_000_000
RULE = AlarmRule()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = migrated(tmp_path / "state.db")
    yield made
    made.dispose()


def incident(model: str, opened_us: int, **more: Any) -> dict[str, Any]:
    """Stored incident of a model."""
    row = IncidentRow(
        id=f"inc_{model}_{opened_us}", model=model, assertion="blurred", slice="north", kind="flags",
        status="open", opened_us=opened_us, last_flag_us=opened_us, muted_until_us=0, resolved_us=None,
        flags=9, level="warning", first_record="r",
        note="1 % before, 20 % now", details={"action": "label"},
    )  # fmt: skip
    return {name: getattr(row, name) for name in row.__slots__} | more


def add(engine: Engine, *rows: dict[str, Any]) -> None:
    with write(engine) as connection:
        connection.execute(insert(table_of(Incident)), list(rows))


def judge(engine: Engine, model: str, level: str = "warning", **more: Any) -> None:
    """Assertion that judges a model."""
    row = {
        "model": model, "name": "blurred", "revision": "r", "kind": "assertion", "level": level,
        "description": "", "owner": "", "active": True, "first_seen_us": 0, "judged_us": NOW_US,
    }  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(table_of(AssertionRow)), [row | more])


def promoted(engine: Engine, model: str, version: str) -> None:
    """Champion of a model."""
    row = {"model": model, "version": version, "status": "champion", "source": "{}", "created_us": 0}
    with write(engine) as connection:
        connection.execute(insert(table_of(ModelVersion)), [row | {"changed_us": 0}])


def label(engine: Engine, at_us: int, *, blocks: int, days: int) -> None:
    """Labels of version 1 of model a, so many blocks a day until a time."""
    rows = []
    for block in range(blocks * days):
        of_block = at_us - (days - 1 - block // blocks) * 24 * HOUR_US
        rows.append({
            "model": "a", "version": "1", "block": block, "begun_us": of_block + block,
            "ended_us": of_block + block, "record_us": of_block, "newest_us": of_block, "observations": 50,
            "entities": "",
        })  # fmt: skip
    cells = [
        {
            "model": "a",
            "version": "1",
            "block": block,
            "slice": "",
            "weight": 0,
            "bucket": bucket,
            "records": few,
        }
        for block in range(blocks * days)
        for bucket, few in ((WRONG, 5), (0, 45))
    ]  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(table_of(LossBlock)), rows)
        connection.execute(insert(table_of(LossCount)), cells)


def count(
    engine: Engine,
    model: str,
    minute_us: int,
    records: int,
    flags: int,
    slot: str = "champion",
    entities: int | None = None,
) -> None:
    seen = records if entities is None else entities
    with write(engine) as connection:
        connection.execute(
            insert(table_of(RecordCount)).values(
                model=model, slice="", minute_us=minute_us, version="1", records=records, entities=seen
            )
        )
        connection.execute(
            insert(table_of(FlagCount)).values(
                model=model, slot=slot, assertion="blurred", revision="r", slice="", minute_us=minute_us,
                version="1", flags=flags, kept=flags, entities=min(flags, seen),
            )
        )  # fmt: skip


def test_the_worst_model_stands_first_and_the_oldest_of_its_incidents_speaks(engine: Engine) -> None:
    add(
        engine,
        incident("a", NOW_US - 10),
        incident("b", NOW_US - 30, level="critical"),
        incident("b", NOW_US - 40),
        incident("c", NOW_US - 50),
        incident("d", NOW_US - 60, status="muted", muted_until_us=NOW_US + 1),
        incident("e", NOW_US - 70, status="resolved", resolved_us=NOW_US),
    )
    count(engine, "e", NOW_US - HOUR_US, 1_000, 100)
    judge(engine, "e")
    with engine.connect() as connection:
        lines = read_fleet(connection, ["a", "b", "c", "d", "e", "f"], RULE, now_us=NOW_US)
    assert [(line.model, line.verdict, line.current) for line in lines] == [
        ("b", "critical", 2), ("c", "warning", 1), ("a", "warning", 1), ("d", "known", 1), ("e", "well", 0),
        ("f", "waiting", 0),
    ]  # fmt: skip
    assert lines[0].incident is not None
    assert lines[0].incident.level == "critical"
    assert [line.next_step for line in lines[-2:]] == ["", "send records"]
    facts = fleet_json(lines)
    assert facts[1]["next_step"] == "label some of its records"
    assert (facts[1]["about"], facts[1]["slice"]) == ("blurred", "north")
    assert facts[-1]["since"] is facts[-1]["last_record"] is None


MORE = "send more records: {} entities came in a day"
NAME_ONE = "name assertions or live tests that judge it"


@pytest.mark.parametrize(
    ("records", "flags", "level", "verdict", "step"),
    [
        (16_000, 16_000, "warning", "unjudged", "look at blurred: it fires on 100% of the entities of a day"),
        (16_000, 9_000, "critical", "unjudged", "look at blurred: it fires on 56% of the entities of a day"),
        (2, 0, "warning", "learning", MORE.format(2)),
        (60, 0, "warning", "learning", MORE.format(60)),
        (2, 0, "critical", "well", ""),  # its first flag opens an incident
        (1_000, 0, "warning", "well", ""),
        (16_000, 400, "warning", "well", ""),
        (16_000, 7_900, "warning", "well", ""),
        (16_000, 16_000, "info", "unjudged", NAME_ONE),
        (16_000, 16_000, "", "unjudged", NAME_ONE),
    ],
)
def test_model_is_well_only_where_a_fault_could_have_been_found(
    engine: Engine, records: int, flags: int, level: str, verdict: str, step: str
) -> None:
    count(engine, "a", NOW_US - HOUR_US, records, flags)
    if level:
        judge(engine, "a", level)
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert (line.verdict, line.next_step) == (verdict, step)
    assert line.sight is not None
    assert bool(line.sight.sees) is (verdict != "unjudged")


def test_model_of_one_entity_is_not_well_however_many_records_it_sends(engine: Engine) -> None:
    count(engine, "a", NOW_US - HOUR_US, 16_000, 0, entities=1)
    judge(engine, "a")
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert (line.verdict, line.next_step) == ("learning", "send more records: 1 entities came in a day")


@pytest.mark.parametrize(
    ("more", "verdict", "step"),
    [
        ({"judged_us": 0}, "learning", "send records for blurred to judge: it has not judged yet"),
        (
            {"suspended_until_us": NOW_US + 1, "suspension": "noisy"}, "unjudged",
            "resume blurred: it is suspended",
        ),
        ({"suspended_until_us": NOW_US - 1, "suspension": "noisy"}, "well", ""),
    ],
)  # fmt: skip
def test_an_assertion_that_does_not_judge_makes_no_model_well(
    engine: Engine, more: dict[str, Any], verdict: str, step: str
) -> None:
    count(engine, "a", NOW_US - HOUR_US, 16_000, 400)
    judge(engine, "a", **more)
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert (line.verdict, line.next_step) == (verdict, step)


@pytest.mark.parametrize(
    ("hours_ago", "blocks", "days", "verdict"),
    [
        (1, 1, 1, "learning"),
        (1, 20, 1, "learning"),  # how days differ is not known yet
        (1, 20, 14, "well"),
        (30, 20, 14, "unjudged"),
    ],
)
def test_labels_judge_a_model_once_they_are_enough_and_of_today(
    engine: Engine, hours_ago: int, blocks: int, days: int, verdict: str
) -> None:
    at_us = NOW_US - hours_ago * HOUR_US
    count(engine, "a", at_us, 16_000, 0)
    label(engine, at_us, blocks=blocks, days=days)
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.verdict == verdict


@pytest.mark.parametrize(
    ("asked", "high", "verdict"), [(0, 1.0, "learning"), (3, 0.9, "learning"), (900, 0.02, "well")]
)
def test_a_live_test_judges_a_model_once_it_was_asked_enough(
    engine: Engine, asked: int, high: float, verdict: str
) -> None:
    count(engine, "a", NOW_US - HOUR_US, 16_000, 0)
    judge(engine, "a", kind="live_test")
    row = {
        "model": "a", "test": "blurred", "revision": "r", "version": "1", "asked": asked, "failed": 0,
        "rate": 0.0, "low": 0.0, "high": high, "tolerance": 0.01, "updated_us": NOW_US,
        "state": "",
    }  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(table_of(LiveRate)), [row])
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.verdict == verdict


@pytest.mark.parametrize(
    ("level", "more"),
    [
        ("warning", {"updated_us": NOW_US - 25 * HOUR_US}),
        ("warning", {"version": "0"}),  # the champion was asked nothing
        ("critical", {"updated_us": NOW_US - 25 * HOUR_US}),  # no assertion: its first failure opens nothing
    ],
)
def test_a_live_test_that_is_silent_makes_no_model_well(
    engine: Engine, level: str, more: dict[str, Any]
) -> None:
    count(engine, "a", NOW_US - HOUR_US, 16_000, 0)
    judge(engine, "a", level, kind="live_test")
    row = {
        "model": "a", "test": "blurred", "revision": "r", "version": "1", "asked": 900, "failed": 0,
        "rate": 0.0, "low": 0.0, "high": 0.02, "tolerance": 0.01, "updated_us": NOW_US, "state": "",
    }  # fmt: skip
    promoted(engine, "a", "1")
    with write(engine) as connection:
        connection.execute(insert(table_of(LiveRate)), [row | more])
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.verdict == "learning"


def test_a_rule_makes_no_model_well_to_which_nothing_comes(engine: Engine) -> None:
    count(engine, "a", NOW_US - 25 * HOUR_US, 16_000, 0)
    judge(engine, "a", "critical")
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.verdict == "learning"


@pytest.mark.parametrize(("champion", "verdict"), [("1", "well"), ("2", "unjudged")])
def test_labels_of_another_version_make_no_model_well(engine: Engine, champion: str, verdict: str) -> None:
    count(engine, "a", NOW_US - HOUR_US, 16_000, 0)
    label(engine, NOW_US - HOUR_US, blocks=20, days=14)
    promoted(engine, "a", champion)
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.verdict == verdict


@pytest.mark.parametrize(
    ("own", "causes", "expected"),
    [
        ("", ["south"], "south"),
        ("", ["a", "b", "b", "c", "d"], "a, b, c …"),
        ("", ["", "south"], ""),
        ("", [], ""),
        ("north", ["south"], "north"),
    ],
)
def test_slices_that_explain_an_incident_of_all_records_are_named(
    engine: Engine, own: str, causes: list[str], expected: str
) -> None:
    details = {"explained_by": [{"slice": part} for part in causes]}
    add(engine, incident("a", NOW_US - 10, slice=own, details=details))
    with engine.connect() as connection:
        assert [line.whom for line in read_fleet(connection, ["a"], RULE, now_us=NOW_US)] == [expected]


def test_open_drift_is_a_ticket_and_stands_behind_what_pages(engine: Engine) -> None:
    add(
        engine,
        incident("a", NOW_US - 20, level="info", kind="drift"),
        incident("b", NOW_US - 30, level="info", kind="drift"),
        incident("b", NOW_US - 10),
    )
    with engine.connect() as connection:
        lines = read_fleet(connection, ["a", "b"], RULE, now_us=NOW_US)
    assert [(line.model, line.verdict) for line in lines] == [("b", "warning"), ("a", "ticket")]


def test_an_acknowledged_incident_is_known(engine: Engine) -> None:
    row = incident("a", NOW_US - 10)
    add(engine, row)
    with write(engine) as connection:
        acknowledge(connection, row["id"], now_us=NOW_US)
    with engine.connect() as connection:
        assert [line.verdict for line in read_fleet(connection, ["a"], RULE, now_us=NOW_US)] == ["known"]


def test_hours_hold_what_a_loop_counts(engine: Engine) -> None:
    count(engine, "a", NOW_US, 8, 2)
    count(engine, "a", NOW_US - 23 * HOUR_US, 10, 5)
    count(engine, "a", NOW_US - 24 * HOUR_US, 99, 99)  # before the first hour
    count(engine, "a", NOW_US + 2 * HOUR_US, 99, 99)  # a clock that runs ahead
    count(engine, "a", NOW_US - 60_000_000, 4, 4, slot="2")  # a challenger's flags
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.records.tolist() == [10, *[0] * 22, 12]
    facts = fleet_json([line])[0]
    assert facts["flags_per_record"] == [0.5, *[None] * 22, pytest.approx(2 / 12)]


def test_records_of_a_clock_that_was_set_back_are_not_the_last(engine: Engine) -> None:
    minute_us = NOW_US - NOW_US % 60_000_000
    count(engine, "a", minute_us - HOUR_US, 10, 1)
    count(engine, "a", minute_us + 24 * HOUR_US, 10, 1)
    with engine.connect() as connection:
        (line,) = read_fleet(connection, ["a"], RULE, now_us=NOW_US)
    assert line.last_record_us == minute_us - HOUR_US
