"""The demo as a user runs it, and what must be true of the data behind its figures."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outrider.demo.cards import CAMERAS, SOUND
from outrider.demo.children import Children
from outrider.demo.files import Plan, environment, free_port, prepare_folder
from outrider.demo.loop import Loop
from outrider.demo.readback import read_flags
from tests.forked import TRAINING, forks
from tests.prometheus import alerts_so_far, are_all_up, impatient, run_prometheus
from tests.soak import IS_SOAK, PATIENCE_S, promised

from .service import command_line, descendants, is_alive, wait_until

SEED = 0
NEEDS = (*TRAINING, "tests.end_to_end.unhurried")
pytestmark = pytest.mark.timeout(1200)


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "outrider", "demo", "--folder", str(folder), "--seed", str(SEED), *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "project"


@pytest.fixture(scope="module")
def watched(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command says, and the alerts of two real Prometheus beside it until it ends."""
    logs = tmp_path_factory.mktemp("watched")
    places = [logs / name for name in ("short", "shipped")]
    for place in places:
        place.mkdir()
    with (logs / "out").open("w") as out, (logs / "err").open("w") as err, forks(*NEEDS):
        demo = subprocess.Popen(command(folder, "--once", "--json"), stdout=out, stderr=err)

    def is_over() -> bool:
        assert not demo.poll(), f"{(logs / 'out').read_text()[-2000:]}\n{(logs / 'err').read_text()[-6000:]}"
        return demo.poll() == 0

    try:
        wait_until(lambda: is_over() or (folder / "truth.jsonl").exists(), "traffic")
        target = f"127.0.0.1:{tomllib.loads((folder / 'outrider.toml').read_text())['server']['port']}"
        wait_until(lambda: is_over() or are_all_up(target), "report of every process")
        with (
            run_prometheus(places[0], target, scrapes=1, rules=impatient()) as short,
            run_prometheus(places[1], target, scrapes=1) as shipped,
        ):
            wait_until(is_over, "end of the demo", timeout_s=4 * PATIENCE_S)
            alerts = {"short": alerts_so_far(short), "shipped": alerts_so_far(shipped)}
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    return {"result": json.loads((logs / "out").read_text()), **alerts}


