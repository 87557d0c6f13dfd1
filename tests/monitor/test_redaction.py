"""Redaction at intake: no protocol writes a planted value, sides and labels still join."""

import base64
import json
import logging
import random
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.assertions.library import label_differs
from outrider.commands.model_checks import redaction_problems
from outrider.commands.record import _check_columns
from outrider.dataops.journal.journal import SqliteJournal
from outrider.errors import ConfigError, OutriderError
from outrider.monitor.compare.redaction import Redaction
from outrider.monitor.compare.traffic import Traffic
from outrider.monitor.http.keyring import new_key
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from outrider.monitor.worker.judged import JudgedRecords
from outrider.monitor.worker.live_endpoint import comparable
from tests.dataops.test_redaction import CARDS, IBANS
from tests.dataops.test_redaction_readings import (
    JOB_TOKEN,
    JSON,
    JSON_ENCODINGS,
    SEPARATORS,
    TEXT_ENCODINGS,
    by_fours,
    json_escaped,
    printed,
)
from tests.dataops.test_redaction_readings import TEXT as TEXTS
from tests.scan import places

from .event_payloads import kserve
from .otlp.exports import CHAT, log, logs, span, traces
from .test_intake import ipc
from .test_intake_mirrors import Target

MAIL, CARD, IBAN, PHONE = (
    "ann.planted@shop.example",
    "4012888888881881",
    "DE89370400440532013000",
    "+49 89 7654321",
)
TOKEN, NAME = "sk-planted" + "x1Y2z3" * 5, "Ann Planted"
PLANTED = [MAIL, CARD, IBAN, PHONE, TOKEN, NAME, "ann.planted", "7654321", "0532013000"]
TEXT = f"I am {MAIL}, my card {CARD}, {IBAN}, call {PHONE} with {TOKEN}"
KINDS = ["email", "phone", "card", "iban", "token"]
REDACT = f"""
"inputs.*" = {KINDS}
"outputs.*" = {KINDS}
"attrs.*" = {KINDS}
"attrs.name" = ["value"]
"label.*" = {KINDS}
entity = ["value"]
"""
CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[intake]
join_s = 600
[models.support]
{redact}
[models.support.intake]
answers = "joined"
keep_request = true
entity_header = "x-user"
"""


@contextmanager
def running(folder: Path, *, redacts: bool = True) -> Iterator[Target]:
    path = folder / "outrider.toml"
    path.write_text(
        CONFIG.format(redact=f"[models.support.redact]{REDACT}" if redacts else ""), encoding="utf-8"
    )
    intake = ServerProcess(load_settings(path))
    intake.writer.start()
    try:
        yield Target(intake)
    finally:
        intake.close()


def post(target: Target, path: str, body: Any, kind: str = "application/json", **headers: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    key = {"authorization": f"Bearer {target.key}", "content-type": kind}
    answer = target.call("POST", path, content, key | named)
    assert answer.status_code in (200, 202), answer.text


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {"model": "support", "id": f"r{number}", "entity": NAME, "inputs": {"text": TEXT}} | fields


def as_json(target: Target) -> None:
    post(target, "/v1/records", [record(1, attrs={"name": NAME}), record(2, outputs={"answer": TEXT})])
    post(target, "/v1/records", record(3))  # of known columns: the fast path
    nested = json.dumps({"messages": [{"role": "user", "content": TEXT}], "n": int(CARD)})
    post(target, "/v1/records", record(4, inputs={"call": nested, "user": {"mail": MAIL, "card": int(CARD)}}))
    post(target, "/v1/records", record(5, inputs={"texts": [TEXT, "x"]}))


def as_arrow(target: Target) -> None:
    table = pa.record_batch({"id": ["a1", "a2"], "inputs.text": [TEXT, "x"], "entity": [NAME, NAME]})
    for _ in range(2):
        post(target, "/v1/records?model=support", ipc(table), "application/vnd.apache.arrow.stream")


def as_sides(target: Target) -> None:
    path = "/v1/records?model=support&join=true"
    post(target, path, [{"id": "s1", "entity": NAME, "inputs": {"text": TEXT}}])
    post(target, path, [{"id": "s2", "outputs": {"answer": TEXT}}])


def as_labels(target: Target) -> None:
    post(target, "/v1/labels", {"model": "support", "id": "r1", "label": {"ok": True, "comment": TEXT}})
    of_entity = {"entity": NAME, "ts": "2026-01-05T10:00:00Z", "label": {"comment": TEXT}}
    post(target, "/v1/labels", {"model": "support"} | of_entity)


def as_chat(target: Target) -> None:
    body = {"model": "support", "messages": [{"role": "user", "content": TEXT, "name": "u"}], "user": MAIL}
    headers = {"x_outrider_mirror": "1", "x_request_id": "c1", "x_user": NAME}
    post(target, "/v1/chat/completions", body, **headers)


def as_v2(target: Target) -> None:
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}
    post(target, "/v2/models/support/infer", {"id": "v1", "inputs": [tensor]}, x_outrider_mirror="1")


def as_events(target: Target) -> None:
    for side, body in (("request", {"instances": [TEXT]}), ("response", {"predictions": [TEXT]})):
        headers, content = kserve(side, body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["ce-inferenceservicename"] = "support"
        key = {"authorization": f"Bearer {target.key}"}
        answer = target.call("POST", "/v1/cloudevents", content, named | key)
        assert answer.status_code == 202, answer.text


def as_traces(target: Target) -> None:
    found = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": TEXT}
    call = CHAT | {"gen_ai.request.model": "support", "gen_ai.conversation.id": NAME}
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": TEXT}]}])
    whole = call | {"gen_ai.input.messages": asked, "gen_ai.output.messages": asked}
    export = traces(span(found, 9, at_s=-1), span(whole, 1), span(call | {"gen_ai.input.messages": asked}, 2))
    post(target, "/v1/traces", export.SerializeToString(), "application/x-protobuf")
    waiting = logs(log("gen_ai.user.message", {"content": TEXT}, 3))
    post(target, "/v1/logs", waiting.SerializeToString(), "application/x-protobuf")


SENDERS: list[Callable[[Target], None]] = [
    as_json, as_arrow, as_sides, as_labels, as_chat, as_v2, as_events, as_traces,
]  # fmt: skip


def holders(folder: Path) -> set[str]:
    """Planted values in the bytes of any file, as they are, in base64 or in Arrow's."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "outrider.toml":
            content = path.read_bytes()
            for value in PLANTED:
                forms = [value.encode(), value.encode("utf-16-le")]
                forms += [int(value).to_bytes(8, "little")] if value == CARD else []
                found |= {value for form in forms if form in content}
                found |= {
                    value for at in range(3) if base64.b64encode(b"x" * at + value.encode())[4:-4] in content
                }
    return found


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_no_protocol_writes_what_is_redacted(tmp_path: Path, send: Callable[[Target], None]) -> None:
    for name, redacts in (("plain", False), ("redacted", True)):
        folder = tmp_path / name
        folder.mkdir()
        with running(folder, redacts=redacts) as target:
            send(target)
            mid = holders(folder)
        if redacts:
            assert mid | holders(folder) == set()
        else:
            assert MAIL in mid
        assert (folder / "outrider-data" / "redaction.key").exists() is redacts


