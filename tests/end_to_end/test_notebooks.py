"""docs/notebooks.md against a served model: its blocks run in order, as one notebook would."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import outrider
from outrider.behavioral_tests import MFT
from outrider.connection import LEVELS, Connection
from outrider.errors import ConfigError, NotFound, ServerError
from outrider.model_reference import load_predictor

from .service import Service, write_project

GUIDE = Path(__file__).parents[2] / "docs" / "notebooks.md"
ROWS = 40
UTC = "datetime64[us, UTC]"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(write_project(tmp_path_factory.mktemp("notebook"))) as running:
        for start in range(0, ROWS, 20):
            records = [
                {"id": f"r/{row} ü", "inputs": {"x": row / ROWS} | ({"n": row} if start else {})}
                for row in range(start, start + 20)
            ]
            assert running.post(records).status_code == 202
        running.wait_judged(ROWS)
        table = pa.table({"id": ["a", "b", "c"], "x": [0.1, 0.2, 0.3], "label": [0, 0, 1]})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answer = running.client.post(
            "/v1/datasets/train/versions",
            params={"model": "toy"},
            content=sink.getvalue(),
            headers={"content-type": "application/vnd.apache.arrow.stream"},
        )
        assert answer.status_code == 201, answer.text
        yield running


@pytest.fixture
def connection(service: Service, monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setenv("OUTRIDER_URL", str(service.client.base_url))
    monkeypatch.setenv("OUTRIDER_KEY", service.client.headers["authorization"].removeprefix("Bearer "))
    found = outrider.connect()
    assert isinstance(found, Connection)
    return found


def test_the_guide_runs(connection: Connection) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    flags = names["flags"]
    assert isinstance(flags, pd.DataFrame)
    assert set(flags["record_id"]) == {f"r/{row} ü" for row in (37, 38, 39)}


def test_flags_have_types_times_and_links(connection: Connection, service: Service) -> None:
    flags = connection.flags()
    assert len(flags) > 3
    assert flags["ts"].dtype == UTC
    assert flags["level"].dtype == LEVELS
    assert flags["review"].dtype == "boolean"
    assert flags["ts"].is_monotonic_decreasing
    assert len(connection.flags(limit=2)) == 2
    none = connection.flags(assertion="no such assertion")
    assert none.empty
    assert list(none.columns) == list(flags.columns)
    assert [none[name].dtype for name in ("ts", "level", "review")] == [UTC, LEVELS, "boolean"]
    assert (connection.flags(level="critical")["assertion"] == "too_high").all()
    assert len(connection.flags(reviewed=False)) == len(flags)
    page = service.client.get(str(flags["permalink"].iloc[0]), follow_redirects=True)
    assert page.status_code in (200, 401)  # a browser has a session, this client a key
    record = connection.record(str(flags["record_id"].iloc[0]))
    assert record["flags"]


def test_more_flags_than_a_page_holds_are_fetched(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = connection.flags(limit=None)
    monkeypatch.setattr("outrider.connection._PAGE", 2)
    pd.testing.assert_frame_equal(connection.flags(limit=None), whole)
    assert len(connection.flags(limit=3)) == 3


def test_records_keep_their_types_over_blocks(connection: Connection) -> None:
    records = connection.records()
    assert len(records) == ROWS
    assert records["ts"].dtype == UTC
    assert records["inputs.x"].tolist() == [row / ROWS for row in range(ROWS)]
    assert records["inputs.n"].dtype == "Int64"
    assert records["inputs.n"].isna().sum() == 20
    first = connection.records(limit=1)
    assert 0 < len(first) < ROWS
    assert len(first) + len(connection.records(after=first.attrs["after"])) == ROWS


def test_datasets_models_and_the_rest_are_frames(connection: Connection) -> None:
    (dataset,) = connection.datasets().to_dict("records")
    assert (dataset["dataset"], dataset["rows"]) == ("train", 3)
    assert connection.datasets()["created"].dtype == UTC
    assert connection.dataset("train", 1)["label.label"].tolist() == [0, 0, 1]
    assert connection.models()["status"].tolist() == ["champion"]
    assert set(connection.assertions()["name"]) >= {"too_high", "unsure", "flips"}
    assert connection.incidents(status="resolved").empty
    incidents = connection.incidents()
    assert set(incidents["model"]) <= {"toy"}
    assert incidents.empty or incidents["opened"].dtype == UTC
    with pytest.raises(NotFound, match="no dataset 'other'"):
        connection.dataset("other")


def test_outcomes_are_one_row_per_test_and_version(connection: Connection, service: Service) -> None:
    assert connection.outcomes().empty or "version" in connection.outcomes()
    test = MFT(
        name="test_half", suite="s", capability="halves", cases=[{"x": 0.1}, {"x": 0.9}], labels=[0, 0]
    )
    model = load_predictor("model.py:predict", folder=service.config.parent)
    body = {"version": "7", "source": "cli", "outcomes": [test.run(model).to_dict()]}
    answer = service.client.post("/v1/suites/toy/outcomes", json=body)
    assert answer.status_code == 201, answer.text
    found = connection.outcomes()
    (row,) = found[found["version"] == "7"].to_dict("records")
    assert (row["test"], row["capability"], row["failures"], row["cases"]) == ("test_half", "halves", 1, 2)
    assert row["status"] == "failed"


def test_tests_find_datasets_of_the_service(connection: Connection) -> None:
    from outrider.dataset_reference import load_dataset

    assert load_dataset("train@1").keys.tolist() == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="no version 7"):
        load_dataset("train@7")


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_wrong_key_or_address_is_said(connection: Connection) -> None:
    with pytest.raises(ServerError, match="refused the key"):
        outrider.connect(connection.url, key="wrong").models()
    with pytest.raises(ConfigError, match="http:// or https:// expected"):
        outrider.connect("localhost:8470")
