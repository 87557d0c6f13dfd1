"""Several models in one configuration: none waits for another."""

from pathlib import Path

from outrider.dataops.journal.journal import Entry
from tests.end_to_end.service import CONFIG, write_project

from .workbench import workbench

SECOND = """
[models.late]
predictor = "late.py:predict"
inputs = ["x"]
assertions = ["checks.py"]
"""


def test_a_model_whose_code_does_not_exist_yet_holds_up_no_other(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + SECOND)
    with workbench(config) as bench:
        bench.feed([{"id": "r0", "inputs": {"x": 0.95}}])
        bench.work()
        assert bench.flags("too_high") == {"r0"}
        (tmp_path / "late.py").write_text((tmp_path / "model.py").read_text(encoding="utf-8"), "utf-8")
        bench.worker._refresh(force=True)
        assert bench.rows("SELECT version FROM model_version WHERE model = 'late'") == [("1",)]


def test_a_registered_model_outlives_the_file_it_came_from(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + SECOND)
    (tmp_path / "late.py").write_text("def predict(batch):\n    return {}\n", encoding="utf-8")
    with workbench(config) as bench:
        (tmp_path / "late.py").unlink()
        bench.restart()
        assert bench.worker.step() is False


def test_a_quiet_model_does_not_read_the_traffic_of_the_others_again(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + SECOND.replace("late.py", "model.py"))
    with workbench(config) as bench:
        for number in range(3):
            last = bench.feed([{"id": f"r{number}", "inputs": {"x": 0.95}}])
        bench.work()
        assert bench.worker.context.cursors["late", "champion"] == last
        entry = Entry(kind="records", model="late", rows=0, payload=b"not arrow")
        bench.journal.append([entry], bench.now_us)
        bench.work()
        assert bench.rows("SELECT model, reason FROM dead_letter") == [("late", "unreadable")]
