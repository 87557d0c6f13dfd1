"""A detector's frames, sent as JSON: flags over several frames, and corrected lists to learn from."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from outrider.assertions import Batch, Checker, load_assertions

from .service import Service, wait_until

CONFIG = """
[server]
port = 0

[models.toy]
task = "other"
inputs = ["frame"]
target = "detections"
assertions = ["checks.py"]

[models.toy.retrain]
weak_confidence = 0.8
"""

CHECKS = """
from outrider.assertions import Calibration, Consistency, MotionTracker, assertion

cars = Consistency(
    explode="outputs.detections",
    tracker=MotionTracker(),
    attributes=["label"],
    within=0.5,
    score="score",
    calibration=Calibration(scores=(0.3, 0.95), chances=(0.1, 0.9)),
    name="cars",
)


@assertion
def doubtful(batch):
    \"\"\"A box that the model is not sure of.\"\"\"
    boxes = batch.explode("outputs.detections")
    return boxes.reduce(boxes.column("outputs.detections.score", null=1.0) < 0.5, "any")
"""
FRAMES = 60
GAP = (15, 16)
BLIP = 30
VAN = 22


def box(left: float, **more: Any) -> dict[str, Any]:
    return {"left": left, "top": 80, "width": 20, "height": 40, "score": 0.95, "label": "car"} | more


def frame(number: int) -> dict[str, Any]:
    """Nothing in the first frames, then whole numbers, then fractions, then a field more."""
    detections = []
    if number >= 4 and number not in GAP:
        detections = [box(4 * number if number < 12 else 4.0 * number + 0.25)]
    if number == VAN:
        detections[0]["label"] = "van"
    if number >= 25:
        detections[0]["occluded"] = False
    if number == BLIP:
        detections.append(box(600.5, score=0.3, label="cat"))
    second, tenth = divmod(number, 10)
    return {
        "id": f"f{number:02}",
        "entity": "camera-3",
        "ts": f"2026-01-05T10:00:{second:02}.{tenth}Z",
        "inputs": {"frame": number},
        "outputs": {"detections": detections},
    }


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("detector")
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    (folder / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    with Service(folder / "outrider.toml") as running:
        for start in range(0, FRAMES, 4):
            answer = running.post([frame(number) for number in range(start, start + 4)])
            assert answer.json()["accepted"] == 4, answer.text
        running.wait_judged(FRAMES)
        yield running


def test_flags_of_the_live_path_are_those_of_one_check(service: Service) -> None:
    whole = Batch.from_records([frame(number) for number in range(FRAMES)], model="toy")
    expected = Checker(load_assertions(service.config.parent / "checks.py")).check(whole)
    assert expected.counts == {"cars.label": 1, "cars.flicker": 1, "cars.appear": 1, "doubtful": 1}
    wanted = sorted(expected.to_pandas()[["assertion", "id"]].itertuples(index=False, name=None))
    wait_until(lambda: len(service.query("SELECT id FROM flag")) >= len(wanted), "flags", service)
    assert sorted(service.query("SELECT assertion, record_id FROM flag")) == wanted
    assert service.query("SELECT * FROM strike") == []  # also while no detection had come yet
    members = service.query(
        "SELECT assertion, m.record_id FROM flag JOIN flag_record AS m ON m.flag_id = flag.id ORDER BY 1, 2"
    )
    assert [key for name, key in members if name == "cars.flicker"] == ["f15", "f16"]
    assert [key for name, key in members if name == "cars.appear"] == ["f30"]


def test_corrections_are_weak_labels_and_make_rows_of_a_dataset(service: Service) -> None:
    wait_until(lambda: len(service.query("SELECT id FROM weak_label")) >= 3, "weak labels", service)
    weak = service.client.get("/v1/weak-labels", params={"model": "toy"}).json()["weak_labels"]
    by_record = {label["record_id"]: label for label in weak if label["confidence"] >= 0.8}
    assert {key: label["kind"] for key, label in by_record.items()} == {
        "f15": "add",
        "f16": "add",
        "f22": "replace",
    }
    assert by_record["f15"]["value"]["left"] == pytest.approx(60.25)
    made = service.client.post("/v1/datasets/toy-flagged/versions", json={"model": "toy", "from": "flags"})
    assert made.status_code == 201, made.text
    rows = service.client.get("/v1/datasets/toy-flagged/versions/newest/rows").content
    labels = {
        row["id"]: row["label.detections"]
        for row in pa.ipc.open_stream(io.BytesIO(rows)).read_all().to_pylist()
    }
    assert list(labels) == ["f15", "f16", "f22"]
    assert [box["left"] for box in labels["f16"]] == [pytest.approx(64.25)]
    assert [box["label"] for box in labels["f22"]] == ["car"]
    provenance = service.client.get("/v1/datasets/toy-flagged/versions/newest/provenance").json()["rows"]
    assert {row["label_source"] for row in provenance} == {"weak:cars.flicker", "weak:cars.label"}
    # A person says otherwise: the whole list, by the same intake.
    label = {"model": "toy", "id": "f30", "label": {"detections": [box(120.25)]}}
    assert service.client.post("/v1/labels", json=[label]).status_code == 202
    wait_until(lambda: service.count("labels") == 1, "label", service)
    again = service.client.post("/v1/datasets/toy-flagged/versions", json={"model": "toy", "from": "flags"})
    assert again.status_code == 201, again.text
    assert again.json()["rows"] == 4


def test_a_record_and_its_lists_can_be_read(service: Service) -> None:
    record = service.client.get("/v1/records/toy/f30").json()
    detections = record["record"]["outputs"]["detections"]
    assert [element["label"] for element in detections] == ["car", "cat"]
    page = service.client.get("/m/toy/records/f30", headers={"accept": "text/html"}).text
    assert "detections[1]" in page
    assert "label cat" in page


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_bad_element_is_named(service: Service) -> None:
    bad = frame(3) | {"id": "bad", "outputs": {"detections": [box(1.0), box(2.0) | {"left": "x"}]}}
    answer = service.post([bad])
    assert answer.status_code == 422
    (rejected,) = answer.json()["rejected"]
    assert (rejected["field"], rejected["reason"]) == (
        "outputs.detections[1].left",
        "expected float, got text 'x'",
    )
