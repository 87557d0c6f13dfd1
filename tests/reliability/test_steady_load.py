"""Records and labels, 200 of each a second: an hour in a soak, in which no process grows."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.service import Service, wait_until, write_project
from tests.soak import IS_SOAK

from .growth import Growth

LOAD_S, WARM_S, WINDOW_S, LOOK_S = (3600.0, 600.0, 60.0, 5.0) if IS_SOAK else (12.0, 3.0, 1.0, 0.25)
PER_S = 200 if IS_SOAK else 40
REQUESTS_PER_S = 10
"""Of records, and as many of labels."""
MOST_KIB = 100.0
"""Growth of a process in a minute."""
ROLES = {"supervisor", "intake", "worker", "trainer", "host", "engine"}
LEAK = """
import time
held = []
while True:
    held.append(bytearray(b"x" * 100_000))
    time.sleep(0.1)
"""


def records(number: int) -> list[dict[str, Any]]:
    """Records of a request: of a thousand entities and five slices, some flagged."""
    rows = range(number * PER_S // REQUESTS_PER_S, (number + 1) * PER_S // REQUESTS_PER_S)
    return [
        {
            "id": f"r{row}",
            "entity": f"e{row % 1000}",
            "inputs": {"x": row % 50 / 54},
            "attrs": {"device": f"d{row % 5}"},
        }
        for row in rows
    ]


def growing(slopes: Mapping[str, float]) -> dict[str, float]:
    """Processes that grow by more than they may."""
    return {name: kib for name, kib in slopes.items() if kib > MOST_KIB}


def labels(number: int) -> list[dict[str, Any]]:
    """Labels of the records of a request."""
    return [{"model": "toy", "id": each["id"], "label": {"label": 1}} for each in records(number)]


@pytest.mark.costly("memory is looked at while load goes on")
@pytest.mark.timeout(LOAD_S + 1_800)
def test_no_process_grows_under_steady_load(tmp_path: Path, record_property: Any) -> None:
    with Service(write_project(tmp_path)) as service:
        service.post(records(0))
        service.wait_judged(1)
        growth = Growth(service.processes())
        assert growth.processes.keys() == ROLES
        begun, looked = time.monotonic(), 0.0
        for number in range(1, int(LOAD_S * REQUESTS_PER_S)):
            time.sleep(max(0.0, begun + number / REQUESTS_PER_S - time.monotonic()))
            assert service.post(records(number)).status_code == 202
            answer = service.client.post("/v1/labels", json=labels(number - 1))
            assert answer.status_code == 202, answer.text
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                growth.look()
        service.wait_judged((number + 1) * PER_S // REQUESTS_PER_S)
        wait_until(lambda: service.count("labels") > 0, "labels", service)
        assert service.processes() == growth.processes  # none has ended and come again
    slopes = growth.slopes(after_s=WARM_S, window_s=WINDOW_S)
    record_property("slopes", {name: round(kib) for name, kib in slopes.items()})
    assert slopes.keys() == ROLES
    if IS_SOAK:  # before, each still fills its caches
        assert growing(slopes) == {}, slopes


def test_a_process_that_leaks_a_megabyte_a_second_is_found() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", LEAK]) as leaking,
        subprocess.Popen(["sleep", "600"]) as calm,
    ):
        try:
            growth = Growth({"leaking": leaking.pid, "calm": calm.pid})
            while len(growth.samples) < 20:
                growth.look()
                time.sleep(0.1)
        finally:
            leaking.kill()
            calm.kill()
    assert growing(growth.slopes(after_s=0.5)).keys() == {"leaking"}


def test_a_slope_leaves_out_warming_and_what_is_given_back() -> None:
    growth = Growth({"one": 0})
    for second in range(0, 3600, 5):
        warm = 5e3 * second if second < 600 else 3e6
        held = 4e3 * (second % 50 > 20)
        growth.samples.append((float(second), {"one": warm + 50.0 * second / 60 + held}))
    assert growth.slopes(after_s=600, window_s=60)["one"] == pytest.approx(50.0)
    assert growth.slopes(after_s=600)["one"] == pytest.approx(50.0, abs=20)
    assert growth.slopes(window_s=60)["one"] > 50


HEAPS = """
import ctypes, re, sys, threading
from outrider.monitor.process.child import keep_freed_memory_together

keep_freed_memory_together()
libc, turn = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p

def take():
    turn.wait()  # all at once: each looks for an arena that no other holds
    libc.malloc(1000)
    turn.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.parametrize(("env", "most"), [({}, 2), ({"MALLOC_ARENA_MAX": "1"}, 1)])
def test_threads_of_a_service_process_free_memory_into_two_heaps(
    tmp_path: Path, env: dict[str, str], most: int
) -> None:
    told = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", HEAPS, str(told)], env=os.environ | env, check=True)
    assert 1 <= told.read_text(encoding="utf-8").count("<heap ") <= most
