"""Commands against a service on loopback: real HTTP, real key, real trainer thread."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from typer.testing import CliRunner

import outrider
from outrider import connection
from outrider.cli import app
from outrider.commands.api import connect
from outrider.commands.jobs import follow_job
from outrider.commands.label import parsed
from outrider.dataops.datasets.quarantine import hold
from outrider.dataops.improvement import gate
from outrider.dataops.improvement.verdicts import keep_verdict
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.dataset_reference import load_dataset
from outrider.errors import ConfigError, GateRefused, NotFound, OutriderError, ServerError
from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from tests.databases import migrated_for
from tests.gate_evidence import kept_evidence
from tests.model_sources import section_source
from tests.monitor.services import every_app
from tests.running_jobs import run_until
from tests.scopes import every_scope

CONFIG = """
[models.m]
architecture = "model.py:Net"
weights = "w"
inputs = ["x"]
classes = [0, 1]
gate = { held_out = "final" }
"""


class NoBlocks:
    def get(self, seq: int) -> "NoBlocks":
        raise KeyError(seq)

    @property
    def payload(self) -> bytes:
        return b""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    settings = load_settings(tmp_path / "outrider.toml")
    folder = settings.data_folder
    (folder / "run").mkdir(parents=True)
    engine = migrated_for(settings)
    objects = LocalObjects(folder / "objects")
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model="m",
            version="1",
            content=b"weights",
            is_weights=True,
            now_us=1,
            source=section_source(settings, "m"),
        )
        models.register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=2,
            source=section_source(settings, "m"),
        )
    shop = JobContext(settings, engine, objects, NoBlocks(), poll_s=0.01)
    trainer = threading.Thread(target=run_until, args=(shop,))
    keyring = Keyring.of_folder(folder)
    application = every_app(engine, settings=settings, objects=objects)
    gated: Any = KeyGate(application, keyring, routes=every_scope())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(gated, log_config=None, ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    (folder / "run" / "server.json").write_text(
        json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    )
    monkeypatch.chdir(tmp_path)
    for name in ("OUTRIDER_URL", "OUTRIDER_KEY", "OUTRIDER_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    thread.start()
    trainer.start()
    while not server.started:
        time.sleep(0.01)
    yield tmp_path
    server.should_exit = True
    shop.stop.set()
    thread.join()
    trainer.join()
    listener.close()
    engine.dispose()


def run(*arguments: str, code: int = 0) -> Any:
    """JSON that a command prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if isinstance(result.exception, OutriderError):
        raise result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def table(labels: list[int]) -> pa.Table:
    return pa.table(
        {"id": [f"r{row}" for row in range(len(labels))], "x": np.arange(float(len(labels))), "label": labels}
    )


def test_import_reads_files_as_people_send_them(project: Path) -> None:
    listed = table([0, 1, 1]).to_pylist()
    spans = {
        "inputs.price": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
        "inputs.wait": pa.array([5, 5, 5], pa.duration("ms")),
    }
    pq.write_table(pa.table(table([0, 1, 1]).to_pydict() | spans), project / "types.PARQUET")
    (project / "index.csv").write_text(",x,label\n0,0.5,0\n1,1.5,1\n")
    (project / "rows.JSONL").write_text("\ufeff" + "".join(f"{json.dumps(row)}\n" for row in listed), "utf-8")
    (project / "semicolon.csv").write_text("x;label\n0,5;0\n1,5;1\n")
    for file, rows in (("types.PARQUET", 3), ("index.csv", 2), ("rows.JSONL", 3)):
        found = run("dataset", "import", Path(file).stem, file, "--model", "m")
        assert found["rows"] == rows
    columns = run("dataset", "show", "types")["manifest"]["columns"]
    assert (columns["inputs.price"], columns["inputs.wait"]) == ("double", "double")
    assert "inputs.x" in run("dataset", "show", "index")["manifest"]["columns"]
    with pytest.raises(ConfigError, match=r"separated by ';'\? .*--delimiter"):
        run("dataset", "import", "s", "semicolon.csv", "--model", "m")
    named = ("--delimiter", ";", "--decimal", ",")
    assert run("dataset", "import", "s", "semicolon.csv", "--model", "m", *named)["rows"] == 2


