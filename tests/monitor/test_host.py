"""The real assertion host process: what hostile user code can and cannot do."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch, Findings, Window
from outrider.assertions.windows.state import WindowState
from outrider.monitor.host.client import HostClient, HostVerdicts
from outrider.monitor.process import starved_time
from tests.forked import LightPopen
from tests.soak import PATIENCE_S, promised

SLOW = """
import time
from outrider.assertions import assertion

@assertion
def slow(batch):
    time.sleep(1.5)
    return batch.column("inputs.x")
"""

CONFIG = """
[host]
memory_bytes = 268435456

[models.m]
assertions = ["checks.py", "hostile.py"]
behavior = ["behavior.py"]
"""

CHECKS = """
from outrider.assertions import Window, assertion

@assertion(level="critical")
def high(batch):
    return batch.column("inputs.x") > 5

@assertion
def excess(batch):
    x = batch.inputs["x"].to_numpy()
    return (x - 3.0).clip(0)

@assertion(window=Window(rows=2))
def rising(batch):
    x, entity = batch.column("inputs.x"), batch.column("entity")
    return [i > 0 and entity[i] == entity[i - 1] and x[i] > x[i - 1] for i in range(batch.rows)]
"""

HOSTILE = """
import ctypes, os, sys, time
import numpy as np
from outrider.assertions import assertion

HOARD = []

@assertion
def raises(batch):
    raise RuntimeError("broken on purpose")

@assertion
def loops(batch):
    while True:
        pass

@assertion
def sleeps(batch):
    time.sleep(600)

@assertion
def ends(batch):
    os._exit(7)

@assertion
def leaves(batch):
    sys.exit(0)

@assertion
def allocates(batch):
    while True:
        HOARD.append(np.ones(4_000_000))

@assertion
def crashes(batch):
    ctypes.string_at(0)

@assertion
def short(batch):
    return [True]

@assertion
def not_a_number(batch):
    return np.full(batch.rows, np.nan)

@assertion
def vandal(batch):
    frame = batch.inputs
    frame["x"] = 0
    batch.column("inputs.x")[:] = 0
    return np.zeros(batch.rows)

@assertion
def poisons(batch):
    batch._cache["inputs.x"] = np.zeros(batch.rows)
    batch._answers.clear()
    batch.is_new[:] = False
    return batch.column("inputs.x")

@assertion
def writes_through(batch):
    for buffer in batch.to_arrow().column("inputs.x").buffers():
        if buffer is not None:
            np.frombuffer(buffer, dtype=np.uint8)[:] = 0
    return np.zeros(batch.rows)

@assertion
def prints(batch):
    line = "x" * 100_000
    for _ in range(300):
        print(line)
        sys.stderr.write(line)
    os.write(1, b"x" * 1_000_000)
    return batch.column("inputs.x") == 1
"""

BEHAVIOR = """
from outrider.behavioral_tests import INV, expect, perturb