def planted_forms() -> dict[str, str]:
    """Texts that hold a value in other bytes than its own, by those bytes."""
    draw, made = random.Random(11), {}
    values = [
        *(printed(card, by) for card in CARDS for by in draw.sample(SEPARATORS, 3)),
        *(by_fours(iban, draw.choice(SEPARATORS)) for iban in draw.sample(IBANS, 9)),
        "ann.planted@shop.example", "+49\u00a089\u00a07654321", new_key(), JOB_TOKEN,
    ]  # fmt: skip
    for value in values:
        for wraps, encodings in ((JSON, JSON_ENCODINGS), (TEXTS, TEXT_ENCODINGS)):
            wrap, said = draw.choice(wraps), draw.choice(encodings)
            text = wrap(value, said)
            for outer in draw.sample(JSON, draw.randrange(3)):
                text = outer(text, json_escaped)
            made[said(value)] = text
    return made


def test_no_file_of_the_folder_holds_a_value_in_any_form(tmp_path: Path) -> None:
    forms = planted_forms()
    texts = list(forms.values())
    float_card = float(CARD)
    with running(tmp_path) as target:
        rows = [record(n, inputs={"text": text, "texts": [text], "boxes": [{"t": text, "card": float_card}]},
                       outputs={"answer": text}, attrs={"a": text, "amount": float_card})
                for n, text in enumerate(texts)]  # fmt: skip
        post(target, "/v1/records", rows)
        post(
            target,
            "/v1/records?model=support&join=true",
            [{"id": "s", "inputs": {"text": t}} for t in texts[:1]],
        )
        table = pa.record_batch({"inputs.text": texts, "inputs.f": pa.array([float_card] * len(texts))})
        post(target, "/v1/records?model=support", ipc(table), "application/vnd.apache.arrow.stream")
        for n, text in enumerate(texts[:8]):
            post(target, "/v1/labels", {"model": "support", "id": f"r{n}", "label": {"comment": text}})
            body = {
                "model": "support",
                "messages": [{"role": "user", "content": text}],
                "x": {text: float_card},
            }
            raw = json.dumps(body)[:-1] + ', "user": "x", "user": ' + json.dumps(text) + "}"
            post(target, "/v1/chat/completions", raw.encode(), x_outrider_mirror="1", x_request_id=f"c{n}")
        told = {
            "gen_ai.request.model": "support",
            "gen_ai.input.messages": texts[0],
            "gen_ai.prompt": texts[1],
        }
        export = traces(span(CHAT | told, 1), span(CHAT | told, 2))
        post(target, "/v1/traces", export.SerializeToString(), "application/x-protobuf")
        assert len(target.rows("support")) >= 2 * len(texts)
    digits = {re.sub(r"\D", "", value) for value in CARDS}
    wanted = (
        [form.encode() for form in forms]
        + [form.encode("utf-16-le") for form in forms]
        + [struct.pack("<d", float_card)]
    )
    assert places(tmp_path / "outrider-data", wanted) == []
    for path in (tmp_path / "outrider-data").rglob("*"):
        only = re.sub(rb"\D", b"", path.read_bytes()).decode() if path.is_file() else ""
        assert [value for value in digits if value in only] == []


