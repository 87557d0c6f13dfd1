"""doctor: what it says of the assertions that a project configures."""

from pathlib import Path

import pytest

from outrider.assertions import Batch
from outrider.commands import doctor
from outrider.dataops import confinement
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.monitor.settings.config import load_settings

CONFIG = """
[models.m]
predictor = "model.py:predict"
assertions = ["checks.py", "broken.py"]
"""

CHECKS = """
from outrider.assertions import Window, assertion
print("noise on stdout")

@assertion
def high(batch):
    return batch.column("inputs.x") > 5

@assertion(per_record=True)
def high_record(record):
    return record["inputs.x"] > 5

@assertion(window=Window(rows=2))
def rising(view):
    return view.previous("inputs.x", null=9) < view.column("inputs.x")

@assertion
def ends(batch):
    raise SystemExit("no")
"""


def project(folder: Path) -> Path:
    (folder / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    (folder / "broken.py").write_text("import nowhere\n", encoding="utf-8")
    return folder / "outrider.toml"


def test_assertions_are_measured_over_the_latest_records(tmp_path: Path) -> None:
    config = project(tmp_path)
    settings = load_settings(config)
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    journal = SqliteJournal(settings.journal_path)
    for columns in ({"inputs.x": ["old", "type"]}, {"inputs.x": [1.0, 7.0]}, {"inputs.x": [2.0, 8.0]}):
        batch = Batch.from_columns(columns, model="m")
        journal.append([Entry("records", "m", 2, batch.to_ipc())], received_us=1)
    journal.close()
    costs = doctor._assertion_costs(config)
    assert list(costs) == ["m/high", "m/high_record", "m/rising", "m/ends", "m/broken.py"]
    assert costs["m/high"].endswith("µs per record")
    assert costs["m/high_record"].endswith("µs per record (per_record)")
    assert costs["m/rising"].endswith("µs per record")
    assert costs["m/ends"] == "SystemExit: no"
    assert "No module named 'nowhere'" in costs["m/broken.py"]


def test_without_records_assertions_are_named_all_the_same(tmp_path: Path) -> None:
    costs = doctor._assertion_costs(project(tmp_path))
    assert costs["m/high_record"] == "no records stored yet (per_record)"
    assert doctor._assertion_costs(tmp_path / "nowhere.toml") == {}


def test_doctor_says_what_processes_of_uploaded_models_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, sentence in ((7, "can read nothing else (Landlock 7)"), (0, "this kernel has no Landlock")):
        monkeypatch.setattr(confinement, "landlock_version", lambda version=version: version)
        assert sentence in doctor._uploaded_models()