def test_datasets_are_imported_listed_compared_and_written(project: Path) -> None:
    pq.write_table(table([0, 1, 1]), project / "train.parquet")
    np.savez(project / "train.npz", id=np.array(["r0", "r1"]), x=np.zeros((2, 2, 2)), label=np.array([0, 1]))
    first = run("dataset", "import", "train", "train.parquet", "--model", "m")
    assert (first["number"], first["rows"]) == (1, 3)
    second = run("dataset", "import", "images", "train.npz", "--model", "m")
    assert second["rows"] == 2
    pq.write_table(table([0, 1, 0]), project / "train.parquet")
    run("dataset", "import", "train", "train.parquet", "--model", "m")
    assert [item["number"] for item in run("dataset", "list")["datasets"]] == [1, 1, 2]
    assert run("dataset", "show", "train")["manifest"]["columns"]["inputs.x"] == "double"
    assert run("dataset", "diff", "train", "1", "2")["changed"] == ["r2"]
    told = CliRunner().invoke(app, ["dataset", "diff", "train", "1", "2"], env={"COLUMNS": "200"}).output
    assert told.splitlines()[0] == "0 added, 0 removed, 1 changed"
    assert re.search(r"r2\W+changed\W+label corrected, from train.parquet\W+1 → 0\W+train.parquet", told)
    assert run("dataset", "rows", "train", "--output", "rows.parquet", "--version", "1")["rows"] == 3
    assert pq.read_table("rows.parquet").column("label.label").to_pylist() == [0, 1, 1]
    run("dataset", "rows", "train", "--output", "told.parquet", "--provenance")
    told_rows = pq.read_table("told.parquet")
    assert told_rows.column("provenance.label_source").to_pylist() == ["train.parquet"] * 3
    assert told_rows.column("provenance.part").to_pylist() == ["train"] * 3
    again = run("dataset", "import", "again", "told.parquet", "--model", "m")
    assert again["rows"] == 3
    assert "provenance.part" not in run("dataset", "show", "again")["manifest"]["columns"]
    result = CliRunner().invoke(app, ["dataset", "list"])
    assert "train" in result.output
    with pytest.raises(GateRefused, match="no new flagged and labelled record"):
        run("dataset", "commit", "m")


def test_quarantined_records_are_listed_retried_and_dropped(project: Path) -> None:
    engine = open_database(load_settings(project / "outrider.toml").database_url)
    with write(engine) as connection:
        for name in ("a", "b"):
            hold(connection, "m-flagged", {name: "label.label: odd"}, rules="r", labels={}, now_us=1)
        hold(connection, "other", {"c": "odd"}, rules="r", labels={}, now_us=1)
    engine.dispose()

    def held(*more: str) -> dict[str, str]:
        rows = run("dataset", "quarantine", "list", *more)["quarantined"]
        return {row["record_id"]: row["state"] for row in rows}

    assert held() == {"a": "held", "b": "held", "c": "held"}
    assert held("--dataset", "other") == {"c": "held"}
    dropped = run("dataset", "quarantine", "drop", "--dataset", "m-flagged", "--id", "a")["quarantined"]
    assert [(row["record_id"], row["state"], row["reasons"]) for row in dropped] == [
        ("a", "dropped", "label.label: odd")
    ]
    with pytest.raises(NotFound, match="record 'z' is not in quarantine"):
        run("dataset", "quarantine", "retry", "--id", "b", "--id", "z")
    assert held("--state", "all") == {"a": "dropped", "b": "held", "c": "held"}
    run("dataset", "quarantine", "retry", "--dataset", "m-flagged")
    assert held("--state", "all") == {"a": "dropped", "b": "retried", "c": "held"}
    told = CliRunner().invoke(app, ["dataset", "quarantine"]).output
    assert "other" in told
    assert "m-flagged" not in told
    everything = CliRunner().invoke(app, ["dataset", "quarantine", "drop"])
    assert everything.exit_code == 2
    assert "--dataset for all that are held of" in everything.output


def test_a_label_is_given_or_withdrawn_not_both() -> None:
    for arguments in (["r1"], ["r1", "1", "--withdraw"]):
        result = CliRunner().invoke(app, ["label", "give", "m", *arguments])
        assert result.exit_code == 2
        assert "--withdraw expected, not both" in " ".join(result.output.replace("│", " ").split())


