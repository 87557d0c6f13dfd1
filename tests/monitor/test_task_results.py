"""Tasks of one request: results that travel together, and what happens when one is in their way."""

from pathlib import Path

import pytest

from outrider.assertions import Batch
from outrider.monitor.host import client
from outrider.monitor.host.client import HostClient
from outrider.monitor.host.progress import TaskProgress
from tests.forked import LightPopen

CHECKS = """
import ctypes, os, time
from outrider.assertions import Findings, assertion

HERE, CALLS = os.getcwd(), []


def called(name):
    with open("CALLS", "a") as file:
        file.write(name + " ")


@assertion
def first(batch):
    called("first")
    return [os.getcwd() != HERE] * batch.rows

@assertion
def moves(batch):
    called("moves")
    os.chdir("/")
    return [False] * batch.rows

@assertion
def last(batch):
    if os.getcwd() == HERE:
        called("last")
    return [os.getcwd() != HERE] * batch.rows

@assertion
def slow(batch):
    called("slow")
    time.sleep(0.7)
    return [True] * batch.rows

@assertion
def slow_too(batch):
    time.sleep(0.7)
    return [True] * batch.rows

@assertion
def hangs(batch):
    time.sleep(60)

@assertion
def ends(batch):
    os._exit(7)

@assertion
def says_much(batch):
    return Findings([0], [1.0], evidence=[{"text": "x" * 2_000_000}])

@assertion
def closes(batch):
    os.closerange(3, 4096)
    return [True] * batch.rows
"""
BATCH = Batch.from_columns({"inputs.x": [1.0, 2.0]}, model="m")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostClient:
    monkeypatch.chdir(tmp_path)
    text = CHECKS.replace('"CALLS"', repr(str(tmp_path / "calls")))
    (tmp_path / "checks.py").write_text(text, encoding="utf-8")
    (tmp_path / "outrider.toml").write_text('[models.m]\nassertions = ["checks.py"]\n', encoding="utf-8")
    return HostClient(tmp_path / "outrider.toml", deadline_s=1.0, popen=LightPopen)


def judged(host: HostClient, *names: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    try:
        judgement = host.check(BATCH, assertions=names)
    finally:
        host.stop()
    assert set(judgement.seconds) == set(judgement.found)
    return (
        {name: len(found) for name, found in judgement.found.items()},
        [(failure.name, failure.reason) for failure in judgement.failures],
    )


def test_what_a_task_changed_is_seen_by_none_behind_it_though_looked_for_once(host: HostClient) -> None:
    assert judged(host, "first", "moves", "last") == ({"first": 0, "moves": 0, "last": 0}, [])


def test_the_deadline_is_that_of_one_task_and_seconds_are_its_own(host: HostClient) -> None:
    judgement = host.check(BATCH, assertions=["first", "slow", "slow_too", "last"])
    host.stop()
    assert judgement.failures == []
    assert 0.7 <= judgement.seconds["slow"] < 1.0
    assert judgement.seconds["last"] < 0.5


def test_a_task_that_hangs_is_named_and_what_was_found_before_it_is_not_lost(host: HostClient) -> None:
    found, failures = judged(host, "slow", "first", "hangs", "last")
    assert found == {"slow": 2, "first": 0, "last": 0}
    assert failures == [("hangs", "deadline")]
    calls = Path("calls").read_text(encoding="ascii").split()
    assert calls.count("slow") == 1  # sent before the next task began


@pytest.mark.parametrize("bad", ["ends", "closes"])
def test_a_task_that_dies_behind_results_not_yet_sent_is_named(host: HostClient, bad: str) -> None:
    found, failures = judged(host, "first", bad, "last")
    assert found == {"first": 0, "last": 0}
    assert failures == [(bad, "died")]


def test_a_result_larger_than_the_worker_would_hold_fails_its_task_alone(
    host: HostClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_RESULT_BYTES", 1_000_000)
    found, failures = judged(host, "first", "says_much", "last")
    assert found == {"first": 0, "last": 0}
    assert failures == [("says_much", "died")]


def test_the_process_behind_an_interrupted_request_asks_one_by_one(host: HostClient, tmp_path: Path) -> None:
    file = tmp_path / "run" / "progress"
    before = TaskProgress(path=file)
    assert TaskProgress.interrupted(file) is None
    before.ask("m", ["first", "last"])
    config = tmp_path / "outrider.toml"
    after = HostClient(config, deadline_s=1.0, popen=LightPopen, progress=file)
    assert after.interrupted is not None
    assert (after.interrupted, after.interrupted.culprit) == (("m", ("first", "last")), None)
    assert judged(after, "first", "moves", "last") == ({"first": 0, "moves": 0, "last": 0}, [])
    assert TaskProgress.interrupted(file) is None, "what was finished blames nobody"
    before = TaskProgress(path=file)
    before.ask("m", ["last"])
    again = HostClient(config, deadline_s=1.0, popen=LightPopen, progress=file)
    assert again.interrupted is not None
    assert again.interrupted.culprit == "last"
