"""Cards of flagged texts and tables: the fields, what the flag points at, the answer; and labels by hand."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import insert

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.stored_rows import read_stored
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.server.app import build_app
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service
from outrider.monitor.web.highlights import pieces_of, shown_fields, spans_of
from tests.asgi import get, request
from tests.databases import migrated_for
from tests.monitor.test_intake import Caller

CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[models.desk]
target = "topic"
classes = ["refund", "hours", 3]
[models.price]
target = "price"
task = "other"
"""
TEXT = "Call <b>555-0199</b> for your refund, please."
RECORD = {
    "model": "desk",
    "id": "t 1",
    "inputs": {"prompt": "How do I get my money back?", "age": 41.5},
    "outputs": {"answer": TEXT, "topic": "hours"},
}


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    process = ServerProcess(load_settings(tmp_path / "outrider.toml"))
    process.writer.start()
    yield process
    process.close()


@pytest.fixture
def app(intake: ServerProcess) -> FastAPI:
    priced = {"model": "price", "id": "p", "inputs": {"rooms": 3}, "outputs": {"price": 2.0}}
    for record in (RECORD, priced):
        assert Caller(intake)("POST", "/v1/records", json=record).status_code == 202
    engine = migrated_for(intake.settings)
    span = {"start": TEXT.index("555"), "end": TEXT.index("</b>")}
    with write(engine) as connection:
        for model, key, seq in (("desk", "t 1", 1), ("price", "p", 2)):
            row = {"model": model, "id": key, "seq": seq, "row": 0, "ts_us": 1, "digest": 0}
            connection.execute(insert(tables.Record), [row | {"predicted": '"hours"'}])
        flag = {"model": "desk", "record_id": "t 1", "revision": "1", "slot": "champion", "severity": 1.0}
        flag |= {"level": "critical", "seq": 1, "row": 0, "ts_us": 1}
        for name, evidence in (("phone", {"outputs.answer": [span]}), ("age", {"inputs.age": "too odd"})):
            more = {"id": f"f-{name}", "assertion": name, "evidence": json.dumps(evidence)}
            connection.execute(insert(tables.Flag), [flag | more])
    engine.dispose()
    return build_app(
        fault=lambda: None,
        routers=[
            every_router(
                Service.open(intake.settings, intake.keyring, refusals=intake.refusals, labels=intake.labels)
            )
        ],
    )


def post(app: FastAPI, path: str, form: dict[str, str]) -> httpx.Response:
    return request(app, "POST", path, content=urlencode(form).encode())


def labels_of(intake: ServerProcess) -> list[tuple[str, str, object]]:
    journal = SqliteJournal(intake.settings.journal_path, read_only=True)
    blocks = [block for block in journal.read(0, limit=100) if block.kind == "labels"]
    journal.close()
    rows = [row for block in blocks for row in Batch.from_ipc(block.payload).to_records()]
    return [(row["model"], row["id"], row.get("label")) for row in rows]


@pytest.mark.parametrize("page", ["/m/desk/flags", "/m/desk/records/t%201"])
def test_text_fields_and_answer_stand_there_with_what_the_flags_point_at_marked(
    app: FastAPI, page: str
) -> None:
    html = get(app, page).text
    assert "How do I get my money back?" in html
    assert "Call &lt;b&gt;<mark>555-0199</mark>&lt;/b&gt; for your refund, please." in html
    assert "<mark>41.5</mark>" in html
    assert re.search(r"<dt>(outputs\.)?topic</dt><dd>hours</dd>", html)


def test_the_flags_page_can_show_what_waits_for_a_review(app: FastAPI) -> None:
    assert "f-phone" in get(app, "/m/desk/flags?reviewed=no").text
    assert "f-phone" not in get(app, "/m/desk/flags?reviewed=yes").text