def test_rows_are_written_as_what_the_ending_says_and_times_are_times(project: Path) -> None:
    began = pd.Timestamp.now(tz="UTC")
    rows = table([0, 1]).append_column("inputs.said", pa.array(["=1+1", "-2"]))
    pq.write_table(rows.append_column("inputs.list", pa.array([[1, 2], None])), project / "train.parquet")
    run("dataset", "import", "train", "train.parquet", "--model", "m")
    readers: dict[str, Any] = {
        "csv": pd.read_csv,
        "jsonl": partial(pd.read_json, lines=True),
        "parquet": pd.read_parquet,
    }
    for ending, read in readers.items():
        written = read(project / run("dataset", "rows", "train", "--output", f"x.{ending}")["file"])
        assert list(written["id"]) == ["r0", "r1"], ending
        assert not {"received", "partial"} & set(written), "a dataset does not keep them"
        times = pd.to_datetime(written["ts"], utc=True)
        assert (times >= began.floor("s")).all(), "rows without a time have that of their import"
        quote = "'" if ending == "csv" else ""
        assert list(written["inputs.said"]) == [f"{quote}=1+1", f"{quote}-2"]
    assert pd.read_csv("x.csv")["inputs.list"][0] == "[1, 2]"
    assert not {"received"} & set(connection.connect().dataset("train"))
    with pytest.raises(OutriderError, match=r"--output: a file ending in \.parquet, \.csv, \.jsonl"):
        run("dataset", "rows", "train", "--output", "x.xlsx")