def test_sides_meet_and_equal_values_stay_equal_over_restarts(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        as_sides(target)
        as_json(target)
    with running(tmp_path) as target:
        post(target, "/v1/records?model=support&join=true", [{"id": "s1", "outputs": {"answer": "yes"}}])
        as_labels(target)
        rows = {row["id"]: row for row in target.rows("support")}
        metrics = target.call("GET", "/metrics", b"", {"authorization": f"Bearer {target.key}"}).text
        journal = SqliteJournal(target.intake.settings.journal_path, read_only=True)
        labels = [block for block in journal.read(0, limit=1000) if block.kind == "labels"]
        journal.close()
    assert rows["s1"]["inputs"]["text"] == rows["r1"]["inputs"]["text"] == rows["r3"]["inputs"]["text"]
    assert rows["s1"]["outputs"] == {"answer": "yes"}
    assert rows["s1"]["entity"] == rows["r1"]["entity"]
    tables = [pa.ipc.open_stream(block.payload).read_all() for block in labels]
    entities = {entity for table in tables for entity in table["entity"].to_pylist()}
    assert entities == {None, rows["r1"]["entity"]}
    call = json.loads(rows["r4"]["inputs"]["call"])
    assert call["messages"][0]["content"] == rows["r1"]["inputs"]["text"]
    assert call["n"] in rows["r1"]["inputs"]["text"]
    assert "user.card" not in rows["r4"]["inputs"]
    assert rows["r4"]["inputs"]["user.mail"] in rows["r1"]["inputs"]["text"]
    assert 'outrider_redacted_values_total{kind="email",model="support",process="intake"} ' in metrics


def test_calls_that_waited_over_a_restart_hold_placeholders(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        as_traces(target)
    with running(tmp_path) as target:
        call = CHAT | {"gen_ai.request.model": "support"}
        said = log("gen_ai.choice", {"index": 0, "message": {"content": "Yes."}}, 3)
        post(target, "/v1/logs", logs(said).SerializeToString(), "application/x-protobuf")
        post(target, "/v1/traces", traces(span(call, 3)).SerializeToString(), "application/x-protobuf")
        rows = {row["id"][-1]: row for row in target.rows("support")}
    assert rows["3"]["inputs"]["prompt"] == rows["1"]["inputs"]["prompt"]
    assert "<email:" in rows["3"]["inputs"]["prompt"]
    assert holders(tmp_path) == set()


def test_lines_of_the_log_are_redacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("outrider.test")
    with running(tmp_path) as target:
        redaction = target.intake.writer._redaction
        redaction.guard([caplog.handler])
        try:
            logger.warning("a call was refused: %s", TEXT)
            try:
                raise ValueError(f"cannot convert {MAIL}")
            except ValueError:
                logger.exception("blocks could not be made")
            logger.warning("nothing of %s", "interest")
        finally:
            for each in list(caplog.handler.filters):
                caplog.handler.removeFilter(each)
    assert MAIL not in caplog.text
    assert "<email:" in caplog.text
    assert "nothing of interest" in caplog.text


def test_redacted_records_are_left_out_of_agreement_with_the_replica() -> None:
    texts = ["x", "to <email:0123456789abcdef>", "to <card:0123456789abcdef>", "y"]
    given = {"inputs.text": texts, "outputs.label": ["a", "a", None, "a"]}
    judged = JudgedRecords.of(Batch.from_columns(given, model="m"), {"label": np.array(["b", "b", "b", "a"])})
    fired = label_differs("champion").severities(judged.batch)
    assert judged.left_out == 1
    assert fired.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert judged.batch.arrow("outputs.label").to_pylist() == ["a", "a", "b", "a"]
    replica = judged.batch.answers("champion")
    assert replica is not None
    assert replica.arrow("outputs.label").to_pylist() == ["b", None, "b", "a"]
    parts = [part.batch.answers("champion") for part in judged.parts]
    assert [part.arrow("outputs.label").to_pylist() for part in parts if part is not None] == [
        ["b", None, "a"],
        ["b"],
    ]


def test_live_tests_at_production_leave_redacted_records_out() -> None:
    given = {"inputs.text": ["x", "<email:0123456789abcdef>", "y"], "outputs.label": ["a", "a", None]}
    assert comparable(Batch.from_columns(given, model="m")).tolist() == [True, False, False]


def test_recorded_answers_of_redacted_records_are_not_compared(tmp_path: Path) -> None:
    lines = [record(1, outputs={"answer": "a"}), record(2, outputs={"answer": "b"})]
    lines[0]["inputs"] = {"text": "to <email:0123456789abcdef>", "n": 1}
    lines[1]["inputs"] = {"text": "to nobody", "n": 1}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({k: v for k, v in each.items() if k != "model"}) for each in lines))
    traffic = Traffic([path])
    rows = [row for batch in traffic for row in batch.to_records()]
    assert [row.get("outputs") for row in rows] == [None, {"answer": "b"}]
    assert traffic.funnel()["came redacted"] == 1


