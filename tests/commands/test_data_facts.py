"""What doctor says of a data folder."""

from pathlib import Path

from outrider.commands.data_facts import data_facts
from outrider.dataops.state.database import write
from outrider.dataops.state.pauses import pause
from outrider.monitor.settings.reload import Reload
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
        assert facts["days_left"] > 0
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
