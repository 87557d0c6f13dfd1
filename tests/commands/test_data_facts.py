"""What doctor says of a data folder."""

from pathlib import Path

import pytest

from outrider.commands.data_facts import data_facts, forecast
from outrider.dataops.state.database import write
from outrider.dataops.state.pauses import pause
from outrider.monitor.settings.reload import Reload
from outrider.monitor.settings.sections import StorageSettings
from tests.end_to_end.service import write_project
from tests.monitor.workbench import workbench


def test_bytes_per_record_and_days_left_are_those_of_the_files(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        for number in range(5):
            bench.feed([{"id": f"{number}-{n}", "inputs": {"x": 0.1}} for n in range(50)], after_s=60)
        bench.work()
        facts = data_facts(bench.config)
        assert facts["records"] == 250
        assert facts["bytes_per_record"] == round(bench.journal.used_bytes() / 250, 1)
        assert facts["state_bytes_per_record"] == round(facts["state_bytes"] / 250, 1)
        assert facts["payload_days"] == 7.0
        assert facts["days_left"] is None or facts["days_left"] > 0
        assert "paused" not in facts
        with write(bench.engine) as connection:
            pause(connection, "shadow", model="", who="", now_us=1)
        assert data_facts(bench.config)["paused"] == "shadow of every model"


def test_a_refused_configuration_is_named_beside_what_runs(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    (tmp_path / "outrider-data" / "run").mkdir(parents=True)
    change = Reload(config, tmp_path / "outrider-data", check=["false"])
    change.accept_first()
    config.unlink()
    change.begin()
    config.write_text("[broken")
    facts = data_facts(config)
    assert "cannot be read" in facts["config_refused"]
    assert "cannot be read" in facts["config"]
    assert facts["journal"] == "none yet"
    assert "not found" in data_facts(tmp_path / "nothing.toml")["config"]


@pytest.mark.parametrize("free", [0, 1, 11, 17, 30, 41, 43, 47, 51, 53, 250])
def test_days_left_are_those_of_a_disk_that_is_filled_day_by_day(free: int) -> None:
    """Payloads of 10 a day go after 2 days, rows of 1 a day after 30, hashes of 0.5 a day 20 days later."""
    storage = StorageSettings(
        journal_max_bytes=100_000, min_free_bytes=0, keep_days=2, keep_rows_days=30, keep_ids_days=20
    )
    found = forecast(
        storage, free=free, journal=5, state=3, payloads_per_day=10, state_per_day=1, ids_per_day=0.5
    )
    step, journal, state, ids = 0.01, 5.0, 3.0, 0.0
    for number in range(10_000):
        if journal - 5 + state - 3 + ids >= free - 1e-6:
            assert found["days_left"] == pytest.approx(number * step, abs=0.1)
            return
        ids = min(ids + 0.5 * step, 0.5 * 20) if state >= 30 - 1e-6 else ids
        journal, state = min(journal + 10 * step, 20), min(state + step, 30)
    assert found["days_left"] is None
