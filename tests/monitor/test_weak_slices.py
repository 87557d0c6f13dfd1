"""Weak slices of stored records: route, command's facts, page."""

from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.slices.reader import slices_json, stored_slices
from tests.monitor.services import every_app
from tests.monitor.test_routes_data import Client
from tests.monitor.web.sample import MODEL, Sample, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slices")


@pytest.fixture(scope="module")
def sample(folder: Path) -> Any:
    made = build(folder, blocks=20)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="module")
def client(sample: Sample, folder: Path) -> Client:
    storage = StorageSettings(folder=str(folder))
    settings = Settings(base=folder, storage=storage, models={MODEL: ModelSettings()})
    return Client(every_app(sample.engine, sample.journal, settings))


def test_flags_of_faulty_cameras_are_a_weak_slice(client: Client, sample: Sample) -> None:
    found = client.get(f"/v1/models/{MODEL}/slices?outcome=flagged").json()
    assert found["records"] == sample.records
    assert found["expired"] == 0
    assert found["error"] == 0.05
    first = found["slices"][0]
    assert first["proven"]
    assert first["conditions"][0]["column"] == "attrs.device"
    assert first["low"] <= first["rate"] <= first["high"]
    assert first["rest"] < first["rate"]
    assert found["left_out"]["inputs.image"].endswith("is neither number, text nor truth value")
    assert client.get(f"/v1/models/{MODEL}/slices?outcome=flagged").json() == found  # the kept one


def test_columns_and_outcome_may_be_chosen(client: Client) -> None:
    found = client.get(f"/v1/models/{MODEL}/slices?outcome=margin_is_wide&column=outputs.label").json()
    assert found["outcome"] == "margin_is_wide"
    assert {one["column"] for each in found["slices"] for one in each["conditions"]} <= {"outputs.label"}
    assert found["left_out"] == {}


def test_a_search_is_what_a_loop_counts(sample: Sample) -> None:
    with sample.engine.connect() as connection:
        found = stored_slices(connection, sample.journal, model=MODEL, target="label", outcome="wrong")
        labelled = slices_json(found)
    assert labelled["note"] == "" or "a search needs 120" in labelled["note"]
    assert labelled["outcome"] == "wrong"


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("outcome=zebra", 422, "outcome 'zebra': wrong, flagged, or an assertion that flagged"),
        ("outcome=flagged&column=attrs.zebra", 422, "no record has a column 'attrs.zebra'"),
        ("since=soon", 422, "since"),
    ],
)
def test_slips_are_told(client: Client, query: str, status: int, detail: str) -> None:
    answer = client.get(f"/v1/models/{MODEL}/slices?{query}")
    assert answer.status_code == status, answer.text
    assert detail in answer.text


def test_too_few_records_say_how_many_are_needed(client: Client) -> None:
    found = client.get(f"/v1/models/{MODEL}/slices?outcome=flagged&since=2100-01-01T00:00:00Z").json()
    assert (found["slices"], found["rate"]) == ([], None)
    assert found["note"] == "0 records with a payload; a search needs 120"


def test_the_page_searches_once_an_outcome_is_chosen(client: Client) -> None:
    empty = client.get(f"/m/{MODEL}/slices").text
    assert "<option>flagged</option>" in empty
    assert "It takes some seconds." in empty
    shown = client.get(f"/m/{MODEL}/slices?outcome=flagged").text
    assert "attrs.device = till-" in shown
    assert "is neither number, text nor truth value" in shown
    assert "outcome &#39;zebra&#39;" in client.get(f"/m/{MODEL}/slices?outcome=zebra").text
