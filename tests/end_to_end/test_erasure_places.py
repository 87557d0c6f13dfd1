"""Every place that may hold a person: the marker is found there first, and nowhere once it is erased."""

import json
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

from outrider.dataset_reference import open_dataset
from tests.comparison_reports import report
from tests.monitor import payload_project
from tests.scan import places

from .loop import Receiver
from .service import CONFIG, Service, outrider, wait_until, write_project
from .test_erasure import DEVICE, ENTITY, MARKERS, NUMBER, TEXT, record_a_person

PICTURES = (
    payload_project.CONFIG.replace("toy", "pics")
    .replace("model.py", "pics.py")
    .replace("checks.py", "look.py")
)
EXPECTED = """
[[models.toy.expectations]]
type = "expect_column_max_to_be_between"
severity = "warning"
kwargs = { column = "x", max_value = 0.9 }
"""


def write_places(folder: Path, inbox: Receiver) -> Path:
    """Project of a model of numbers and one of pictures, with webhooks and a suite folder."""
    hook = f'\n[[webhooks]]\nurl = "{inbox.url}"\nevents = ["incident.opened"]\nallow_private = true\n'
    hook += f'secret = "whsec_{"c2VjcmV0" * 4}"\n'
    own_suites = CONFIG.replace('["test_toy.py"]', '["test_toy.py", "suites"]')
    config = write_project(folder, config=own_suites + EXPECTED + PICTURES + hook)
    (folder / "pics.py").write_text(payload_project.MODEL)
    (folder / "look.py").write_text(payload_project.CHECKS)
    for name in ("images", "suites"):
        (folder / name).mkdir()
    (folder / "suites" / "some.suite.json").write_text(
        json.dumps({"outrider_suite": 1, "name": "some", "tests": []})
    )
    return config


def picture(path: Path, brightness: int) -> None:
    """Picture whose file says whose it is."""
    text = PngImagePlugin.PngInfo()
    text.add_text("owner", f"zq7f-{path.stem}")
    Image.new("L", (6, 5), brightness).save(path, "PNG", pnginfo=text)


def plant_pictures(service: Service) -> None:
    """Pictures by reference and as bytes, flagged, so that the referenced ones are kept for good."""
    images = service.config.parent / "images"
    for name, brightness in (("kept", 250), ("plain", 30), ("sent", 247)):
        picture(images / f"{name}.png", brightness)
    sent = payload_project.inline((images / "sent.png").read_bytes())
    noted = payload_project.inline(f"{TEXT}, at length".encode())
    inputs = [
        {"image": payload_project.stored_at(images / f"{name}.png", (images / f"{name}.png").read_bytes())}
        for name in ("kept", "plain")
    ]
    records = [
        {"model": "pics", "id": f"zq7f-p{at}", "entity": ENTITY, "inputs": given}
        for at, given in enumerate([*inputs, {"image": sent, "note": noted}])
    ]
    answer = service.client.post("/v1/records", json=records)
    assert answer.json()["accepted"] == 3, answer.text
    wait_until(
        lambda: len(service.query("SELECT 1 FROM flag WHERE model = 'pics' AND assertion = 'glaring'")) == 2,
        "flagged pictures",
        service,
    )


def plant_comparisons(service: Service) -> None:
    """A kept comparison and one that runs, each with a pair of the person."""
    for at, ended in enumerate(("decided", "running")):
        found = report() | {"ended": ended}
        pair = found["candidates"][1]["examples"][0]
        mine = {"id": "zq7f-1", "inputs": {"x": NUMBER, "note": TEXT}, "production": TEXT}
        found["candidates"][1]["examples"].append(pair | mine)
        found["candidates"][1]["to_label"].append(pair | mine | {"right": None})
        kept = service.client.put(f"/v1/comparisons/{at:016x}", json=found)
        assert kept.status_code == 200, kept.text


def plant_suites(service: Service) -> None:
    """Cases of the person in the model's suite and in a configured folder; one fails, and is published."""
    folder = service.config.parent
    for arguments in (
        ["--record", "zq7f-1"],
        ["--record", "zq7f-2", "--to", str(folder / "suites" / "more.suite.json")],
    ):
        added = service.run_command("test", "add", *arguments, "--model", "toy", "--label", "0")
        assert [row["state"] for row in added["cases"]] == ["added"]
    served = service.client.get("/v1/models").json()["models"]
    (version,) = [one["version"] for one in served if one["model"] == "toy"]
    failed = outrider(
        folder, "test", "behavior", "suites", "--model", "model.py:predict", "--publish",
        "--version", f"toy@{version}", "--save-failed", "behavior/failed.suite.json", "--json",
    )  # fmt: skip
    assert failed.returncode == 1, failed.stderr
    assert (folder / "behavior" / "failed.suite.json").exists()