test_noise = INV(perturb=perturb.tabular.jitter("x", noise=0.1), expect=expect.same("label"), live=1.0)
"""

GOOD = ["high", "excess", "rising"]
REASONS = {
    "raises": ("raised", "broken on purpose"),
    "sleeps": ("deadline", "no verdict within 4 s"),
    "ends": ("died", "exit code 7"),
    "leaves": ("raised", "SystemExit"),
    "allocates": ("out_of_memory", "host.memory_bytes"),
    "crashes": ("died", f"signal {signal.SIGSEGV.value}"),
    "short": ("wrong_shape", r"shape (4,), got shape (1,)"),
    "not_a_number": ("wrong_shape", "got nan"),
    "vandal": ("raised", "read-only"),
    "writes_through": ("raised", "read-only"),
}


def project(folder: Path, hostile: str = HOSTILE) -> Path:
    (folder / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    (folder / "hostile.py").write_text(hostile, encoding="utf-8")
    (folder / "behavior.py").write_text(BEHAVIOR, encoding="utf-8")
    return folder / "outrider.toml"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    """A host that waits as long as a busy machine needs."""
    yield from running(tmp_path_factory.mktemp("project"), PATIENCE_S)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    """A host that gives up what takes seconds."""
    yield from running(tmp_path_factory.mktemp("hasty"), 4.0)


def running(folder: Path, deadline_s: float) -> Iterator[HostClient]:
    client = HostClient(project(folder), deadline_s=deadline_s, popen=LightPopen)
    client.start()
    yield client
    client.stop()


def records() -> Batch:
    return Batch.from_columns(
        {"entity": ["a", "b", "a", "b"], "inputs.x": [1.0, 4.0, 7.0, 2.0], "outputs.label": [0, 0, 1, 0]},
        model="m",
    ).with_answers({"v2": {"label": [1, 1, 1, 1]}})


def judged(host: HostClient, names: list[str]) -> HostVerdicts:
    batch = records()
    windows = {offer.name: offer.window for offer in host.offered["m"] if offer.window is not None}
    views = {name: WindowState(window).update(batch) for name, window in windows.items()}
    return host.check(batch, assertions=names, views=views)


def plain(found: dict[str, Findings]) -> dict[str, tuple[list[int], list[float]]]:
    return {name: (one.row.tolist(), one.severity.tolist()) for name, one in found.items()}


EXPECTED = {"high": ([2], [1.0]), "excess": ([1, 2], [1.0, 4.0]), "rising": ([1], [1.0])}
"""Rows of the batch; those of ``rising`` of its view, which is sorted by entity."""


def test_the_manifest_says_what_the_files_offer(host: HostClient) -> None:
    offered = {offer.name: offer for offer in host.offered["m"]}
    assert set(offered) == {*GOOD, *REASONS, "loops", "poisons", "prints", "test_noise"}
    assert (offered["high"].level, offered["rising"].window) == ("critical", Window(rows=2))
    assert (offered["test_noise"].kind, offered["test_noise"].rate) == ("live_test", 1.0)
    assert host.errors == {"m": []}


def test_columns_that_an_assertion_reads_are_told_once_and_again_by_a_new_process(host: HostClient) -> None:
    host.stop()
    names = ["high", "excess"]
    expected = {"high": ["inputs.x"], "excess": ["inputs.*"]}
    assert judged(host, names).reads == expected
    assert judged(host, names).reads == {}
    host.stop()
    assert judged(host, [*names, "rising"]).reads == expected | {"rising": ["inputs.x"]}


def test_verdicts_of_well_behaved_assertions(host: HostClient) -> None:
    found = judged(host, GOOD)
    assert plain(found.found) == EXPECTED
    assert found.failures == []


@pytest.mark.parametrize("hostile", REASONS)
@pytest.mark.parametrize("place", [0, 2])
def test_a_hostile_assertion_loses_only_its_own_verdicts(
    request: pytest.FixtureRequest, hostile: str, place: int
) -> None:
    names = [*GOOD[:place], hostile, *GOOD[place:]]
    found = judged(request.getfixturevalue("hasty" if hostile == "sleeps" else "host"), names)
    assert plain(found.found) == EXPECTED
    ((name, reason, detail),) = [(f.name, f.reason, f.detail) for f in found.failures]
    assert (name, reason) == (hostile, REASONS[hostile][0])
    assert REASONS[hostile][1] in detail


def test_all_of_them_together_change_nothing_either(hasty: HostClient) -> None:
    found = judged(hasty, ["loops", "high", "ends", "excess", "allocates", "vandal", "rising", "short"])
    assert plain(found.found) == EXPECTED
    assert [failure.name for failure in found.failures] == ["loops", "ends", "allocates", "vandal", "short"]


def test_what_one_assertion_does_to_its_batch_no_other_sees(host: HostClient) -> None:
    found = judged(host, ["poisons", *GOOD])
    assert plain(found.found) == EXPECTED | {"poisons": ([], [])}


def test_an_assertion_may_print_as_much_as_it_likes(host: HostClient) -> None:
    found = judged(host, ["prints", *GOOD])
    assert plain(found.found) == EXPECTED | {"prints": ([0], [1.0])}
    assert found.failures == []


def test_an_empty_batch_has_no_fires(host: HostClient) -> None:
    found = host.check(records().slice(0, 0), assertions=["high", "short"])
    assert plain(found.found) == {"high": ([], []), "short": ([], [])}


def test_live_tests_ask_and_judge(host: HostClient) -> None:
    batch = records()
    live = {"test_noise": np.arange(4)}
    found = host.check(batch, assertions=["ends"], live=live, seq=np.array([1, 1, 2, 2]))
    asked = found.questions["test_noise"]
    assert asked.rows.tolist() == [0, 1, 2, 3]
    assert asked.batch is not None
    answered = asked.batch.with_outputs({"label": np.array([0, 1, 1, 0])})
    verdicts, failures = host.check_answers("m", {"test_noise": (batch.take(asked.rows), answered)})
    assert verdicts["test_noise"][0].tolist() == [False, True, False, False]
    assert failures == []


def test_questions_do_not_depend_on_how_blocks_are_joined(host: HostClient) -> None:
    batch, seq = records(), np.array([1, 1, 2, 2])
    live = {"test_noise": np.arange(4)}
    together = host.check(batch, assertions=[], live=live, seq=seq).questions["test_noise"].batch
    halves = [
        host.check(batch.slice(at, 2), assertions=[], live={"test_noise": np.arange(2)}, seq=seq[at : at + 2])
        for at in (0, 2)
    ]
    parts = [half.questions["test_noise"].batch for half in halves]
    assert Batch.concat([part for part in parts if part is not None]) == together


# ---- start and end ---------------------------------------------------------------------------------------


def test_a_file_that_raises_is_reported_and_the_others_are_offered(tmp_path: Path) -> None:
    client = HostClient(project(tmp_path, "1 / 0\n"), deadline_s=4.0)
    client.start()
    try:
        assert [offer.name for offer in client.offered["m"]] == [*GOOD, "test_noise"]
        assert len(client.errors["m"]) == 1
        assert "hostile.py:1: ZeroDivisionError" in client.errors["m"][0]
    finally:
        client.stop()


PARENT = """
import sys, threading
from pathlib import Path
import numpy as np
from outrider.assertions import Batch
from outrider.monitor.host.client import HostClient

