"""A button on a flagged record writes it as a case that the model's suite holds; so does the API."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.behavioral_tests import load_suite
from outrider.dataops.state import tables
from outrider.dataops.state.database import write
from outrider.errors import ConfigError, NotFound
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.suites.written_cases import CaseWanted, CaseWriter
from tests.declared_bodies import check_body
from tests.monitor.services import service_over

from .conftest import make_app
from .sample import MODEL, Sample, add, build
from .test_assertion_page import Browser

DEFINITION = {"kind": "INV", "capability": "robustness", "expect": {"expect": "same", "fields": ["label"]}}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    made = build(tmp_path_factory.mktemp("cases"), blocks=24)
    with write(made.engine) as connection:
        connection.execute(
            text("UPDATE assertion SET definition = :told WHERE kind = 'live_test'"),
            {"told": json.dumps(DEFINITION)},
        )
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture
def writer(own: Sample, tmp_path: Path) -> CaseWriter:
    settings = Settings(
        base=tmp_path,
        storage=StorageSettings(folder="data"),
        models={MODEL: ModelSettings(classes=tuple(range(10)))},
    )
    return CaseWriter(service_over(own.engine, own.journal, settings))


def one(sample: Sample, sql: str) -> str:
    with sample.engine.connect() as connection:
        found = connection.execute(text(sql)).scalar()
    assert isinstance(found, str)
    return found


LABELLED = (
    "SELECT f.id FROM flag f JOIN label l ON l.record_id = f.record_id AND l.model = f.model "
    "WHERE f.assertion = 'track_agrees' ORDER BY f.seq, f.row"
)
UNLABELLED = (
    "SELECT f.id FROM flag f WHERE f.assertion = 'track_agrees' AND NOT EXISTS "
    "(SELECT 1 FROM label l WHERE l.record_id = f.record_id) ORDER BY f.seq DESC, f.row"
)
LIVE = "SELECT id FROM flag WHERE assertion = 'inv_shift' AND record_id LIKE 'card-%' ORDER BY seq, row"


def right(batch: Batch) -> dict[str, Any]:
    return {"label": np.zeros(batch.rows, dtype=np.int64)}


def test_a_labelled_record_becomes_a_case_with_its_source(
    own: Sample, writer: CaseWriter, tmp_path: Path
) -> None:
    flag = one(own, LABELLED)
    added = writer.add(MODEL, writer.make(MODEL, CaseWanted(flag=flag)))
    assert added.file == "behavior/incidents.suite.json"
    assert added.state == "added"
    (test,) = load_suite(tmp_path / added.file).tests
    batch = test.examples().batch
    record = one(own, f"SELECT record_id FROM flag WHERE id = '{flag}'")
    assert batch.keys.tolist() == [record]
    assert batch.tensor("inputs.image").shape == (1, 8, 8)
    assert batch.tensor("inputs.image").dtype == np.float32
    stored = own.journal.get(int(one(own, f"SELECT CAST(seq AS TEXT) FROM flag WHERE id = '{flag}'")))
    original = Batch.from_ipc(stored.payload)
    row = original.keys.tolist().index(record)
    np.testing.assert_array_equal(batch.tensor("inputs.image")[0], original.tensor("inputs.image")[row])
    truth = one(own, f"SELECT value FROM label WHERE record_id = '{record}' ORDER BY seq DESC")
    assert batch.column("label.label").tolist() == [int(truth)]
    written = json.loads((tmp_path / added.file).read_text())["tests"][0]["cases"][0]
    assert written["source"] | {"at": ""} == {
        "model": MODEL,
        "record_id": record,
        "flag": flag,
        "version": "1",
        "by": "human" if "human" in written["source"]["by"] else "late",
        "at": "",
    }


def test_the_same_record_twice_is_there_once(own: Sample, writer: CaseWriter, tmp_path: Path) -> None:
    wanted = CaseWanted(flag=one(own, LABELLED))
    states = [writer.add(MODEL, writer.make(MODEL, wanted)).state for _ in range(2)]
    before = (tmp_path / "behavior" / "incidents.suite.json").read_bytes()
    other = CaseWanted(flag=wanted.flag, label="3", by="ann")
    states += [writer.add(MODEL, writer.make(MODEL, other)).state for _ in range(2)]
    states.append(writer.add(MODEL, writer.make(MODEL, wanted)).state)
    assert states[:2] == ["added", "present"]
    assert states[3] == "present"
    assert set(states[2:]) <= {"changed", "present"}
    after = load_suite(tmp_path / "behavior" / "incidents.suite.json").tests[0].examples().batch
    assert after.rows == 1
    assert after.column("label.label").dtype == np.int64
    assert json.loads(before)["tests"][0]["cases"][0]["label"] == int(after.column("label.label")[0])


def test_a_record_without_a_right_answer_is_refused_with_what_to_do(
    own: Sample, writer: CaseWriter, tmp_path: Path
) -> None:
    flag = one(own, UNLABELLED)
    with pytest.raises(ProblemError, match=r"right answer is unknown.*--label") as error:
        writer.make(MODEL, CaseWanted(flag=flag))
    assert error.value.problem.status == 409
    assert not (tmp_path / "behavior").exists()
    with pytest.raises(ProblemError, match=r"one of 0, 1, .* expected, got another number: 12"):
        writer.make(MODEL, CaseWanted(flag=flag, label=12))
    with pytest.raises(ProblemError, match=r"track_agrees is no live test.*--perturb"):
        writer.make(MODEL, CaseWanted(flag=flag, mode="inv"))
    with pytest.raises(NotFound, match="no flag 'nope'"):
        writer.make(MODEL, CaseWanted(flag="nope"))
    given = writer.make(MODEL, CaseWanted(flag=flag, label=4, by="ann")).cases[0]
    assert (given.label, given.source and given.source.by) == (4, "ann")


def test_what_assertions_propose_is_a_right_answer_and_says_so(own: Sample, writer: CaseWriter) -> None:
    flag = one(own, UNLABELLED)
    record = one(own, f"SELECT record_id FROM flag WHERE id = '{flag}'")
    with write(own.engine) as connection:
        add(
            connection,
            tables.WeakLabelRow,
            id="w1",
            model=MODEL,
            record_id=record,
            flag_id=flag,
            assertion="track_agrees",
            revision="r",
            slot="champion",
            version="1",
            kind="replace",
            field="outputs.label",
            element=-1,
            value="7",
            confidence=0.9,
            seq=1,
            row=0,
            ts_us=0,
        )
    try:
        case = writer.make(MODEL, CaseWanted(record_id=record)).cases[0]
        assert case.label == 7
        assert case.source is not None
        assert case.source.by == "weak:track_agrees"
    finally:
        with write(own.engine) as connection:
            connection.execute(text("DELETE FROM weak_label"))


def test_a_failed_live_test_becomes_a_pair_under_its_own_expectation(
    own: Sample, writer: CaseWriter, tmp_path: Path
) -> None:
    added = writer.add(MODEL, writer.make(MODEL, CaseWanted(flag=one(own, LIVE), mode="inv")))
    (test,) = load_suite(tmp_path / added.file).tests
    assert (test.kind, test.capability, test.name) == ("INV", "robustness", "inv_shift_on_incidents")
    examples = test.examples()
    assert examples.batch.rows == 2
    original, changed = examples.batch.tensor("inputs.image")
    np.testing.assert_allclose(np.roll(original, 1, axis=1), changed, atol=0.001)
    assert test.run(right).passed


def test_writers_at_the_same_time_lose_nothing(own: Sample, writer: CaseWriter, tmp_path: Path) -> None:
    with own.engine.connect() as connection:
        records = [
            str(row.id)
            for row in connection.execute(text("SELECT id FROM record WHERE id LIKE 'card-%' LIMIT 24"))
        ]
    made = [writer.make(MODEL, CaseWanted(record_id=record, label=1)) for record in records]
    threads = [
        threading.Thread(target=lambda part=part: [writer.add(MODEL, test) for test in made[part::6]])
        for part in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (test,) = load_suite(tmp_path / "behavior" / "incidents.suite.json").tests
    assert sorted(test.examples().batch.keys.tolist()) == sorted(records)


def test_inputs_of_another_type_do_not_spoil_the_file(
    own: Sample, writer: CaseWriter, tmp_path: Path
) -> None:
    flag = one(own, LABELLED)
    writer.add(MODEL, writer.make(MODEL, CaseWanted(flag=flag)))
    path = tmp_path / "behavior" / "incidents.suite.json"
    document = json.loads(path.read_text())
    document["tests"][0]["cases"][0] |= {"id": "other", "inputs": [{"image": "a file name"}]}
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    with pytest.raises(ProblemError, match=r"incidents.suite.json was not written: .*inputs.image: case"):
        writer.add(MODEL, writer.make(MODEL, CaseWanted(flag=flag)))
    assert path.read_bytes() == before
    path.write_text("{")
    with pytest.raises(ProblemError, match="is not JSON"):
        writer.add(MODEL, writer.make(MODEL, CaseWanted(flag=flag)))


def test_the_button_says_where_the_case_stands(own: Sample, writer: CaseWriter, tmp_path: Path) -> None:
    browser = Browser(own, cases=writer)
    record = one(own, f"SELECT record_id FROM flag WHERE id = '{one(own, LABELLED)}'")
    page = f"/m/{MODEL}/records/{record}"
    answer = browser.press(page, f"/m/{MODEL}/cases", "add as test")
    assert answer.status_code == 200
    assert "was written to behavior/incidents.suite.json" in answer.text
    assert f'href="{page}#flag-' in answer.text
    assert "stood already in" in browser.press(page, f"/m/{MODEL}/cases", "add as test").text
    flags = f"/m/{MODEL}/flags?assertion=inv_shift"
    assert "inv_shift_on_incidents" in browser.press(flags, f"/m/{MODEL}/cases", "add with its change").text
    assert len(load_suite(tmp_path / "behavior" / "incidents.suite.json").tests) == 2
    refused = browser.ask("POST", f"/m/{MODEL}/cases", {"flag": one(own, LABELLED), "mode": "mft"})
    assert refused.status_code == 403  # no CSRF token


def test_the_page_asks_for_the_right_answer_that_nobody_knows(
    own: Sample, writer: CaseWriter, tmp_path: Path
) -> None:
    browser = Browser(own, cases=writer)
    flag = one(own, UNLABELLED)
    with own.engine.connect() as connection:
        record = connection.execute(text("SELECT record_id FROM flag WHERE id = :id"), {"id": flag}).scalar()
    page = browser.page(f"/m/{MODEL}/records/{record}")
    token = re.findall(r'name="csrf_token" value="([^"]*)"', page)[0]
    form = {"csrf_token": token, "next": f"/m/{MODEL}/flags", "flag": flag, "mode": "mft"}
    asked = browser.ask("POST", f"/m/{MODEL}/cases", form)
    assert asked.status_code == 409
    assert "What is the right answer?" in asked.text
    assert f'value="{flag}"' in asked.text
    assert token in asked.text
    assert "--label" not in asked.text
    by_script = browser.ask(
        "POST", f"/m/{MODEL}/cases", {"flag": flag, "mode": "mft"}, headers={"x-csrf-token": token}
    )
    assert by_script.status_code == 409
    written = browser.ask("POST", f"/m/{MODEL}/cases", form | {"label": " 7 "})
    assert "was written to" in written.text
    (test,) = load_suite(tmp_path / "behavior" / "incidents.suite.json").tests
    assert test.examples().batch.column("label.label").tolist() == [7]
    wrong = browser.ask("POST", f"/m/{MODEL}/cases", form | {"label": "seven"})
    assert wrong.status_code == 409
    assert "No test case was written" in wrong.text


def test_the_api_writes_or_shows_a_case(own: Sample, writer: CaseWriter, tmp_path: Path) -> None:
    app = make_app(own, cases=writer)
    flag = one(own, LABELLED)
    shown = post(app, {"flag": flag, "write": False})
    assert shown.status_code == 200
    assert shown.json()["test"]["cases"][0]["inputs"][0]["image"][0]
    assert not (tmp_path / "behavior").exists()
    assert [post(app, {"flag": flag}).status_code for _ in range(2)] == [201, 200]
    wrong = post(app, {"flag": flag, "record_id": "x"})
    assert wrong.status_code == 422
    image = (np.ones((8, 8)) * 0.5).tolist()
    pair = {"flag": flag, "mode": "inv", "variants": [{"image": image}], "test": "grey_is_the_same"}
    assert post(app, pair).json()["test"] == "grey_is_the_same"
    for label in (10**30, [1, "a"], [1e300] * 3):
        assert post(app, {"flag": flag, "label": label}).status_code == 409
    odd = post(app, pair | {"variants": [{"picture": image}]})
    assert odd.status_code == 409
    assert "'picture'" in odd.json()["detail"]


def post(app: FastAPI, body: dict[str, Any]) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.post(f"http://test/v1/suites/{MODEL}/cases", json=body)

    answer = asyncio.run(send())
    check_body(app, answer)
    return answer


def test_the_file_of_incidents_joins_the_suites_of_its_model_once_it_exists(tmp_path: Path) -> None:
    alone = Settings(base=tmp_path, models={"a": ModelSettings(behavior=("behavior/test_a.py",))})
    assert alone.behavior_files("a") == [tmp_path / "behavior/test_a.py"]
    (tmp_path / "behavior").mkdir()
    (tmp_path / "behavior" / "incidents.suite.json").write_text("{}")
    assert alone.behavior_files("a")[1:] == [tmp_path / "behavior/incidents.suite.json"]
    several = Settings(base=tmp_path, models={"a": ModelSettings(), "b c": ModelSettings()})
    assert several.incident_suite("b c") == tmp_path / "behavior/b%20c.incidents.suite.json"
    named = Settings(
        base=tmp_path,
        models={
            "a": ModelSettings(
                incident_suite="behavior/incidents.suite.json", behavior=("behavior/incidents.suite.json",)
            )
        },
    )
    assert named.behavior_files("a") == [tmp_path / "behavior/incidents.suite.json"]
    with pytest.raises(ValueError, match=r"NAME\.suite\.json"):
        ModelSettings(incident_suite="x.json")
    with pytest.raises(ConfigError):
        load_suite(tmp_path / "behavior" / "incidents.suite.json")
