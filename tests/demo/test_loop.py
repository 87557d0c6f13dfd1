"""The demo starts its processes in the order in which they need each other."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider.demo.children import Children, DemoProcess
from outrider.demo.files import Plan, environment, prepare_folder
from outrider.demo.loop import Loop

LATE = "import pathlib, time; time.sleep(0.5); pathlib.Path('reference.npz').touch()"


@dataclass(slots=True)
class SlowTraining(Children):
    """Children that do nothing, but for a training that takes its time."""

    found: dict[str, bool] = field(default_factory=dict)

    def start(self, name: str, arguments: Sequence[str], *, may_end: bool = False) -> DemoProcess:
        self.found[name] = (self.folder / "reference.npz").exists()
        return Children.start(self, name, ["-c", LATE if name == "train" else ""], may_end=True)


def test_the_service_loads_the_checks_behind_the_training_that_they_read(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    prepare_folder(folder)
    with SlowTraining(folder, environment(folder)) as children:
        Loop(Plan(folder, 0), children, began=time.monotonic(), tick=lambda _: None).start(8470)
    assert children.found == {"train": False, "serve": True, "service": True, "driver": True}
