"""One version in an engine of its own, as the gate asks an upload."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.confinement import clean_environment, landlock_version
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError, ServerError
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.engine.client import Making
from outrider.monitor.engine.launch import Launch
from outrider.monitor.engine.single_version import ROWS, SingleVersion
from outrider.monitor.trainer.limit_evidence import times_in_turn

CODE = """
import os

from outrider.errors import ServerError


def predict(batch):
    x = batch.column("inputs.x")
    if (x == -1).any():
        raise ValueError("no number below zero")
    if (x == -3).any():
        raise ServerError("http://far gave no answer")
    if (x == -2).any():
        os._exit(3)
    return {"value": 2.0 * x, "pid": [os.getpid()] * batch.rows}


def thief(batch):
    assert os.environ.get("SHOP_TOKEN") is None and not os.listdir()
    with open(__file__.replace("code.py", "key")) as key:
        return {"value": [key.read()] * batch.rows}
"""


def numbers(*values: float) -> Batch:
    return Batch.from_columns({"inputs.x": np.array(values)}, model="m")


def opened(folder: Path, name: str = "predict") -> SingleVersion:
    source = Source("function", f"code.py:{name}", inputs=("x",), task="other")
    return SingleVersion(("m", "2"), Making(source), Launch(folder), deadline_s=60.0).loaded()


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SingleVersion]:
    folder = tmp_path_factory.mktemp("single")
    (folder / "code.py").write_text(CODE)
    made = opened(folder)
    yield made
    made.stop()


def test_single_version_answers_records_in_order_whatever_their_number(version: SingleVersion) -> None:
    for rows in (1, ROWS, 20 * ROWS + 1):
        found = version(numbers(*range(rows)))["value"]
        np.testing.assert_array_equal(found, 2.0 * np.arange(rows))


class Told(SingleVersion):
    """Version whose engine says how long it took, whatever passes here."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._took = 0.0, seconds

    def __call__(self, batch: Batch, /) -> Outputs:
        self.seconds += self._took
        return {}


def test_versions_in_engines_are_timed_by_their_engines_clocks(version: SingleVersion) -> None:
    found = times_in_turn(Told(1.0), Told(3.0), numbers(1.0))
    assert (found.ratio, found.low, found.high) == (3.0, 3.0, 3.0)
    before, start = version.seconds, time.perf_counter()
    version(numbers(1.0))
    assert 0.0 < version.seconds - before < time.perf_counter() - start


def test_single_version_raises_with_the_reason_of_a_record(version: SingleVersion) -> None:
    with pytest.raises(RuntimeError, match="no number below zero"):
        version(numbers(1.0, -1.0))
    with pytest.raises(ServerError, match=r"^m@2: http://far gave no answer$"):
        version(numbers(-3.0))
    assert version(numbers(4.0))["value"].tolist() == [8.0]


def test_single_version_answers_again_where_its_process_was_ended(version: SingleVersion) -> None:
    pid = int(version(numbers(1.0))["pid"][0])
    os.kill(pid, signal.SIGKILL)
    assert int(version(numbers(1.0))["pid"][0]) != pid


def test_single_version_that_ends_its_process_twice_is_asked_no_more(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    made = opened(tmp_path)
    assert made(numbers(1.0))["value"].tolist() == [2.0]
    with pytest.raises(RuntimeError, match="its process ended: exit code 3"):
        made(numbers(-2.0))
    with pytest.raises(RuntimeError, match="m@2 is asked no more: its process ended: exit code 3"):
        made(numbers(1.0))


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_single_version_that_is_confined_reads_its_files_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "7")
    (tmp_path / "key").write_text("or_SECRET")
    (tmp_path / "code.py").write_text(CODE)
    held = Launch(tmp_path, environment=clean_environment(os.environ), readable=(tmp_path / "code.py",))
    source = Source("function", "code.py:thief", inputs=("x",), task="other")
    made = SingleVersion(("m", "2"), Making(source), held, deadline_s=60.0).loaded()
    with pytest.raises(RuntimeError, match="PermissionError"):
        made(numbers(1.0))


def test_single_version_that_cannot_be_loaded_raises_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    with pytest.raises(ConfigError, match="nothing"):
        opened(tmp_path, "nothing")


def test_process_of_a_single_version_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    made = opened(tmp_path)
    pid = int(made(numbers(1.0))["pid"][0])
    del made
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
