"""Bell from the server to a worker at rest."""

import os
import threading
from collections.abc import Iterator

import pytest

from outrider.monitor.process.bell import RING_FD, Bell, ringer
from tests.soak import PATIENCE_S

QUIET_S = 0.05


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    os.set_blocking(write, False)
    yield read, write
    os.close(write)  # ends the thread, too


def test_a_ring_wakes_who_listens(pipe: tuple[int, int]) -> None:
    woken = threading.Event()
    bell, ring = Bell(pipe[0], woken.set), ringer({RING_FD: str(pipe[1])})
    ring()
    assert not woken.wait(QUIET_S)  # at work: nobody is disturbed
    bell.listen()
    assert woken.wait(PATIENCE_S)  # but what rang meanwhile is heard
    woken.clear()
    bell.listen()
    assert not woken.wait(QUIET_S)
    ring()
    assert woken.wait(PATIENCE_S)


def test_a_bell_that_nobody_hears_holds_nobody_up(pipe: tuple[int, int]) -> None:
    ring = ringer({RING_FD: str(pipe[1])})
    for _ in range(100_000):
        ring()
    woken = threading.Event()
    Bell(pipe[0], woken.set).listen()
    assert woken.wait(PATIENCE_S)


def test_without_a_bell_the_journal_is_looked_at() -> None:
    ringer({})()
    assert Bell.inherited(lambda: None, {}) is None