def plant_proposals(service: Service) -> None:
    """Assertions that are learned from what is stored: the devices that there are."""
    for block in range(8):
        rows = [
            {
                "id": f"zq7f-{block}x{n}" if n % 2 else f"w{block}-{n}",
                "entity": ENTITY if n % 2 else f"w{n}",
                "inputs": {"x": n / 100, "note": TEXT if n % 2 else "note"},
                "attrs": {"device": DEVICE if n % 2 else "web"},
            }
            for n in range(100)
        ]
        assert service.post(rows).status_code == 202
    assert service.client.post("/v1/proposals", json={"model": "toy"}).status_code == 202
    wait_until(
        lambda: service.client.get("/v1/proposals", params={"model": "toy"}).json()["status"] == "done",
        "proposals",
        service,
    )


def plant_refusals(service: Service) -> None:
    """A record of the person that is refused, which the book of refusals quotes."""
    refused = {"id": "zq7f-refused", "entity": ENTITY, "inputs": {"x": "no number"}}
    assert service.post([refused]).status_code in (202, 422)
    wait_until(
        lambda: any(b"zq7f" in path.read_bytes() for path in (service.folder / "run").glob("refused*.json")),
        "a refusal that is written",
        service,
    )


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_everything_planted_is_found_and_then_nothing(tmp_path: Path) -> None:
    inbox = Receiver()
    with inbox.listen():
        config = write_places(tmp_path / "project", inbox)
        with Service(config) as service:
            record_a_person(service)
            plant_pictures(service)
            plant_comparisons(service)
            plant_suites(service)
            plant_proposals(service)
            plant_refusals(service)
            open_dataset("toy-own@1", folder=config.parent)
            backup = tmp_path / "backup"
            service.run_command("backup", str(backup))
            wait_until(lambda: any(one.status == 204 for one in inbox.deliveries), "a delivery", service)
            # The pictures by reference are the sender's own, the log is not the service's to keep.
            theirs = ["serve.log", *(f"images/{path.name}" for path in (config.parent / "images").iterdir())]
            found = places(config.parent, MARKERS, but=theirs)
            opened = {one.partition(" > ")[2] for one in found if f"{DATA}objects/" in one}
            assert {"", *OBJECTS} <= opened, "pictures, versions, data docs and tables that were sent"
            for place in EVERYWHERE:
                assert any(place in one for one in found), f"{place}: {sorted({*found})}"
            told = service.run_command("dataset", "erase", "--subject", ENTITY, "--yes")
            assert [text.partition(" (")[0] for text in told["backups"]] == [str(backup)]
            assert told["counts"]["payloads"] == 4, "two kept or cached twice"
            wait_until(service.is_ready, "a service that is back", service)
            for page in ("/", "/m/toy", "/datasets", "/compare"):
                assert "zq7f" not in service.client.get(page).text
            assert service.stop() == 0
        assert places(config.parent, MARKERS, but=theirs) == []
        assert places(backup, MARKERS), "a backup is named, not changed"


DATA = "outrider-data/"
OBJECTS = ("parquet", "gzip", "arrow stream")
EVERYWHERE = (
    *(
        f"{DATA}{one}"
        for one in (
            "journal.db block",
            "journal.db half",
            *(
                f"state.db {table}"
                for table in (
                    *("record", "flag", "label", "live_answer", "dead_letter", "outbox", "incident"),
                    *("window_checkpoint", "suite_outcome", "dataset_row", "dataset_version", "answer"),
                    *("flag_count", "record_count", "strike"),
                )
            ),
            "payloads/",
            "arrow/",
            "proposals/",
            "comparisons/0000000000000000.json",
            "comparisons/0000000000000001.json",
            "run/refused.json",
        )
    ),
    "behavior/toy.incidents.suite.json",
    "behavior/failed.suite.json",
    "suites/more.suite.json",
)
"""Places of the project folder that hold the person before."""