def test_record_redacts_tables_by_kind_path_and_whole() -> None:
    request = json.dumps({"user": "ann", "messages": [{"content": TEXT}]})
    table = pa.table(
        {"id": ["1"], "entity": [NAME], "inputs.request": [request], "inputs.text": [TEXT], "inputs.n": [7]}
    )
    hash_ = ["entity", "inputs.request.user", "inputs.request.messages.content=email,card,iban,phone,token"]
    redaction = Redaction(hash=[*hash_, "inputs.text=email", "inputs.n"])
    (row,) = redaction.table(table).to_pylist()
    assert redaction.matched == redaction.names
    assert row["entity"].startswith("<value:")
    assert json.loads(row["inputs.request"])["user"].startswith("<value:")
    assert MAIL not in row["inputs.request"]
    assert MAIL not in row["inputs.text"]
    assert CARD in row["inputs.text"]
    assert row["inputs.n"].startswith("<value:")
    with pytest.raises(ConfigError, match="did you mean 'email'"):
        Redaction(hash=["inputs.text=emial"])


def test_record_names_the_nearest_column_before_anything_is_recorded() -> None:
    table = pa.table({"id": ["1"], "entity": [NAME], "inputs.text": [TEXT]})
    redaction = Redaction(hash=["inputs.txt", "inputs.request.user"])
    redaction.table(table)
    with pytest.raises(
        OutriderError, match=r"no column inputs.txt in the records; did you mean 'inputs.text'"
    ):
        _check_columns(redaction, table)
    _check_columns(Redaction(hash=["inputs.request.user"]), table)