def test_a_record_page_takes_a_label_among_the_declared_classes(app: FastAPI, intake: ServerProcess) -> None:
    html = get(app, "/m/desk/records/t%201").text
    assert '<option value="0">refund</option>' in html
    assert re.search(r'action="/m/desk/labels"><input type="hidden" name="csrf_token"', html)
    answer = post(app, "/m/desk/labels", {"record": "t 1", "class": "0"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/m/desk/records/t%201?labelled")
    assert "The label is on disk" in get(app, "/m/desk/records/t%201?labelled").text
    assert post(app, "/m/desk/labels", {"record": "t 1", "class": "2"}).status_code == 303
    assert post(app, "/m/price/labels", {"record": "p", "value": "2.5"}).status_code == 303
    assert labels_of(intake) == [
        ("desk", "t 1", {"topic": "refund"}),
        ("desk", "t 1", {"topic": 3}),
        ("price", "p", {"price": 2.5}),
    ]


def test_a_form_that_is_sent_twice_gives_its_label_one_key(app: FastAPI, intake: ServerProcess) -> None:
    html = get(app, "/m/desk/records/t%201").text
    key, *_ = re.findall(r'name="key" value="(\w{32})"', html)
    assert key not in get(app, "/m/desk/records/t%201").text
    for chosen in ("0", "0", "1"):
        form = {"record": "t 1", "class": chosen, "key": key}
        assert post(app, "/m/desk/labels", form).status_code == 303
    assert post(app, "/m/desk/labels", {"record": "t 1", "class": "0", "key": "another"}).status_code == 303
    journal = SqliteJournal(intake.settings.journal_path, read_only=True)
    taken = [read_stored(one.payload).table for one in journal.read(0) if one.kind == "labels"]
    journal.close()
    keys = [table.column("key")[0].as_py() for table in taken]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_record_page_withdraws_its_label_and_offers_it_only_where_there_is_one(
    app: FastAPI, intake: ServerProcess
) -> None:
    def add(seq: int, value: str | None, label: dict[str, object]) -> None:
        row = {"seq": seq, "row": 0, "model": "desk", "record_id": "t 1", "source": "page", "value": value}
        engine = migrated_for(intake.settings)
        with write(engine) as connection:
            connection.execute(
                insert(improvement_tables.Label), [row | {"label": label, "ts_us": 1, "received_us": 1}]
            )
        engine.dispose()

    button = 'name="withdraw" value="1"'
    assert button not in get(app, "/m/desk/records/t%201").text
    add(7, '"refund"', {"topic": "refund"})
    assert button in get(app, "/m/desk/records/t%201").text
    answer = post(app, "/m/desk/labels", {"record": "t 1", "withdraw": "1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/m/desk/records/t%201?labelled")
    ((model, record, label),) = labels_of(intake)
    assert (model, record) == ("desk", "t 1")
    assert not label
    add(8, None, {})
    html = get(app, "/m/desk/records/t%201").text
    assert button not in html
    assert ">withdrawn</th>" in html


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({"record": "t 1", "class": "9"}, 422, "one of &#39;refund&#39;, &#39;hours&#39;, 3 expected"),
        ({"record": "t 1"}, 422, "choose it"),
        ({"record": "gone", "class": "0"}, 404, "has no record"),
    ],
)
def test_a_label_that_fits_nothing_is_refused(
    app: FastAPI, intake: ServerProcess, form: dict[str, str], status: int, said: str
) -> None:
    answer = post(app, "/m/desk/labels", form)
    assert answer.status_code == status
    assert said in answer.text
    assert labels_of(intake) == []


def test_spans_of_evidence_are_places_in_texts_and_nothing_else() -> None:
    texts = {"inputs.text": "a" * 1000}
    assert spans_of({"spans": [{"start": 1, "end": 3}, {"start": 5, "end": 5}]}, texts) == {
        "inputs.text": [(1, 3)]
    }
    assert spans_of({"start": 990, "end": 1001}, texts) == {}
    assert spans_of({"start": True, "end": 3}, texts) == {}
    assert spans_of({"start": 1, "end": 3, "column": ["text"]}, texts | {"inputs.other": "b"}) == {}
    assert "".join(text for text, _ in pieces_of("x" * 1000, [(900, 910), (905, 920)])).startswith("…x")
    record = {"inputs": {"text": "call 555", "note": "n"}}
    fields, named = shown_fields(record, {"text": {"start": 5, "end": 8}})
    assert named == {"inputs.text"}
    assert fields[0].pieces == (("call ", False), ("555", True))
