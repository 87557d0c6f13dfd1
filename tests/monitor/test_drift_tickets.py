"""The worker opens a ticket where columns of its traffic drift, and no page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.dataops.alarms.stored_incidents import open_alarms
from tests.end_to_end.service import CONFIG, write_project

from .workbench import workbench

MINUTES = """
[flags]
drift_window_s = 60
"""


def minute(rng: np.random.Generator, number: int, *, age: float) -> list[dict[str, Any]]:
    ages, x = rng.normal(age, 9, 300), rng.uniform(0, 0.89, 300)
    return [
        {"id": f"r{number}-{row}", "inputs": {"x": float(x[row])}, "attrs": {"age": float(ages[row])}}
        for row in range(300)
    ]


@pytest.mark.costly("hours of minutes pass")
def test_a_column_that_moves_minute_by_minute_is_a_ticket_of_the_worker(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with workbench(write_project(tmp_path, config=CONFIG + MINUTES)) as bench:
        for number in range(34):
            bench.feed(minute(rng, number, age=41 if number < 28 else 60), after_s=60)
            bench.work()
            if number == 14:
                bench.restart()
        found = bench.rows(
            "SELECT kind, level, assertion, details FROM incident WHERE kind IN ('drift', 'silence', 'flags')"
        )
        assert [row[:3] for row in found] == [("drift", "info", "attrs.age")]
        details = json.loads(found[0][3])
        assert (details["severity"], details["action"]) == ("ticket", "retrain")
        assert "median 4" in details["explained_by"][0]["change"]
        with bench.engine.connect() as connection:
            assert ("toy", "drift", "info", "attrs.age") in open_alarms(connection)