client = HostClient(Path(sys.argv[1]), deadline_s=60.0)
client.start()
print(client._process.pid, flush=True)
if sys.argv[2]:
    client.check(Batch.from_columns({"inputs.x": [1.0]}, model="m"), assertions=[sys.argv[2]])
threading.Event().wait()
"""


def is_running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("busy_with", ["", "loops"], ids=["idle", "in an endless loop"])
def test_nothing_is_left_two_seconds_after_the_parent_was_killed(tmp_path: Path, busy_with: str) -> None:
    config = project(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(config), busy_with], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        assert is_running(pid)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + promised(2.0)
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_running(pid)


def test_a_host_whose_parent_is_gone_before_it_starts_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "outrider.monitor.host", "--config", str(project(tmp_path)), "--fd", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*command, "--parent", "1"], check=False, timeout=60, env=environment)
    assert done.returncode == 1


@pytest.mark.parametrize("is_starved", [True, False])
def test_host_blames_no_task_for_time_in_which_the_machine_gave_it_no_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_starved: bool
) -> None:
    waited = time.monotonic_ns if is_starved else lambda: 0
    monkeypatch.setattr(starved_time, "_scheduled", lambda _: {"1": (0, waited())})
    (tmp_path / "outrider.toml").write_text('[models.m]\nassertions = ["slow.py"]\n', encoding="utf-8")
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    client = HostClient(tmp_path / "outrider.toml", deadline_s=0.5, popen=LightPopen)
    client.start()
    batch = Batch.from_columns({"inputs.x": np.ones(3)}, model="m")
    found = client.check(batch, assertions=["slow"])
    client.stop()
    assert [one.reason for one in found.failures] == ([] if is_starved else ["deadline"])
    assert (sum(found.found["slow"].severity) == 3) if is_starved else not found.found
