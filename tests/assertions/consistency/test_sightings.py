"""Gaps, blips and deviations agree with slow loops that follow the definitions word by word."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions.consistency.sightings import Sightings
from tests.soak import examples

WITHIN = 40


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Sightings, np.ndarray]:
    """Whole streams (all judged, all ended) with objects 0 to 3 and a value for each element."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    count = draw(st.integers(1, 40))
    entity = np.sort(rng.integers(0, 3, count))
    time = np.zeros(count, dtype=np.int64)
    for one in np.unique(entity):
        mine = entity == one
        time[mine] = np.cumsum(rng.choice([0, 10, 10, 20, 30, 90, 500], int(mine.sum())))
    frame = np.repeat(np.arange(count), rng.integers(0, 4, count))
    thing = rng.integers(-1, 4, len(frame))
    last = np.r_[entity[1:] != entity[:-1], True]
    sightings = Sightings(
        entity=entity,
        time=time,
        judged=np.ones(count, dtype=np.bool_),
        last=last,
        frame=frame,
        object=thing,
        within=WITHIN,
        score=np.zeros(0, dtype=np.int64),
    )
    return sightings, rng.integers(-1, 3, len(frame))


def tracks(scene: Sightings) -> dict[tuple[int, int], list[int]]:
    """Elements of each object of each stream in order."""
    found: dict[tuple[int, int], list[int]] = {}
    for element, thing in enumerate(scene.object.tolist()):
        if thing >= 0:
            found.setdefault((int(scene.entity[scene.frame[element]]), thing), []).append(element)
    return found


def decided(scene: Sightings, frame: int) -> bool:
    """Whether a later frame than ``WITHIN`` after comes before a silence, or the stream ends before."""
    later = [
        int(scene.time[one] - scene.time[frame])
        for one in np.flatnonzero(scene.entity == scene.entity[frame])
        if scene.time[one] > scene.time[frame] + WITHIN
    ]
    return not later or min(later) <= 2 * WITHIN


@settings(max_examples=examples(150))
@given(scenes())
def test_gaps_agree_with_a_slow_loop(made: tuple[Sightings, np.ndarray]) -> None:
    scene, _ = made
    expected = set()
    for elements in tracks(scene).values():
        for before, after in pairwise(elements):
            first, second = scene.frame[before], scene.frame[after]
            if second - first > 1 and scene.time[second] - scene.time[first] <= WITHIN:
                expected.add((before, after))
    gaps = scene.gaps()
    assert set(zip(gaps.before.tolist(), gaps.after.tolist(), strict=True)) == expected


@settings(max_examples=examples(150))
@given(scenes())
def test_blips_agree_with_a_slow_loop(made: tuple[Sightings, np.ndarray]) -> None:
    scene, _ = made
    expected = set()
    for elements in tracks(scene).values():
        stays: list[list[int]] = []
        for element in elements:
            here = scene.time[scene.frame[element]]
            if stays and here - scene.time[scene.frame[stays[-1][-1]]] <= WITHIN:
                stays[-1].append(element)
            else:
                stays.append([element])
        for stay in stays:
            first, last = int(scene.frame[stay[0]]), int(scene.frame[stay[-1]])
            frames = np.flatnonzero(scene.entity == scene.entity[first])
            gone_before = first > frames[0] and scene.time[first] - scene.time[first - 1] <= WITHIN
            short = scene.time[last] - scene.time[first] < WITHIN
            if gone_before and short and last < frames[-1] and decided(scene, last):
                expected.add(tuple(stay))
    blips = scene.blips()
    found = {
        tuple(scene.order[start:stop].tolist())
        for start, stop in zip(blips.start.tolist(), blips.stop.tolist(), strict=True)
    }
    assert found == expected


@settings(max_examples=examples(150))
@given(scenes())
def test_deviations_agree_with_a_slow_loop(made: tuple[Sightings, np.ndarray]) -> None:
    scene, value = made
    expected = {}
    for elements in tracks(scene).values():
        known = [element for element in elements if value[element] >= 0]
        at = {element: int(scene.time[scene.frame[element]]) for element in known}
        kept = None
        for element in known:
            near = [other for other in known if abs(at[other] - at[element]) <= WITHIN]
            counts = Counter(int(value[other]) for other in near)
            best = max(counts.values())
            winners = [one for one, count in counts.items() if count == best]
            if counts[int(value[element])] < best:
                expected[element] = winners[0] if len(winners) == 1 else -1
                continue
            if kept is not None and at[element] - at[kept] <= WITHIN and value[kept] != value[element]:
                expected[element] = -1
            kept = element
    expected = {
        element: winner for element, winner in expected.items() if decided(scene, int(scene.frame[element]))
    }
    found = scene.deviations(value)
    assert dict(zip(found.element.tolist(), found.majority.tolist(), strict=True)) == expected
