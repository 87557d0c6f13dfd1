"""Watched streams: evidence, what could be found, standing incidents; route, page, command of them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.stored_incidents import acknowledge, list_incidents, mute
from outrider.dataops.ledger.losses import FirstOutcome, count_losses
from outrider.dataops.state.database import write
from outrider.dataops.state.tables import AssertionRow, FlagCount, Incident, RecordCount, table_of
from outrider.errors import NotFound
from outrider.monitor.views.alarms import reader as alarms
from outrider.monitor.views.alarms.reader import AlarmReader, AlarmReport
from outrider.monitor.views.series.answer import SeriesRequest, series_json
from outrider.monitor.views.series.counts import SeriesCut
from tests.asgi import get
from tests.databases import migrated
from tests.monitor.services import every_app, service_over
from tests.monitor.test_fleet import incident

MINUTE_US = 60_000_000
NOW_US = 1_790_000_040_000_000 // MINUTE_US * MINUTE_US
HOURS = 6
MODEL = "m"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = migrated(tmp_path / "state.db")
    yield made
    made.dispose()


@pytest.fixture
def reader(engine: Engine, tmp_path: Path) -> AlarmReader:
    return AlarmReader(service_over(engine, models=(MODEL,), folder=tmp_path))


def offer(engine: Engine, name: str, level: str = "warning", **more: Any) -> None:
    row: dict[str, Any] = {
        "model": MODEL, "name": name, "revision": "r", "kind": "assertion", "level": level, "description": "",
        "owner": "", "active": True, "suspended_until_us": 0, "first_seen_us": 0,
    }  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(table_of(AssertionRow)).values(row | more))


def count(
    engine: Engine, part: str, seen: int, flagged: int, late: int | None = None, name: str = "x"
) -> None:
    """Minutes of hours up to now; in the last ten ``late`` are flagged."""
    minutes = [NOW_US - (at + 1) * MINUTE_US for at in range(60 * HOURS)]
    own = {"model": MODEL, "slice": part, "version": "1"}
    flags = own | {"slot": "champion", "assertion": name, "revision": "r"}
    with write(engine) as connection:
        records = [own | {"minute_us": at, "records": seen, "entities": seen} for at in minutes]
        connection.execute(insert(table_of(RecordCount)), records)
        hits = [late if late is not None and at < 10 else flagged for at in range(len(minutes))]
        rows = [
            flags | {"minute_us": minute, "flags": n, "kept": n, "entities": n}
            for minute, n in zip(minutes, hits, strict=True)
        ]
        connection.execute(insert(table_of(FlagCount)), rows)


def by_name(report: AlarmReport) -> dict[tuple[str, str, str | None], dict[str, Any]]:
    return {(row["kind"], row["name"], row["slice"]): row for row in report["streams"]}


def test_a_quiet_stream_says_what_would_be_found_and_few_records_that_nothing_would(
    engine: Engine, reader: AlarmReader
) -> None:
    offer(engine, "x")
    count(engine, "north", 20, 1)
    with write(engine) as connection:
        few = {"model": MODEL, "slice": "south", "version": "1", "minute_us": NOW_US - MINUTE_US}
        connection.execute(insert(table_of(RecordCount)).values(few | {"records": 1, "entities": 1}))
    report = reader.read(MODEL, now_us=NOW_US)
    found = by_name(report)
    north, south = found["flags", "x", "north"], found["flags", "x", "south"]
    assert north["status"] == "watched"
    assert 0.05 < north["smallest_share"] < 0.2
    assert north["now"]["seen"] == 1200
    assert north["before"]["share"] == pytest.approx(0.05)
    assert south["status"] == "too_few"
    assert south["smallest_share"] is None
    assert south["text"].startswith("too few: 1 entity in an hour")
    assert report["standing"] == 0
    assert "had too few records" in report["sentence"]
    alphas = [row["alpha"] for row in report["streams"] if row["alpha"] is not None]
    assert math.fsum(alphas) == pytest.approx(0.01)


def test_evidence_is_that_of_the_worker_and_the_nearest_stands_first(
    engine: Engine, reader: AlarmReader
) -> None:
    offer(engine, "x")
    offer(engine, "y")
    count(engine, "north", 20, 1, late=4)
    report = reader.read(MODEL, now_us=NOW_US)
    first = report["streams"][0]
    assert (first["name"], first["status"]) == ("x", "watched")
    assert 0.0 < first["nearness"] < 1.0
    assert f"of {first['needed']:,.0f} : 1 needed" in first["text"]
    assert report["sentence"].endswith("nearest to an alarm: x")
    book = IncidentBook(MODEL, AlarmRule())
    with write(engine) as connection:
        book.settle(connection, now_us=NOW_US)
        assert list_incidents(connection, now_us=NOW_US) == []


def test_a_stream_whose_evidence_is_enough_is_one_that_the_worker_tells(
    engine: Engine, reader: AlarmReader
) -> None:
    offer(engine, "x")
    count(engine, "north", 20, 1, late=12)
    before = reader.read(MODEL, now_us=NOW_US)["streams"][0]
    assert before["evidence"] > before["needed"]
    with write(engine) as connection:
        IncidentBook(MODEL, AlarmRule()).settle(connection, now_us=NOW_US)
        (row,) = list_incidents(connection, now_us=NOW_US)
    report = reader.read(MODEL, now_us=NOW_US)
    first = report["streams"][0]
    assert (first["status"], first["incident"], first["nearness"]) == ("standing", row.id, 1.0)
    assert report["standing"] == 1
    with write(engine) as connection:
        mute(connection, row.id, until_us=NOW_US + 1, now_us=NOW_US)
    report = reader.read(MODEL, now_us=NOW_US)
    assert (report["streams"][0]["status"], report["standing"]) == ("muted", 0)


def test_read_shows_rare_classes_with_how_many_lost_labels_would_be_an_alarm(
    engine: Engine, reader: AlarmReader
) -> None:
    """Of 40 labels each of two classes of one in fifty, and of three of a third, a label a minute."""
    offer(engine, "x")
    rng = np.random.default_rng(2)
    names = rng.permutation(np.repeat(["usual", "fraud", "theft", "spam"], [1917, 40, 40, 3]))
    with write(engine) as connection:
        count_losses(connection, MODEL, [
            FirstOutcome(f"r{us}", "1", "", None, us, us, 1.0, bool(rng.random() > 0.2), math.nan, str(name))
            for us, name in zip(range(0, len(names) * MINUTE_US, MINUTE_US), names, strict=True)
        ])  # fmt: skip
    found = {row["slice"]: row for row in reader.read(MODEL, now_us=NOW_US)["streams"] if row["slice"]}
    assert {name: row["status"] for name, row in found.items()} == {
        "label=fraud": "watched", "label=theft": "watched", "label=spam": "too_few",
    }  # fmt: skip
    assert "of 40 labels answered right" in found["label=fraud"]["text"]
    assert "more, all wrong, would be an alarm" in found["label=fraud"]["text"]
    assert found["label=spam"]["text"].startswith("too few: ")


def test_incidents_of_every_kind_stand_with_a_stream_of_their_own(
    engine: Engine, reader: AlarmReader
) -> None:
    offer(engine, "strict", "critical")
    offer(engine, "resting", suspended_until_us=NOW_US + MINUTE_US)
    count(engine, "", 5, 0)
    with write(engine) as connection:
        rows = [
            incident(MODEL, 1, id="a", kind="drift", assertion="inputs.age", slice="", level="info"),
            incident(MODEL, 2, id="b", kind="flags", assertion="strict", slice="", level="critical"),
            incident("", 3, id="c", kind="clock", assertion="service clock", slice=""),
        ]
        connection.execute(insert(table_of(Incident)), rows)
        acknowledge(connection, "b", now_us=NOW_US)
    found = by_name(reader.read(MODEL, now_us=NOW_US))
    assert {row["incident"] for row in found.values() if row["status"] == "standing"} == {"a", "b", "c"}
    assert found["flags", "strict", None]["incident"] == "b"
    assert found["flags", "resting", None]["status"] == "suspended"
    assert found["silence", "records", None]["status"] == "watched"
    assert found["silence", "labels", None]["text"] == "too few: no labels yet"


def test_silence_has_a_rhythm_after_an_hour_and_evidence_once_nothing_comes(
    engine: Engine, reader: AlarmReader
) -> None:
    with write(engine) as connection:
        row = {"model": MODEL, "slice": "", "version": "1", "records": 5, "entities": 5}
        young = [row | {"minute_us": NOW_US - at * MINUTE_US} for at in range(1, 11)]
        connection.execute(insert(table_of(RecordCount)), young)
    key = "silence", "records", None
    assert by_name(reader.read(MODEL, now_us=NOW_US))[key]["text"] == "too few: no rhythm is known yet"
    with write(engine) as connection:
        old = [row | {"minute_us": NOW_US - at * MINUTE_US} for at in range(11, 600)]
        connection.execute(insert(table_of(RecordCount)), old)
    found = [by_name(reader.read(MODEL, now_us=NOW_US + at * MINUTE_US))[key] for at in (0, 3, 30)]
    assert [row["status"] for row in found] == ["watched"] * 3
    assert found[0]["nearness"] == 0.0
    assert 0.0 < found[1]["nearness"] < found[2]["nearness"]
    assert found[2]["evidence"] > found[2]["needed"]


def test_the_route_answers_by_its_type_and_knows_its_models(engine: Engine, reader: AlarmReader) -> None:
    offer(engine, "x")
    count(engine, "", 5, 0)
    app = every_app(engine, models=(MODEL,), readers={AlarmReader: reader})
    answer = get(app, f"/v1/models/{MODEL}/alarms?limit=1")
    assert answer.status_code == 200
    assert len(answer.json()["streams"]) == 1
    assert get(app, "/v1/models/other/alarms").status_code == 404
    with pytest.raises(NotFound, match="outrider fleet"):
        reader.read("other", now_us=NOW_US)


def test_what_is_kept_is_bounded_and_changes_nothing(
    engine: Engine, reader: AlarmReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(engine, "x")
    count(engine, "north", 20, 1, late=4)
    kept = [reader.read(MODEL, now_us=NOW_US + at * MINUTE_US) for at in range(3)]
    monkeypatch.setattr(alarms, "MOST_HOURS", 0)
    assert [reader.read(MODEL, now_us=NOW_US + at * MINUTE_US) for at in range(3)] == kept
    assert kept[0] != kept[2]


def test_the_series_of_a_page_counts_entities_as_the_decision_does(
    engine: Engine, reader: AlarmReader
) -> None:
    offer(engine, "x")
    count(engine, "north", 20, 1, late=4)
    count(engine, "south", 5, 0)
    asked = SeriesRequest(since_us=NOW_US - 60 * MINUTE_US, until_us=NOW_US, now_us=NOW_US)
    found = by_name(reader.read(MODEL, now_us=NOW_US))
    for part in (None, "north"):
        cut = SeriesCut(MODEL, slice=part, name="x")
        with engine.connect() as connection:
            (row,) = series_json(connection, cut, asked, measures=("flagged",))["series"]
        assert row["whole"]["value"] == pytest.approx(found["flags", "x", part]["now"]["share"])
        assert row["whole"]["records"] == found["flags", "x", part]["now"]["seen"]
    assert row["value"][-1] == pytest.approx(0.2)


def test_series_of_a_page_shows_no_share_above_all_entities(engine: Engine) -> None:
    """What another version had seen in a minute is flagged of this one, and is none of its entities."""
    count(engine, "", 4, 9)
    asked = SeriesRequest(since_us=NOW_US - 60 * MINUTE_US, until_us=NOW_US, now_us=NOW_US)
    with engine.connect() as connection:
        (row,) = series_json(connection, SeriesCut(MODEL, name="x"), asked, measures=("flagged",))["series"]
    assert (row["whole"]["value"], row["whole"]["high"], set(row["value"])) == (1.0, 1.0, {1.0})
