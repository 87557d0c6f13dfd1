"""A disk that gets full in the middle of an erasure: told in words, the rest is noted and done later."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from outrider.dataops.erasure import pending
from outrider.dataops.erasure.erasing import STEPS, Place, complete
from outrider.dataops.erasure.target import ErasureTarget
from outrider.errors import OutriderError
from tests.end_to_end.service import write_project
from tests.end_to_end.test_full_disk import fill, small_disk
from tests.scan import places

from .test_erasure import ENTITY, MARKERS, commit, traffic
from .workbench import Workbench

__all__ = ["small_disk"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with a person in it."""
    bench = Workbench(write_project(tmp_path_factory.mktemp("recorded")))
    traffic(bench)
    bench.work()
    commit(bench, "of-toy", "toy")
    bench.close()
    return bench.settings.data_folder


@pytest.mark.parametrize("step", ["", *STEPS[:-1]])
def test_a_disk_that_gets_full_at_any_step_leaves_a_noted_rest(
    recorded: Path, small_disk: Path, step: str
) -> None:
    folder = small_disk / "data"
    shutil.copytree(recorded, folder)
    pending.ask(folder, ErasureTarget((ENTITY,)), who="command", now_us=1)

    def fill_at(reached: str) -> None:
        if reached == step:
            fill(small_disk, leave=0)

    fill_at("")
    told = "is erased before there is room" if not step else "the disk is full; what has gone is gone"
    with pytest.raises(OutriderError, match=told):
        complete(Place(folder, reached=fill_at))
    assert pending.is_pending(folder)
    assert not [path for path in folder.iterdir() if "compacted" in path.name]
    (small_disk / "ballast").unlink()
    for name in ("journal.db", "state.db"):
        with sqlite3.connect(f"file:{folder / name}?mode=ro", uri=True) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(complete(Place(folder))) == 1
    assert places(folder, MARKERS) == []
    assert not pending.is_pending(folder)


def test_an_erasure_that_cannot_be_noted_is_refused(recorded: Path, small_disk: Path) -> None:
    folder = small_disk / "data"
    shutil.copytree(recorded, folder)
    fill(small_disk, leave=0)
    with pytest.raises(OutriderError, match="the disk is full"):
        pending.ask(folder, ErasureTarget((ENTITY,)), who="command", now_us=1)
    assert not pending.is_pending(folder)
