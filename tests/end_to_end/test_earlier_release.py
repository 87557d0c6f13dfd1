"""The service starts on what an earlier release left behind, as a crash left it, and judges on.

The folder was recorded from that release by ``record_release.py``.
"""

import json
import sqlite3
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.dataops.journal.journal import FORMAT_VERSION, SqliteJournal
from outrider.dataops.state.migrations import HEAD
from outrider.monitor.migrate import migrate
from outrider.monitor.process.stores import open_stores
from outrider.monitor.settings.config import load_settings
from tests.soak import PATIENCE_S

from .service import Service, write_project

ARCHIVES = sorted((Path(__file__).parent / "data").glob("*.tar.xz"))


def unpacked(archive: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A project with the recorded data; its configuration, and what the release said of it."""
    config = write_project(folder)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return config, json.loads((folder / "outrider-data" / "told.json").read_text())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_everything_is_still_there_and_judged_on(archive: Path, tmp_path: Path) -> None:
    config, told = unpacked(archive, tmp_path)
    assert told["revision"] != HEAD
    with Service(config) as service:
        service.wait_judged(told["records"] + told["backlog"])
        assert service.count("records") == told["records"] + told["backlog"]
        assert service.count("labels") == 5
        flags = {row[0] for row in service.query("SELECT id FROM flag")}
        assert set(told["ids"]) <= flags  # none was made anew under another id, none is gone
        late = service.query(
            "SELECT record_id FROM flag WHERE assertion = 'too_high' AND record_id LIKE 'late%'"
        )
        assert late == [("late19",)]
        assert service.query("SELECT flag_id FROM review") == [(told["flag"],)]
        # What a person suspended stays suspended: the block that waited is not judged by it.
        unsure = "SELECT count(*) FROM flag WHERE assertion = 'unsure' AND record_id LIKE 'late%'"
        assert service.query(unsure) == [(0,)]
        record = service.client.get("/v1/records/toy/a19").json()
        assert "0.95" in json.dumps(record)
        service.post([{"id": "new", "inputs": {"x": 0.95}}, {"id": "a1", "inputs": {"x": 0.05}}])
        service.wait_judged(told["records"] + told["backlog"] + 1)
        assert service.query("SELECT version_num FROM alembic_version") == [(HEAD,)]
    with sqlite3.connect(service.folder / "journal.db") as journal:
        assert journal.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    journal.close()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_replay_finds_what_the_earlier_release_found(archive: Path, tmp_path: Path) -> None:
    config, _ = unpacked(archive, tmp_path)
    settings = load_settings(config)
    migrate(settings)
    SqliteJournal(settings.journal_path).close()  # what intake does first
    told = CliRunner().invoke(app, ["replay", "toy", "--check", "--write", "--config", str(config)])
    assert told.exit_code == 0, told.output
    assert "0 flags written" in told.output


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_reader_that_comes_before_intake_waits_for_the_upgrade(archive: Path, tmp_path: Path) -> None:
    config, _ = unpacked(archive, tmp_path)
    settings = load_settings(config)
    migrate(settings)
    opened: list[Any] = []
    reader = threading.Thread(target=lambda: opened.append(open_stores(settings, threading.Event())))
    reader.start()
    time.sleep(0.5)
    assert reader.is_alive()
    assert opened == []
    SqliteJournal(settings.journal_path).close()  # what intake does first
    reader.join(PATIENCE_S)
    journal, engine = opened[0]
    assert journal.last_seq() > 0
    engine.dispose()
    journal.close()
