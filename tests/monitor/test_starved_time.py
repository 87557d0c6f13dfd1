"""Waiting for a processor is told from running and sleeping."""

import itertools
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess

import pytest

from outrider.monitor.process import starved_time
from outrider.monitor.process.starved_time import Patience, StarvedTime

CROWD = 4


def spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


@pytest.fixture
def crowd() -> Iterator[Sequence[BaseProcess]]:
    """Processes that want one and the same processor."""
    cpu, context = min(os.sched_getaffinity(0)), multiprocessing.get_context("fork")
    made = [context.Process(target=spin, args=(cpu,), daemon=True) for _ in range(CROWD)]
    for one in made:
        one.start()
    yield made
    for one in made:
        one.kill()
        one.join()


def test_starved_time_is_what_others_took_of_the_processor(crowd: Sequence[BaseProcess]) -> None:
    assert crowd[0].pid is not None
    starved, began = StarvedTime(crowd[0].pid, time.monotonic), time.monotonic()
    while starved.seconds < 0.3:
        time.sleep(0.05)
        starved.look(at_once=True)
        assert time.monotonic() < began + 60.0
    assert starved.seconds <= time.monotonic() - began


def test_starved_time_of_a_sleeping_or_ended_process_is_none() -> None:
    context = multiprocessing.get_context("fork")
    sleeper = context.Process(target=time.sleep, args=(30.0,), daemon=True)
    sleeper.start()
    assert sleeper.pid is not None
    starved = StarvedTime(sleeper.pid, time.monotonic)
    time.sleep(0.2)
    starved.look(at_once=True)
    before = starved.seconds  # what its start waited for
    time.sleep(0.2)
    starved.look(at_once=True)
    assert starved.seconds - before < 0.05
    sleeper.kill()
    sleeper.join()
    starved.look(at_once=True)
    assert starved.seconds - before < 0.05


@pytest.mark.parametrize(("starved", "over"), [(0.5, 4), (0.0, 2)])
def test_patience_ends_where_its_seconds_were_the_processes_own(
    monkeypatch: pytest.MonkeyPatch, starved: float, over: int
) -> None:
    seconds = itertools.count()
    now = 0.0
    monkeypatch.setattr(starved_time, "_scheduled", lambda _: {"1": (0, int(1e9 * now * starved))})
    patience = Patience(1, 1.5, clock=lambda: now)
    while patience.left_s > 0.0:
        now = float(next(seconds))
    assert now == over - (starved > 0.0)


def test_patience_is_at_its_end_with_nothing_to_read_and_not_before() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(TimeoutError):
            Patience(os.getpid(), 0.01).wait(ours)
        theirs.sendall(b"x")
        Patience(os.getpid(), 0.0).wait(ours)
