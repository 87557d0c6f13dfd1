"""Acknowledged means durable: kill -9 and power cuts at random points, with a ledger in another process.

The ledger is this process; the intake that dies is a fork of `forking_intake`. Each place has its own folder
and forker, two at a time in a soak. The last test turns the journal's fsync off: then losses must be found.
"""

import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.requirements import require_program
from tests.soak import IS_SOAK, rounds

from .rounds import Forker, Place

KILLS = rounds(200)
CUTS = rounds(200)
PLACES = 2 if IS_SOAK else 1
ROUNDS_PER_FOLDER = 25


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preloaded power cut."""
    compiler = require_program("cc", "apt-get install gcc libc6-dev")
    built = tmp_path_factory.mktemp("shim") / "power_cut.so"
    source = Path(__file__).with_name("power_cut.c")
    subprocess.run(
        [
            compiler,
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            built,
            source,
            "-lpthread",
        ],
        check=True,
    )
    return built


def run_rounds(
    folder: Path, shim: Path | None, count: int, act: Callable[[Place, Forker], None]
) -> list[Place]:
    """Rounds spread over places; a folder is used for some rounds, then looked at as a whole."""

    def work(number: int) -> list[Place]:
        places: list[Place] = []
        with Forker(shim) as forker:
            for at in range(count // PLACES):
                if at % ROUNDS_PER_FOLDER == 0:
                    seed = 1000 * number + at
                    places.append(Place(folder / f"{number}-{at}", random.Random(seed)))
                act(places[-1], forker)
        for place in places:
            place.check_all()
        return places

    with ThreadPoolExecutor(PLACES) as pool:
        return [place for done in pool.map(work, range(PLACES)) for place in done]


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    places = run_rounds(tmp_path, None, KILLS, Place.kill_round)
    assert sum(place.statuses[-9] for place in places) == KILLS
    assert sum(place.fruitful for place in places) > KILLS / 2
    assert not [place.lost for place in places if place.lost]


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_nothing_acknowledged_is_lost_by_a_power_cut(tmp_path: Path, shim: Path) -> None:
    places = run_rounds(tmp_path, shim, CUTS, Place.cut_round)
    assert sum(place.statuses.get(137, 0) for place in places) == CUTS
    assert sum(place.fruitful for place in places) > CUTS / 4
    assert not [place.lost for place in places if place.lost]


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_without_the_fsync_of_every_commit_the_harness_finds_losses(tmp_path: Path, shim: Path) -> None:
    with Forker(shim) as forker:
        for mode in ("NORMAL", "OFF"):
            places = [Place(tmp_path / f"{mode}-{number}", random.Random(number)) for number in range(4)]
            for place in places:
                place.cut_round(forker, pragmas=[f"synchronous = {mode}"], after=150)
            assert [place.statuses for place in places] == [{137: 1}] * len(places)
            assert any(place.lost for place in places), mode