@pytest.mark.parametrize(
    ("redact", "said"),
    [
        (
            '"input.text" = ["email"]',
            "redact: input.text: entity, inputs.…, outputs.…, attrs.… or label.… expected",
        ),
        ('"input.text" = ["email"]', "did you mean 'inputs.text'"),
        ('text = ["email"]', "did you mean 'inputs.text'"),
        ('id = ["value"]', "send one that names nobody"),
        ('"inputs.text" = ["emial"]', "did you mean 'email'"),
        ('"inputs.text" = "email"', "a list of email, phone"),
        (
            '"inputs.doc" = ["email"]\n[models.support.columns]\n"inputs.doc" = "text"',
            "a column of texts expected",
        ),
    ],
)
def test_a_slip_in_the_settings_names_the_nearest(tmp_path: Path, redact: str, said: str) -> None:
    path = tmp_path / "outrider.toml"
    path.write_text(CONFIG.format(redact=f"[models.support.redact]\n{redact}"), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_settings(path)
    assert said in str(error.value)


def test_a_column_that_no_record_has_names_the_nearest_that_came(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        as_json(target)
    path = tmp_path / "outrider.toml"
    named = '"inputs.txet" = ["email"]\n"inputs.later" = ["email"]\n"inputs.text" = ["email"]'
    path.write_text(CONFIG.format(redact=f"[models.support.redact]\n{named}"), encoding="utf-8")
    said = "redact.inputs.txet: no record has this column; did you mean 'inputs.text'?"
    assert list(redaction_problems(load_settings(path), "support")) == [said]


@pytest.mark.parametrize(
    "fields",
    [
        {"inputs": {MAIL: 1}},
        {"inputs": {"text": "x", "of": {f"to {PHONE}": 1}}},
        {"inputs": {"boxes": [{"left": 1.5, MAIL: 2}]}},
        {"inputs": {"text": "x"}, "attrs": {CARD: "x"}},
        {"inputs": {"text": "x", "n": {"not": "a number"}, MAIL: {"a": [1, "x"]}}},
    ],
)
def test_a_field_named_by_a_value_is_refused_and_written_nowhere(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    with running(tmp_path) as target:
        as_json(target)
        key = {"authorization": f"Bearer {target.key}", "content-type": "application/json"}
        body = json.dumps([{"model": "support", "id": "named"} | fields, record(9)]).encode()
        answer = target.call("POST", "/v1/records", body, key)
        assert answer.json()["accepted"] == 1
        (rejection,) = answer.json()["rejected"]
        assert "named by a value that is redacted here" in rejection["reason"]
    assert json.loads((tmp_path / "outrider-data" / "run" / "refused.json").read_text())
    assert holders(tmp_path) == set()
