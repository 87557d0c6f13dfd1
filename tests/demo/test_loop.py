"""The demo starts its processes in the order in which they need each other."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outrider.demo import loop as looping
from outrider.demo.children import Children, DemoProcess
from outrider.demo.files import Plan, environment, prepare_folder
from outrider.demo.loop import Loop
from outrider.errors import ServerError

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


def test_wait_lasts_while_there_is_progress_and_ends_with_what_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looping, "STALL_S", 0.3)
    loop = Loop(Plan(tmp_path, 0), Children(tmp_path, {}), began=0.0, tick=lambda _: None)
    began = time.monotonic()

    def judged() -> int:
        return min(5, int((time.monotonic() - began) / 0.2))

    loop._until(lambda: judged() == 5, "verdicts", judged, every_s=0.01)
    assert time.monotonic() - began > 0.9  # three times as long as it may stand still

    def away() -> bool:
        raise ServerError("the service does not answer")

    with pytest.raises(
        ServerError, match=r"no verdicts .* stands still at 5: the service does not answer; logs"
    ):
        loop._until(away, "verdicts", judged, every_s=0.01)
