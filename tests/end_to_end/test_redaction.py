"""Redaction in a running service: after a run no byte of the whole folder holds what was planted."""

import json
import threading
from pathlib import Path

import pytest

from tests.end_to_end.service import Service, wait_until, write_project
from tests.monitor.test_redaction import CARD, KINDS, MAIL, TEXT, holders

CONFIG = """
[server]
port = 0

[models.toy]
predictor = "model.py:predict"
inputs = ["text"]
assertions = ["checks.py"]
"""
REDACT = f"""
[models.toy.redact]
"inputs.*" = {KINDS}
"label.*" = {KINDS}
"""
MODEL = '''
def predict(batch):
    """Labels by length; a text that is broken breaks it."""
    texts = batch.column("inputs.text").tolist()
    for text in texts:
        if "broken" in text:
            raise ValueError(f"cannot read {text}")
    return {"label": ["long" if len(text) > 20 else "short" for text in texts]}
'''
CHECKS = '''
from outrider.assertions import Findings, assertion
from outrider.assertions.library import label_differs

differs = label_differs("champion")


@assertion
def mentions(batch):
    """Every text with a mention, which the worker's log and the evidence may hold."""
    texts = batch.column("inputs.text").tolist()
    if any("raise" in text for text in texts):
        raise RuntimeError(f"cannot judge {texts}")
    return [float("I am" in text) for text in texts]
'''


@pytest.mark.parametrize("redacts", [False, True])
def test_no_byte_of_the_folder_holds_what_was_planted(tmp_path: Path, redacts: bool) -> None:
    config = write_project(tmp_path, config=CONFIG + (REDACT if redacts else ""), checks=CHECKS)
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "test_toy.py").unlink()
    said = [
        [{"id": "one", "inputs": {"text": TEXT}, "outputs": {"label": "short"}}],
        [  # together: a model that answers nothing is broken, not the record
            {"id": "two", "inputs": {"text": "of nobody"}, "outputs": {"label": "long"}},
            {"id": "bad", "inputs": {"text": f"broken {TEXT}"}},
        ],
        [{"id": "one", "inputs": {"text": f"{TEXT}, too"}, "outputs": {"label": "short"}}],  # a conflict
    ]
    with Service(config) as service:
        for each in said:
            assert service.post(each).status_code == 202
        label = {"model": "toy", "id": "one", "label": {"label": "long", "comment": TEXT}}
        assert service.client.post("/v1/labels", json=label).status_code == 202
        service.post([{"id": "raise", "inputs": {"text": f"raise {TEXT}"}, "outputs": {"label": "long"}}])
        service.wait_judged(3)
        wait_until(lambda: bool(service.query("SELECT 1 FROM label")), "a label", service)
        wait_until(lambda: len(service.query("SELECT 1 FROM dead_letter")) >= 2, "dead letters", service)
        differing = service.query(
            "SELECT record_id FROM flag WHERE assertion = 'label_differs_from_champion'"
        )
        left_out = f'outrider_records_redacted_total{{model="toy",process="worker"}} {2.0 * redacts}'
        wait_until(lambda: left_out in service.client.get("/metrics").text, left_out, service)
        running = holders(tmp_path)
    assert {row[0] for row in differing} == ({"two"} if redacts else {"one", "two"})
    if redacts:
        assert running | holders(tmp_path) == set()
    else:
        assert MAIL in running
        assert MAIL in (tmp_path / "serve.log").read_text(encoding="utf-8") or MAIL in holders(
            tmp_path / "outrider-data"
        )


def test_record_writes_placeholders(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG, checks=CHECKS)
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "test_toy.py").unlink()
    out = tmp_path / "traffic.jsonl"
    with Service(config) as service:
        stop = threading.Event()

        def send() -> None:
            while not stop.wait(0.3):
                service.post([{"inputs": {"text": TEXT}, "entity": "ann"}])

        sender = threading.Thread(target=send)
        sender.start()
        try:
            hashed = ["--hash", "entity", "--hash", "inputs.text=email"]
            found = service.run_command(
                "record", "--out", str(out), "--minutes", "1", "--records", "2", *hashed
            )
        finally:
            stop.set()
            sender.join()
    assert found["records"] == 2
    first, second = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    assert first["entity"] == second["entity"] != "ann"
    assert first["inputs.text"] == second["inputs.text"]
    assert MAIL not in first["inputs.text"]
    assert CARD in first["inputs.text"]
