"""Drift of stored profiles: route, long reads in a process of their own, page."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.assertions.times import utc_text
from outrider.dataops.ledger.profiles import LayoutRow, ProfileRow
from outrider.dataops.ledger.stored_profiles import insert_layouts, insert_profiles
from outrider.dataops.models import registry
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.drift import routes
from outrider.monitor.views.drift.reader import DriftReader, DriftRequest
from tests.databases import migrated
from tests.dataops.test_datasets import commit
from tests.model_sources import FUNCTION
from tests.monitor.services import app_of, service_over
from tests.monitor.test_routes_data import Client

HOUR_US = 3_600_000_000
START = 1_790_000_000_000_000 // HOUR_US * HOUR_US
HOURS, ROWS = 26, 400
LAST = START + HOURS * HOUR_US
MODEL = "m"


def traffic(hour: int) -> Batch:
    """Records of an hour; in the last people are older, and a plan is written otherwise."""
    rng = np.random.default_rng(hour)
    is_late = hour == HOURS - 1
    return Batch.from_columns(
        {
            "inputs.age": rng.normal(57 if is_late else 41, 9, ROWS),
            "inputs.income": np.exp(rng.normal(10, 1, ROWS)),
            "inputs.plan": rng.choice(["basic", "Pro"] if is_late else ["Basic", "Pro"], ROWS),
            "outputs.score": rng.random(ROWS),
        },
        model=MODEL,
    )


def store(engine: Engine) -> ProfileLayout:
    """Hours of profiles, the last of them in minutes and of another version."""
    layout = ProfileLayout.fit(Batch.concat([traffic(hour) for hour in range(HOURS - 1)]))
    rows = []
    for hour in range(HOURS):
        is_late, batch = hour == HOURS - 1, traffic(hour)
        cut = 60 if is_late else 3600
        for part in range(10 if is_late else 1):
            piece = batch.slice(part * 40, 40) if is_late else batch
            profile = Profile.of(piece, layout)
            start = START + hour * HOUR_US + part * 59 // 9 * 60_000_000
            version = "2" if is_late else "1"
            own = "north" if part % 2 else "south"
            rows.append(
                ProfileRow(
                    cut, start, "champion", version, own, hour, layout.digest, piece.rows, profile.to_bytes()
                )
            )
    with write(engine) as connection:
        insert_layouts(connection, MODEL, [LayoutRow(layout.digest, 1, "test", 1, layout.to_json())])
        insert_profiles(connection, MODEL, rows)
    return layout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drift")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    made = migrated(folder / "state.db")
    store(made)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    storage = StorageSettings(folder=str(folder))
    models = {name: ModelSettings() for name in (MODEL, "fresh")}
    return Settings(base=folder, storage=storage, models=models)


@pytest.fixture(scope="module")
def client(engine: Engine, settings: Settings) -> Client:
    return Client(app_of(service_over(engine, settings=settings), routes))


def test_the_last_hour_is_held_against_the_day_before(client: Client) -> None:
    found = client.get(f"/v1/models/{MODEL}/drift").json()
    assert found["model"] == MODEL
    assert (found["reference"]["records"], found["current"]["records"]) == (24 * ROWS, ROWS)
    assert found["reference"]["until"] == found["current"]["since"]
    assert found["note"] == "outputs are of version 1 in the reference and of 2 in the current window"
    words = {each["column"]: each["words"] for each in found["columns"] if each["status"] == "drift"}
    assert set(words) == {"inputs.age", "inputs.plan"}
    assert words["inputs.age"].startswith("median 4")
    assert "(`Basic` in other letters)" in words["inputs.plan"]
    age = next(each for each in found["columns"] if each["column"] == "inputs.age")
    assert len(age["distribution"]["reference"]) == 30


def test_windows_may_be_chosen(client: Client) -> None:
    until = utc_text(START + 20 * HOUR_US)
    since = utc_text(START + 18 * HOUR_US)
    earlier = client.get(f"/v1/models/{MODEL}/drift?since={since}&until={until}&reference=10h").json()
    assert not earlier["is_drift"]
    assert (earlier["reference"]["records"], earlier["current"]["records"]) == (10 * ROWS, 2 * ROWS)
    half_past = utc_text(START + 37 * HOUR_US // 2)
    part = client.get(f"/v1/models/{MODEL}/drift?since={half_past}&until={until}&reference=10h").json()
    assert (part["reference"]["records"], part["current"]["records"]) == (9 * ROWS, 2 * ROWS)  # no hour twice
    span = f"{utc_text(START)}..{utc_text(START + 8 * HOUR_US)}"
    fixed = client.get(f"/v1/models/{MODEL}/drift?since={since}&until={until}&reference={span}").json()
    assert (fixed["reference"]["records"], fixed["is_decided"]) == (8 * ROWS, True)
    quarter = utc_text(LAST - HOUR_US // 4)
    minutes = client.get(f"/v1/models/{MODEL}/drift?since={quarter}&reference=45m").json()
    assert (minutes["reference"]["records"], minutes["current"]["records"]) == (7 * 40, 3 * 40)
    assert not minutes["is_drift"]
    assert not minutes["problems"]
    ever = client.get(f"/v1/models/{MODEL}/drift?since={quarter}&reference=999999999w").json()
    assert ever["reference"]["records"] == 25 * ROWS + 7 * 40
    half = client.get(f"/v1/models/{MODEL}/drift?slice=south").json()
    assert half["current"]["records"] == ROWS // 2
    none = client.get(f"/v1/models/{MODEL}/drift?version=3").json()
    assert none["problems"][0] == "reference: at least 30 effective records expected, found 0"
    assert not none["is_drift"]


@pytest.mark.parametrize(
    ("query", "field", "sentence"),
    [
        ("since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z", "since", "a time before until expected"),
        ("reference=often", "reference", "dataset, a time such as 24h or 7d, or SINCE..UNTIL"),
        ("reference=2026-01-01..2026-01-02", "reference", "in ISO 8601 with a zone expected"),
        ("reference=2030-01-02T00:00Z..2030-01-01T00:00Z", "reference", "a begin before its end expected"),
        (f"reference={utc_text(LAST - 1)}..{utc_text(LAST + 1)}", "reference", "other times than those"),
        ("reference=dataset", "reference", "found none that the champion of m learned from"),
        ("reference=dataset&slice=north", "reference", "a span of traffic expected beside slice"),
        ("reference=99999999999999999999d", "reference", "dataset, a time such as"),
    ],
)
def test_what_cannot_be_is_said(client: Client, query: str, field: str, sentence: str) -> None:
    answer = client.get(f"/v1/models/{MODEL}/drift?{query}")
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert sentence in answer.json()["detail"]


def test_a_fresh_model_has_no_verdict_and_an_unknown_one_none_at_all(client: Client) -> None:
    found = client.get("/v1/models/fresh/drift").json()
    assert (found["is_drift"], found["is_decided"], found["columns"]) == (False, False, [])
    assert client.get("/v1/models/other/drift").status_code == 404


def test_an_hour_is_held_against_the_same_hours_of_days_that_have_a_rhythm(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    rng = np.random.default_rng(0)
    hours = {
        24 * day + hour: Batch.from_columns({"inputs.load": rng.normal(40 + 20 * hour, 9, 300)}, model=MODEL)
        for day in range(8)
        for hour in range(3)
    }
    layout = ProfileLayout.fit(Batch.concat(list(hours.values())))
    rows = [
        ProfileRow(
            3600, START + hour * HOUR_US, "champion", "1", "", hour, layout.digest, batch.rows,
            Profile.of(batch, layout).to_bytes(),
        )
        for hour, batch in hours.items()
    ]  # fmt: skip
    with write(engine) as connection:
        insert_layouts(connection, MODEL, [LayoutRow(layout.digest, 1, "test", 1, layout.to_json())])
        insert_profiles(connection, MODEL, rows)
    reader = DriftReader(service_over(engine, folder=tmp_path))
    week = reader.read(DriftRequest(MODEL, reference="7d"))
    assert week["sentence"].startswith("no drift shown in 1 columns")
    assert week["sentence"].endswith("(2,100 reference and 300 current records, the same hours of 7 days)")
    few = reader.read(DriftRequest(MODEL, reference="4d"))  # four hours are fewer than five blocks
    assert "the same hours" not in few["sentence"]
    engine.dispose()


def test_long_reads_in_a_process_of_their_own_say_the_same(
    engine: Engine, settings: Settings, client: Client
) -> None:
    service = service_over(engine, settings=settings)
    service._readers[DriftReader] = DriftReader(service, most_here=0)
    apart = Client(app_of(service, routes))
    path = f"/v1/models/{MODEL}/drift?reference=20h"
    assert apart.get(path).json() == client.get(path).json()


def test_training_data_are_a_reference(tmp_path: Path) -> None:
    made = migrated(tmp_path / "state.db")
    store(made)
    objects = LocalObjects(tmp_path / "objects")
    rows = Batch.concat([traffic(hour) for hour in range(5)])
    named = rows.with_columns({"id": [f"a{n}" for n in range(rows.rows)]})
    newest = commit(made, objects, named)
    with write(made) as connection:
        registry.register(
            connection, model=MODEL, version="1", status="champion", digest="0", weights=None, now_us=1,
            made_from=[("dataset", newest.id, "fresh")], source=FUNCTION,
        )  # fmt: skip
    storage = StorageSettings(folder=str(tmp_path))
    own = Settings(base=tmp_path, storage=storage, models={MODEL: ModelSettings()})
    client = Client(app_of(service_over(made, settings=own), routes))
    found = client.get(f"/v1/models/{MODEL}/drift?reference=dataset").json()
    assert found["reference"]["name"] == f"dataset {newest.id}"
    assert found["reference"]["records"] == rows.rows
    drifting = {each["column"] for each in found["columns"] if each["status"] == "drift"}
    assert drifting == {"inputs.age", "inputs.plan"}
    made.dispose()


def test_the_page_shows_columns_worst_first(client: Client) -> None:
    shown = client.get(f"/m/{MODEL}/drift").text
    assert "2 of 4 columns drift" in shown
    assert shown.index("inputs.age") < shown.index("inputs.income")
    assert shown.count("<svg") >= 4
    assert "of version 1 in the reference" in shown
    assert 'aria-current="page">Drift' in shown
    span = f"since={utc_text(START + 18 * HOUR_US)}&until={utc_text(START + 20 * HOUR_US)}"
    earlier = client.get(f"/m/{MODEL}/drift?{span}&reference=10h").text
    assert "2026-" in earlier
    assert "2 of 4 columns drift" not in earlier
    assert "Invalid isoformat" in client.get(f"/m/{MODEL}/drift?since=x&until=y").text
    assert "a time such as 24h" in client.get(f"/m/{MODEL}/drift?reference=often").text
    assert "No profile is stored yet" in client.get("/m/fresh/drift").text