@pytest.fixture(scope="module")
def result(watched: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = watched["result"]
    return found


def query(folder: Path, sql: str, *arguments: object) -> list[Any]:
    database = sqlite3.connect(f"file:{folder / 'outrider-data' / 'state.db'}?mode=ro", uri=True)
    try:
        return database.execute(sql, arguments).fetchall()
    finally:
        database.close()


def ids(rows: Sequence[Any]) -> set[str]:
    return {row[0] for row in rows}


def truth(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if "id" in line]


@pytest.mark.costly("the demo runs whole, once for all tests of the file")
def test_the_loop_closes(result: dict[str, Any]) -> None:
    assert result["closed"] is True
    assert len(result["criteria"]) == 11
    assert result["accuracy"]["healthy"]["cards"] >= 300
    assert result["labels"]["bought"] == 200
    assert result["promoted"] == "2"
    assert result["refused"] == "3"
    assert {event["type"] for event in result["deliveries"].values()} == {
        "retrain.requested",
        "model.promoted",
        "gate.refused",
        "rollback.proposed",
        "model.rolled_back",
    }


def test_the_watch_rolls_a_forced_promotion_back(result: dict[str, Any], folder: Path) -> None:
    found = result["watched"]
    assert (found["version"], found["former"], found["champion"], found["by"]) == ("3", "2", "2", "ann")
    rows = query(
        folder, 'SELECT version, action, "by", reason FROM champion_change ORDER BY seq DESC LIMIT 2'
    )
    assert [row[:3] for row in rows] == [("2", "rolled_back", "watch"), ("3", "overridden", "ann")]
    assert rows[0][3].startswith("the watch over version 3: of ")
    assert rows[1][3] == "the release is due"
    watches = query(folder, "SELECT version, former, outcome FROM watch ORDER BY began_us")
    assert watches == [("2", "1", "superseded"), ("3", "2", "rolled_back")]
    answered = [line["version"] for line in truth(folder) if line["phase"] == "watched"]
    assert answered[0] == "3"
    assert 100 < found["records"] <= len(answered) == 300


def test_challengers_beside_version_1_are_told_apart(result: dict[str, Any]) -> None:
    tests = {test["version"]: test for test in result["challengers"]}
    assert set(tests) == {"twin", "compressed", "small"}
    whole = {version: test["agreement"][0] for version, test in tests.items()}
    assert all(row["rows"] >= 4000 and row["noise"]["rows"] > 50 for row in whole.values())
    assert all(len(test["agreement"]) == 3 * 8 for test in tests.values())  # three measures, seven cameras
    assert all(row["verdict"] in ("same", "undecided") for row in tests["twin"]["agreement"])
    assert whole["twin"]["verdict"] == "same"
    assert whole["compressed"]["beyond"]["high"] > 0.99
    assert whole["small"]["verdict"] == "different"
    assert tests["twin"]["recommendation"] == tests["small"]["recommendation"] == "keep"


def test_training_rows_are_the_flagged_and_labelled_ones_and_the_replay(
    result: dict[str, Any], folder: Path
) -> None:
    flagged = ids(query(folder, "SELECT DISTINCT record_id FROM flag WHERE slot = 'champion'"))
    labelled = ids(query(folder, "SELECT DISTINCT record_id FROM label"))
    rows = query(folder, "SELECT record_id, part FROM dataset_row WHERE dataset = 'digits-flagged'")
    assert query(folder, "SELECT * FROM quarantine") == []
    assert ids(rows) == flagged & labelled
    trained = {record for record, part in rows if part == "train"}
    assert result["trained_on"] == {"digits-flagged@1": len(trained), "digits-train@1": 2800}
    bought = ids(query(folder, "SELECT record_id FROM label_request"))
    assert len(bought) == 200
    assert bought < ids(rows)
    edges = query(folder, "SELECT parent, role FROM lineage_edge WHERE child = 'digits@2'")
    assert {("digits-flagged@1", "fresh"), ("digits-train@1", "replay"), ("digits@1", "weights")} <= set(
        edges
    )


def test_corrected_labels_change_their_rows_and_no_others(result: dict[str, Any], folder: Path) -> None:
    digits = {line["id"]: line["digit"] for line in truth(folder)}
    query_changed = (
        "SELECT record_id, json_extract(labels, '$.\"label.label\"'), label_seq, label_row, flags, file "
        "FROM dataset_row WHERE dataset = 'digits-flagged' AND number = 2"
    )
    rows = query(folder, query_changed)
    assert len(rows) == result["labels"]["corrected"] == len(result["corrected"]) == 3
    assert {row["id"] for row in result["corrected"]} == ids(rows)
    assert query(folder, "SELECT file FROM dataset_file WHERE dataset = 'digits-flagged'") == [(1,)]
    for record, label, seq, place, flags, _ in rows:
        assert label == digits[record]
        source = query(folder, "SELECT source, value FROM label WHERE seq = ? AND row = ?", seq, place)
        assert source == [("second look", str(label))]
        stored = query(
            folder,
            "SELECT assertion, revision, severity FROM flag WHERE record_id = ? AND slot = 'champion'",
            record,
        )
        assert {tuple(flag) for flag in json.loads(flags)} == set(stored)
    for row in result["corrected"]:
        assert row["labels_before"] != row["labels_after"]
        assert (row["before"]["label_source"], row["after"]["label_source"]) == ("labeller", "second look")


def test_no_card_behind_the_final_figures_was_trained_or_gated_on(
    result: dict[str, Any], folder: Path
) -> None:
    final = {line["card"] for line in truth(folder) if line["phase"] == "final"}
    used = ids(query(folder, "SELECT record_id FROM dataset_row"))
    assert len(final) == result["accuracy"]["healthy"]["cards"] == 427
    assert not final & {record.partition(".")[0] for record in used}


def test_every_answer_was_judged_once(result: dict[str, Any], folder: Path) -> None:
    sent = [line["id"] for line in truth(folder)]
    judged = [row[0] for row in query(folder, "SELECT id FROM record WHERE model = 'digits'")]
    assert sorted(sent) == sorted(judged)
    assert result["records"] == {"sent": len(sent), "judged": len(judged)}
    assert query(folder, "SELECT * FROM dead_letter") == []


def test_incidents_are_few_and_each_names_a_failing_camera_first(
    result: dict[str, Any], folder: Path
) -> None:
    found = [(part, json.loads(text)) for part, text in query(folder, "SELECT slice, details FROM incident")]
    failing = {camera for camera in CAMERAS if camera not in SOUND}
    assert 1 <= len(found) <= 6
    assert {part for part, _ in found} <= failing | {""}
    causes = [details["explained_by"][0]["slice"] for _, details in found if "explained_by" in details]
    assert causes
    assert set(causes) <= failing


LONG_FLOW = 4000
"""More faulty records than pass while a machine with nothing else to do retrains."""


def test_no_shipped_rule_fires_and_the_failing_cameras_are_all_there_is_to_say(
    watched: dict[str, Any], folder: Path
) -> None:
    # The longer a busy machine trains, the surer it is of a live test that version 1 does fail (at 25 %, 20 %
    # are tolerated): in one run after 6,763 more records.
    flow = sum(line["phase"] == "flow" for line in truth(folder))
    sure = {"OutriderLiveTestFails"} if flow > LONG_FLOW else set()
    assert {name for name, state in watched["shipped"] if state == "firing"} <= sure
    # The cameras fail on purpose: that is all that there is to say, however short the patience,
    # but for delays, which are real on a machine that does much else, and for the end.
    slow = {"OutriderAbsent", "OutriderBacklogOld", "OutriderProcessDown"}
    said = {name for name, _ in watched["short"]} - slow - sure
    assert {"OutriderIncidentOpen"} <= said <= {"OutriderIncidentOpen", "OutriderAlarm"}


@pytest.mark.skipif(not IS_SOAK, reason="half of the demo once more: make soak")
def test_a_seed_repeats_flags_selection_and_digests(
    result: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    prepare_folder(again)
    with forks(*NEEDS), Children(again, environment(again)) as children:
        loop = Loop(Plan(again, SEED), children, began=time.monotonic(), tick=lambda _: None)
        loop.start(free_port())
        loop.go_wrong()
        loop.label()
        wait_until(lambda: len(digests(loop)) == 3, "dataset version")
        known = {v["dataset"]: v["digest"] for v in result["datasets"] if v["number"] == 1}
        found = digests(loop)
        flags = {(flag["record_id"], flag["assertion"]) for flag in read_flags(loop.api)}
    old = set(
        query(folder, "SELECT record_id, assertion FROM flag WHERE slot = 'champion' AND version = '1'")
    )
    assert {flag for flag in flags if ".fl" not in flag[0]} == {flag for flag in old if ".fl" not in flag[0]}
    for sql in (
        "SELECT record_id || ' ' || reason FROM label_request",
        "SELECT record_id || assertion || part FROM dataset_row WHERE dataset = 'digits-flagged'",
    ):
        assert ids(query(again, sql)) == ids(query(folder, sql))
    assert found == known


def digests(loop: Loop) -> dict[str, str]:
    found = loop.api.get("/v1/datasets", model="digits")["datasets"]
    return {version["dataset"]: version["digest"] for version in found}


@pytest.mark.costly("the demo runs whole, once for all tests of the file")
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, forks(*TRAINING):
        demo = subprocess.Popen(
            command(tmp_path / "demo", "--once"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # What runs the tests in the background may have told its children to ignore interrupts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )
    try:
        wait_until(lambda: (tmp_path / "demo/truth.jsonl").exists(), "traffic")
        wait_until(lambda: running("monitor.host", demo.pid) != [], "an assertion host")
        below = descendants(demo.pid)
        assert len(below) >= 7
        demo.send_signal(signal.SIGINT)
        assert demo.wait(promised(60)) == 130
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    wait_until(lambda: not any(map(is_alive, below)), "end of all processes", timeout_s=promised(2))


@pytest.mark.costly("the demo runs whole, once for all tests of the file")
def test_a_process_that_dies_ends_the_demo_with_its_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, forks(*TRAINING):
        demo = subprocess.Popen(
            command(tmp_path / "demo", "--once"), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: (tmp_path / "demo/truth.jsonl").exists(), "traffic")
        (production,) = running("demo.service", demo.pid)
        os.kill(production, signal.SIGKILL)
        assert demo.wait(promised(40)) == 4
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    said = (tmp_path / "log").read_text()
    assert "service ended with signal 9" in said or "driver ended with exit code 1" in said


def running(module: str, below: int) -> list[int]:
    return [pid for pid in descendants(below) if f"outrider.{module} " in command_line(pid)]