def test_versions_are_tagged_and_opened_by_tag_and_time(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for labels in ([0, 1, 1], [0, 1, 0]):
        pq.write_table(table(labels), project / "train.parquet")
        run("dataset", "import", "train", "train.parquet", "--model", "m")
    assert run("dataset", "tag", "train", "1", "first-labels")["version"] == 1
    with pytest.raises(OutriderError, match=r"tag 'first-labels' names train@1: .*--move"):
        run("dataset", "tag", "train", "2", "first-labels")
    for odd in ("7", "newest", "2026-11-01", "a/b"):
        with pytest.raises(OutriderError, match="tag: a letter, then up to 63 letters"):
            run("dataset", "tag", "train", "2", odd)
    assert run("dataset", "show", "train@first-labels")["number"] == 1
    assert run("dataset", "diff", "train", "first-labels", "newest")["changed"] == ["r2"]
    with pytest.raises(OutriderError, match="no tag 'first-label'; nearest: first-labels"):
        run("dataset", "show", "train@first-label")
    with pytest.raises(OutriderError, match="no dataset 'trian'; nearest: train"):
        run("dataset", "show", "trian")
    made = run("dataset", "show", "train@2")["created"]
    assert run("dataset", "show", f"train@{made}")["number"] == 2
    with pytest.raises(OutriderError, match="had no version then: the first is of "):
        run("dataset", "show", "train@2020-01-01")
    asked = ("--columns", "id,label.label", "--columns", "inputs.x", "--part", "train")
    run("dataset", "rows", "train@first-labels", "--output", "some.parquet", *asked)
    some = pq.read_table("some.parquet")
    assert some.column_names == ["id", "label.label", "inputs.x"]
    assert some.column("label.label").to_pylist() == [0, 1, 1]
    frame = connection.connect().dataset("train", "first-labels", columns=["label.label"])
    assert frame.to_dict("list") == {"label.label": [0, 1, 1]}
    with pytest.raises(OutriderError, match=r"train@1 has no column 'inputs.y'; nearest: inputs.x"):
        run("dataset", "rows", "train", "--version", "1", "--output", "x.csv", "--columns", "inputs.y")
    service = connect()
    monkeypatch.setenv("OUTRIDER_URL", service.url)
    monkeypatch.setenv("OUTRIDER_KEY", str(service.key))
    assert load_dataset("train@first-labels").column("label.label").tolist() == [0, 1, 1]
    served = outrider.open_dataset("train@first-labels", columns=["label.label"], cache=project / "cache")
    assert served.take([2, 0])["label.label"].tolist() == [1, 0]  # type: ignore[union-attr]  # numbers
    assert [path.suffix for path in sorted((project / "cache").iterdir())] == [".arrow", ".lock"]
    with pytest.raises(ConfigError, match="no tag 'frist-labels'; nearest: first-labels"):
        outrider.open_dataset("train@frist-labels", cache=project / "cache")
    assert run("dataset", "tag", "train", "2", "first-labels", "--move")["version"] == 2
    assert [tag["version"] for tag in run("dataset", "tag", "list", "train")["tags"]] == [2]
    shown = [run("dataset", "show", "train", "--version", number)["tags"] for number in ("1", "2")]
    assert shown == [[], ["first-labels"]]
    assert load_dataset("train@first-labels").column("label.label").tolist() == [0, 1, 0]
    run("dataset", "tag", "remove", "train", "first-labels")
    with pytest.raises(OutriderError, match="has no tag 'first-labels'; it has none"):
        run("dataset", "tag", "remove", "train", "first-labels")


def test_small_files_are_packed_and_old_ones_collected(project: Path) -> None:
    for labels in ([0, 1, 1], [0, 1, 0]):
        pq.write_table(table(labels), project / "train.parquet")
        run("dataset", "import", "train", "train.parquet", "--model", "m")
    assert (project / "outrider-data" / "arrow").exists() is False
    outrider.open_dataset("train")
    before = connection.connect().dataset("train", 1)
    packed = run("dataset", "compact", "train")
    assert (packed["objects_before"], packed["objects"], packed["packed_rows"]) == (2, 1, 6)
    assert "nothing to pack" in CliRunner().invoke(app, ["dataset", "compact", "train"]).output
    with pytest.raises(NotFound, match="no dataset 'trian'; nearest: train"):
        run("dataset", "compact", "trian")
    assert run("dataset", "gc", "--dry-run") == {"files": 0, "bytes": 0, "kinds": {}, "dry_run": True}
    for path in (project / "outrider-data").glob("objects/*/*"):
        os.utime(path, (time.time() - 90_000,) * 2)
    dry = run("dataset", "gc", "--dry-run", "--caches-older-than", "0")
    assert {kind: found["files"] for kind, found in dry["kinds"].items()} == {
        "caches": 2,  # the version and the lock of who wrote it
        "row files": 2,
        "sent tables": 2,
    }
    assert run("dataset", "gc", "--caches-older-than", "0") == dry | {"dry_run": False}
    assert "0 bytes in 0 files were freed" in CliRunner().invoke(app, ["dataset", "gc"]).output
    pd.testing.assert_frame_equal(connection.connect().dataset("train", 1), before)


CHECKS = """
from pathlib import Path

import numpy as np

from outrider.assertions import assertion
from outrider.assertions.library import contradicts_neighbours, low_score

KNOWN = np.load(Path(__file__).parent / "known.npz")
neighbours = contradicts_neighbours(
    KNOWN["x"], KNOWN["label"], classes=(0, 1), column="inputs.x", score="weight"
)
unsure = low_score()


@assertion
def needs_a_score(batch):
    return batch.column("outputs.score") < 0.5
"""


def test_a_dataset_version_is_checked_with_its_labels_as_outputs(project: Path) -> None:
    """Labels swapped among real digits are what stands out; assertions on scores concern no label."""
    from sklearn.datasets import load_digits

    images, truth = load_digits(n_class=2, return_X_y=True)
    np.savez(project / "known.npz", x=images[:150], label=truth[:150])
    given = truth[150:].copy()
    given[[3, 40, 77]] ^= 1
    ids = np.array([f"r{row}" for row in range(len(given))])
    np.savez(project / "labels.npz", id=ids, x=images[150:], label=given)
    run("dataset", "import", "digits", "labels.npz", "--model", "m")
    (project / "checks.py").write_text(CHECKS)
    with (project / "outrider.toml").open("a") as file:
        file.write('assertions = ["checks.py"]\n')
    found = run("dataset", "check", "digits@1")
    assert (found["version"], found["labelled"], found["flagged"]) == (1, len(given), 3)
    assert [row["id"] for row in found["suspicious"]] == ["r3", "r40", "r77"]
    counts = {row["assertion"]: row for row in found["assertions"]}
    assert counts["contradicts_neighbours"]["flags"] == 3
    assert counts["low_score"]["error"] == "reads outputs.score, which no label has"
    assert "no column 'outputs.score'" in counts["needs_a_score"]["error"]
    assert "contradicts_neighbours" in CliRunner().invoke(app, ["dataset", "check", "digits"]).output
    with pytest.raises(OutriderError, match="dataset 'digits' has no tag 'first'; it has none"):
        run("dataset", "check", "digits@first")


def drawn(rows: int, *, seed: int, shift: float = 0.0) -> pd.DataFrame:
    """Rows of one source, or of one that is shifted."""
    x = np.random.default_rng(seed).normal(5 + shift, 1, rows)
    return pd.DataFrame({"id": [f"r{row}" for row in range(rows)], "x": x, "label": (x > 5).astype(int)})


def test_a_suite_learned_from_a_version_lets_its_like_in_and_refuses_another(project: Path) -> None:
    """As a file of Great Expectations, from `expect` into the configuration."""
    drawn(400, seed=1).to_parquet("reference.parquet")
    drawn(300, seed=2).to_parquet("like.parquet")
    drawn(300, seed=3, shift=2).to_parquet("shifted.parquet")
    run("dataset", "import", "kept", "reference.parquet", "--model", "m")
    assert run("dataset", "expect", "kept@1", "--out", "suite.json")["expectations"] == 9
    written = json.loads((project / "suite.json").read_text())
    assert written["meta"]["outrider"]["version"] == 1
    assert written == run("dataset", "expect", "kept")
    with (project / "outrider.toml").open("a") as file:
        file.write('expectations = "suite.json"\n')
    run("dataset", "import", "like", "like.parquet", "--model", "m")
    run("dataset", "import", "shifted", "shifted.parquet", "--model", "m")  # the service knows no suite yet
    good = run("dataset", "validate", "like", "--full", "--docs", "docs.html")
    assert (good["refused"], good["quarantined"], good["warnings"]) == (None, [], [])
    assert "Great Expectations Version" in (project / "docs.html").read_text()
    bad = run("dataset", "validate", "shifted@1", "--full", code=1)
    assert "expect_column_mean_to_be_between(column='inputs.x'" in bad["refused"]
    assert "refused: " in CliRunner().invoke(app, ["dataset", "validate", "shifted", "--full"]).output
    written["expectations"] = [each | {"severity": "warning"} for each in written["expectations"]]
    (project / "suite.json").write_text(json.dumps(written))
    found = run("dataset", "validate", "shifted", "--full")
    fields = {(each["rule"], each["field"]) for each in found["warnings"]}
    assert ("expect_column_mean_to_be_between", "inputs.x") in fields
    kept = run("dataset", "validate", "shifted")
    assert (kept["rows"], kept["kept_out"], kept["warnings"]) == (300, 0, [])
    assert "300 rows judged" in CliRunner().invoke(app, ["dataset", "validate", "shifted"]).output
    with pytest.raises(ConfigError, match="--docs needs --full"):
        run("dataset", "validate", "like", "--docs", "x.html")


def test_the_data_docs_of_a_version_are_a_page_of_their_own(project: Path) -> None:
    drawn(40, seed=1).to_parquet("reference.parquet")
    run("dataset", "import", "kept", "reference.parquet", "--model", "m")
    api = connect()
    content, headers = api.get_page("/m/m/datasets/kept/1/data-docs")
    assert b"values must never be null" in content
    policy = {name.lower(): value for name, value in headers.items()}["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "sandbox" in policy
    with pytest.raises(NotFound):
        api.get_page("/m/other/datasets/kept/1/data-docs")
    with pytest.raises(NotFound):
        api.get_page("/m/m/datasets/kept/2/data-docs")


def test_a_file_that_is_no_table_is_a_config_error(project: Path) -> None:
    (project / "odd.parquet").write_text("no")
    with pytest.raises(ConfigError, match=r"odd\.parquet"):
        run("dataset", "import", "train", "odd.parquet", "--model", "m")


def test_a_verdict_names_its_policy(project: Path) -> None:
    settings = load_settings(project / "outrider.toml")
    engine = open_database(settings.database_url)
    policy = gate.Policy(file="gate.toml", digest="0123456789abcdef", text="version = 1")
    with write(engine) as connection:
        keep_verdict(
            connection, model="m", candidate="2", champion="1", promoted=False, reasons=["failed"],
            evidence=kept_evidence(policy=policy), now_us=1,
        )  # fmt: skip
    engine.dispose()
    (verdict,) = run("gate")["gates"]
    assert verdict["evidence"]["policy"]["text"] == "version = 1"
    assert "refused (policy gate.toml 0123456789ab)\n" in CliRunner().invoke(app, ["gate"]).output


def test_promotion_rollback_verdicts_and_lineage(project: Path) -> None:
    with pytest.raises(GateRefused, match="not judged"):
        run("promote", "m", "2")
    assert run("promote", "m", "2", "--force", "--reason", "seen")["status"] == "champion"
    assert run("lineage", "m")["id"] == "m@2"
    assert "replaced: model m@1" in CliRunner().invoke(app, ["lineage", "m"]).output
    assert run("rollback", "m")["version"] == "1"
    assert run("gate") == {"gates": []}
    assert CliRunner().invoke(app, ["gate", "m", "--check"]).exit_code == 1
    with pytest.raises(NotFound, match="no version '9'"):
        run("promote", "m", "9")


def test_a_retraining_that_fails_ends_with_1_and_says_why(project: Path) -> None:
    job = run("retrain", "m", "--from-scratch", "--epochs", "1", code=1)
    assert job["params"]["from_scratch"] is True
    assert "no row to train on" in job["result"]["error"]
    assert "failed" in CliRunner().invoke(app, ["retrain", "m"]).output


def test_jobs_are_listed_shown_and_tried_again(project: Path) -> None:
    failed = run("retrain", "m", "--from-scratch", "--epochs", "1", code=1)
    assert run("jobs", "list", "m")["jobs"][0] == run("jobs", "show", failed["id"])
    assert run("jobs", "list", "--open") == {"jobs": []}
    again = run("jobs", "retry", failed["id"])
    assert again["params"]["retry_of"] == failed["id"]
    ended = run("jobs", "show", again["id"], "--follow")
    assert ended["result"]["error"] == failed["result"]["error"]
    told = CliRunner().invoke(app, ["jobs", "show", again["id"]]).output
    assert f"retrain of m, failed\n  made {again['created']}" in told
    assert f"error: {failed['result']['error']}" in told
    listed = CliRunner().invoke(app, ["jobs"]).output
    assert again["id"] in listed
    for action, ended_as in (("cancel", "failed: only an open job"), ("retry", "")):
        came = CliRunner().invoke(app, ["jobs", action, "job_x" if action == "retry" else again["id"]])
        assert came.exit_code != 0
        assert ended_as in str(came.exception)


def test_progress_is_told_once_for_a_stage_and_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("outrider.commands.jobs.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("outrider.commands.jobs.time.sleep", lambda _: None)
    stages = ["", "dataset", *["train"] * 8, "gate"]
    seen: list[dict[str, Any]] = [
        {"id": "job_1", "status": "running", "stage": stage, "result": {}} for stage in stages
    ]
    seen.append({"id": "job_1", "status": "done", "stage": "gate", "result": {}})
    answers = iter(seen[1:])

    class Service:
        def get(self, path: str) -> dict[str, Any]:
            assert path == "/v1/jobs/job_1"
            return next(answers)

    ended = follow_job(Service(), seen[0])  # type: ignore[arg-type]  # all that it asks
    assert ended["status"] == "done"
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["job_1: running", "job_1: dataset"]
    assert lines[-1] == "job_1: gate"
    assert lines.count("job_1: train") == 3  # of eight looks, four seconds apart


def test_the_label_queue(project: Path) -> None:
    assert run("label", "request", "m", "--budget", "3") == {"requests": []}
    assert run("label", "list", "--status", "all") == {"requests": []}
    assert "no request is open" in CliRunner().invoke(app, ["label", "list"]).output
    assert "nothing to choose" in CliRunner().invoke(app, ["label", "request", "m"]).output
    assert "label request m" in CliRunner().invoke(app, ["label", "estimate", "m"]).output


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("true", True), ("0.5", 0.5), ("cat", "cat"), ('{"a":1}', '{"a":1}')]
)
def test_label_values_are_numbers_truth_values_or_texts(text: str, value: object) -> None:
    assert parsed(text) == value


def test_without_the_key_the_exit_code_is_4(project: Path) -> None:
    command = [sys.executable, "-m", "outrider", "dataset", "list"]
    environment = {"OUTRIDER_KEY": "wrong", "PATH": "/usr/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "refused the key" in done.stderr


def test_no_service_is_a_server_error(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (project / "outrider-data" / "run" / "server.json").rename(project / "away.json")
    monkeypatch.setenv("OUTRIDER_SERVER__PORT", "0")
    with pytest.raises(ServerError, match="start `outrider serve`"):
        connect()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("OUTRIDER_URL", url)
    with pytest.raises(ServerError, match="does not answer"):
        connect().get("/v1/datasets")
    monkeypatch.setenv("OUTRIDER_URL", "file:///etc/passwd")
    with pytest.raises(ConfigError, match="http:// or https://"):
        connect()


def test_help_of_a_command_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'great_expectations', 'pandas', 'pyarrow', 'sqlalchemy'}"
    for name in ("dataset", "lineage", "retrain", "gate", "promote", "rollback", "label"):
        code = f"import sys, outrider.commands.{name}; assert not {heavy} & set(sys.modules), sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


FAILING = """
from outrider.behavioral_tests import DIR, INV, MFT, expect, perturb

more = perturb.column("x", lambda x, rng: x + 1.0)
test_high = MFT(cases=[{"x": 9.0}, {"x": 1.0}, {"x": 8.0}], labels=[1, 0, 1])
test_nudged = INV(cases=[{"x": 0.4}, {"x": 3.0}], perturb=more)
test_more = DIR(cases=[{"x": 2.0}], perturb=more, expect=expect.monotone("score", direction="increasing"))
"""
LOW = """
import numpy as np

def predict(batch):
    x = batch.column("inputs.x")
    return {"label": (x < 1.0).astype(int), "score": -x}
"""


def test_failed_cases_become_a_version_to_learn_from(project: Path) -> None:
    (project / "behavior").mkdir()
    (project / "behavior" / "test_x.py").write_text(FAILING)
    (project / "low.py").write_text(LOW)

    def keep(name: str, *more: str) -> str:
        arguments = ["test", "--model", "low.py:predict", "--failed-to-dataset", name, *more]
        result = CliRunner().invoke(app, arguments)
        if isinstance(result.exception, OutriderError):
            raise result.exception
        assert result.exit_code == 1, result.output
        return result.stderr

    told = keep("hard")
    assert "not in hard: 1 failed cases: no right answer" in told
    assert "not in hard: 1 failed cases: a direction" in told
    assert "hard: version 1, 2 rows, from behavioral test, m@low.py:predict" in told
    api = connect()
    rows = api.get("/v1/datasets/hard/versions/newest/provenance")["rows"]
    assert rows == [
        {
            "record_id": f"test_x/test_high/{case}",
            "assertion": "test_x/test_high",
            "label_source": "behavioral test, m@low.py:predict",
            "part": "train",
            "label_seq": None,
            "label_row": None,
            "model_version": None,
            "flags": [],
            "reviewer": None,
            "weight": None,
        }
        for case in (0, 2)
    ]
    shown = run("dataset", "show", "hard")
    assert set(shown["manifest"]["columns"]) >= {"inputs.x", "label.label"}
    assert not [name for name in shown["manifest"]["columns"] if name.startswith("provenance")]
    assert shown["manifest"]["validation"]

    assert "3 rows" in keep("hard", "--weak-labels")
    rows = api.get("/v1/datasets/hard/versions/newest/provenance")["rows"]
    assert [row["label_source"] for row in rows if "nudged" in row["record_id"]] == [
        "weak:behavioral test, m@low.py:predict"
    ]
    run("dataset", "rows", "hard", "--output", "rows.parquet")
    kept = pq.read_table("rows.parquet")
    nudged = kept.filter(pa.compute.match_substring(kept["id"], "nudged"))
    assert nudged.column("inputs.x").to_pylist() == [1.4]
    assert nudged.column("label.label").to_pylist() == [1]  # what the model said to 0.4


def test_failed_cases_never_join_what_candidates_are_judged_on(project: Path) -> None:
    (project / "behavior").mkdir()
    (project / "behavior" / "test_x.py").write_text(FAILING)
    (project / "low.py").write_text(LOW)
    for name, told in (("final", "held out to judge candidates"), ("m-flagged", "collects flagged")):
        arguments = ["test", "--model", "low.py:predict", "--failed-to-dataset", name]
        error = CliRunner().invoke(app, arguments).exception
        assert isinstance(error, OutriderError)
        assert told in str(error)
    assert run("dataset", "list")["datasets"] == []
