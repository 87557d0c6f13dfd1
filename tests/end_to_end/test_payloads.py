"""Images from a client and from files, through a real service, to flags and the page."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from outrider.monitor.client import Client
from tests.commands.test_replay_files import logged
from tests.monitor.payload_project import encoded, stored_at, write_project
from tests.soak import PATIENCE_S

from .service import Service, outrider, wait_until


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_images_reach_flags_and_the_page_however_they_came(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    images = tmp_path / "images"
    bright, dark = encoded(0.95), encoded(0.1, kind="JPEG")
    by_uri = stored_at(images / "r.png", encoded(0.97))
    with Service(config) as service:
        key = (service.folder / "key").read_text().strip()
        client = Client(url=str(service.client.base_url), key=key, model="toy")
        client.capture({"image": bright}, None, id="c0")
        client.capture({"image": dark, "note": "CALM"}, None, id="c1")
        assert client.flush(PATIENCE_S)
        client.close()
        body = {"model": "toy", "id": "u0", "inputs": {"image": by_uri}}
        assert service.client.post("/v1/records", json=body).status_code == 202

        table = pa.table(
            {
                "name": ["f0", "f1", "f2"],
                "image": [
                    {"bytes": bright, "path": "a.png"},
                    {"bytes": dark, "path": "b"},
                    {"bytes": b"?", "path": ""},
                ],
            }
        )
        pa.parquet.write_table(table, tmp_path / "set.parquet")
        told = service.run_command(
            "replay", "set.parquet", "--model", "toy", "--id", "name", "--resume", "state.json"
        )
        assert (told["rows"], told["accepted"], told["rejected"]) == (3, 3, 0)
        again = service.run_command(
            "replay", "set.parquet", "--model", "toy", "--id", "name", "--resume", "state.json"
        )
        assert again["rows"] == 0

        (tmp_path / "more.jsonl").write_text(
            '{"x": 1}\n{"inputs": {"image": 7}}\nno json\n{"inputs": {"x": 2}}\n'
        )
        done = outrider(tmp_path, "replay", "more.jsonl", "--model", "toy", "--json")
        assert done.returncode == 1, done.stderr
        problems = json.loads(done.stdout)["problems"]
        # Rows 1 and 4 lack the declared input, which intake refuses unless told to flag it.
        assert sorted((one["row"], one["field"]) for one in problems) == [
            (1, "inputs"),
            (2, "inputs.image"),
            (3, ""),
            (4, "inputs"),
        ]

        service.wait_judged(5)
        wait_until(
            lambda: bool(service.query("SELECT 1 FROM dead_letter WHERE record_id = 'f2'")), "f2", service
        )
        flagged = {row[0] for row in service.query("SELECT record_id FROM flag WHERE assertion = 'glaring'")}
        assert flagged == {"c0", "u0", "f0"}

        page = service.client.get("/m/toy/records/c0").text
        assert "/m/toy/images/records/inputs.image/c0" in page
        assert "image/png" in page
        shown = service.client.get("/m/toy/images/records/inputs.image/c0")
        assert (shown.content, shown.headers["content-type"]) == (bright, "image/png")
        assert shown.headers["x-content-type-options"] == "nosniff"
        assert service.client.get("/m/toy/images/records/inputs.image/u0").content == encoded(0.97)
        digest = hashlib.sha256(encoded(0.97)).hexdigest()
        assert (service.folder / "objects" / digest[:2] / digest).exists()
        record = service.client.get("/v1/records/toy/c1").json()["record"]
        assert record["inputs"]["image"] == {"media_type": "image/jpeg", "bytes": len(dark)}
        assert record["inputs"]["note"] == "CALM"

        # Judging stored traffic again still has the command's name, and finds the same.
        compared = service.run_command("replay", "toy", "--check")
        assert {row["assertion"]: row["same"] for row in compared["assertions"]}["glaring"] == 3


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_table_is_replayed_with_labels_as_it_came(tmp_path: Path) -> None:
    from .service import write_project as toy

    config = toy(tmp_path)
    count = 500
    at = 1_700_000_000_000_000 + np.arange(count) * 2_000
    table = pa.table(
        {
            "event": [f"e{n}" for n in range(count)],
            "when": pa.array(at).cast(pa.timestamp("us")),
            "x": np.linspace(0, 1, count),
            "device": ["a"] * count,
            "truth": [int(n > count / 2) for n in range(count)],
        }
    )
    pa.parquet.write_table(table, tmp_path / "day.parquet")
    names = ("--id", "event", "--ts", "when", "--attrs", "device", "--map", "label.label=truth")
    with Service(config) as service:
        told = service.run_command(
            "replay", "day.parquet", "--model", "toy", "--speed", "1", "--restamp", *names
        )
        assert (told["accepted"], told["rejected"]) == (2 * count, 0)
        assert told["seconds"] >= 0.99  # a second of traffic
        service.wait_judged(count)
        wait_until(lambda: service.count("labels") == count, "labels", service)
        assert service.query("SELECT count(*) FROM flag WHERE assertion = 'too_high'")[0][0] == 50

        # What KServe's logger stored is joined as if it had sent it.
        for kind, body in (("request", {"instances": [0.99]}), ("response", {"predictions": [1]})):
            (tmp_path / "blobs").mkdir(exist_ok=True)
            (tmp_path / "blobs" / f"5b3c-{kind}.json").write_text(json.dumps([logged(kind, body)]))
        done = outrider(tmp_path, "replay", "blobs/", "--model", "toy", "--json")
        told = json.loads(done.stdout)
        assert told["problems"] == []
        assert (told["rows"], told["rejected"]) == (2, 0)
        service.wait_judged(count + 1)
        assert service.query("SELECT predicted FROM record WHERE id = '7'") == [("1",)]

        # Labels of a file that is repaired are neither lost nor doubled.
        labels = ["id,label.label,source", *(f"e{n},{n % 2},ann" for n in range(20)), "e20,1,ann,x"]
        path = tmp_path / "labels.csv"
        path.write_text("\n".join(labels))
        done = outrider(tmp_path, "replay", "labels.csv", "--model", "toy", "--json")
        assert (done.returncode, json.loads(done.stdout)["accepted"]) == (1, 20)
        path.write_text("\n".join([*labels[:-1], "e20,1,ann"]).replace("e7,1", "e7,0"))
        assert service.run_command("replay", "labels.csv", "--model", "toy")["rejected"] == 0
        service.run_command("replay", "labels.csv", "--model", "toy")
        service.run_command("label", "give", "toy", "e499", "1")
        wait_until(
            lambda: bool(service.query("SELECT 1 FROM label WHERE source = 'human'")), "labels", service
        )
        told = service.query("SELECT record_id, count(*) FROM label WHERE source = 'ann' GROUP BY record_id")
        assert dict(told) == {f"e{n}": 1 + (n == 7) for n in range(21)}
        assert service.query("SELECT count(*) FROM dead_letter") == [(0,)]
