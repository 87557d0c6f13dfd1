"""Shift detector: false alarms and delays in simulated streams, seasons, weights and runs."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from outrider.assertions.detection import ShiftDetector, first_of_runs, select_alarms

BINARY = np.array([0.0, 1.0])
BLOCKS, ROWS = 150, 64


def _binary(rng: np.random.Generator, rows: int, share: float, streams: int) -> NDArray[np.int64]:
    hits = rng.binomial(rows, share, streams)
    return np.stack([rows - hits, hits], -1)


def _ever(detector: ShiftDetector, blocks: list[NDArray[np.int64]], needed: float) -> NDArray[np.bool_]:
    found = np.zeros(len(blocks[0]), dtype=np.bool_)
    for block in blocks:
        found |= detector.update(block) >= needed
    return found


def test_an_estimated_reference_makes_no_false_alarms() -> None:
    rng = np.random.default_rng(1)
    detector = ShiftDetector(_binary(rng, 500, 0.2, 600)[:, None, :], BINARY, horizon=BLOCKS)
    blocks = [_binary(rng, ROWS, 0.2, 600) for _ in range(BLOCKS)]
    false = int(_ever(detector, blocks, np.log(1 / 0.05)).sum())
    assert binom.cdf(false - 1, 600, 0.05) < 0.99  # a reference taken for the truth: a third of the runs


def test_weighted_records_of_unequal_capture_make_no_false_alarms() -> None:
    rng = np.random.default_rng(2)
    chance, weight = np.array([0.1, 0.3, 0.6]), np.array([1.0, 0.5, 0.125])
    values = np.array([0.1, 0.5, 0.9])
    reference = rng.multinomial(2000, chance, 400)[:, None, :]
    detector = ShiftDetector(reference, values, horizon=BLOCKS, weight=weight)
    false = _ever(detector, [rng.multinomial(ROWS, chance, 400) for _ in range(BLOCKS)], np.log(20))
    assert binom.cdf(int(false.sum()) - 1, 400, 0.05) < 0.99
    detector.restart()
    fallen = _ever(detector, [rng.multinomial(ROWS, [0.3, 0.3, 0.4], 400) for _ in range(60)], np.log(2000))
    assert fallen.all()
    assert set(detector.sides()) == {"down"}


def test_a_shift_is_found_soon_and_a_shift_within_the_floor_never() -> None:
    rng = np.random.default_rng(5)
    reference = _binary(rng, 10_000, 0.3, 200)[:, None, :]
    shifted = 0.3 + 0.25 * 0.21**0.5
    blocks = [_binary(rng, ROWS, shifted, 200) for _ in range(40)]
    assert _ever(ShiftDetector(reference, BINARY, horizon=1000), blocks, np.log(2000)).all()
    floored = ShiftDetector(reference, BINARY, horizon=1000, floor=0.13)
    assert not _ever(floored, blocks, np.log(2000)).any()


def test_a_season_of_the_reference_is_no_change() -> None:
    rng = np.random.default_rng(6)
    shares = np.array([0.05, 0.2, 0.4])
    reference = np.stack([_binary(rng, 1000, share, 100) for share in shares], axis=1)
    seasonal = ShiftDetector(reference, BINARY, horizon=300)
    blind = ShiftDetector(reference[:, :1], BINARY, horizon=300)
    found = np.zeros((2, 100), dtype=np.bool_)
    for block in range(300):
        counts = _binary(rng, ROWS, shares[block % 3], 100)
        found[0] |= seasonal.update(counts, season=block % 3) >= np.log(100)
        found[1] |= blind.update(counts) >= np.log(100)
    assert found[0].sum() <= 5
    assert found[1].all()


def test_runs_of_one_entity_count_once() -> None:
    rng = np.random.default_rng(7)
    streams, run = 40, 16
    alarms = np.zeros((2, streams), dtype=np.bool_)
    for stream in range(streams):
        runs = rng.random(200 * ROWS // run) < 0.2
        entity = np.repeat(np.arange(len(runs)), run)
        hits = np.repeat(runs, run)
        for row, reduce in enumerate((True, False)):
            own = first_of_runs(entity[:3200]) if reduce else np.ones(3200, dtype=np.bool_)
            counts = np.bincount(hits[:3200][own], minlength=2)[None, None, :]
            detector = ShiftDetector(counts, BINARY, horizon=150)
            for start in range(3200, len(hits), ROWS):
                part = slice(start, start + ROWS)
                before = entity[start - ROWS : start]
                own = first_of_runs(entity[part], known=before) if reduce else np.ones(ROWS, dtype=np.bool_)
                seen = np.bincount(hits[part][own], minlength=2)[None, :]
                alarms[row, stream] |= detector.update(seen)[0] >= np.log(20)
    assert alarms[0].sum() <= 6
    assert alarms[1].sum() >= 20


def test_state_is_saved_and_an_empty_block_changes_nothing_else() -> None:
    rng = np.random.default_rng(8)
    reference = _binary(rng, 1000, 0.3, 3)[:, None, :]
    one = ShiftDetector(reference, BINARY, horizon=100)
    for _ in range(5):
        one.update(_binary(rng, ROWS, 0.4, 3))
    two = ShiftDetector(reference, BINARY, horizon=100)
    two.fortunes = one.fortunes
    block = _binary(rng, ROWS, 0.4, 3)
    assert np.array_equal(one.update(block), two.update(block))
    before = one.evidence()
    assert (np.abs(one.update(np.zeros((3, 2), dtype=np.int64)) - before) < 1.0).all()
    one.restart(np.array([True, False, False]))
    assert np.isneginf(one.evidence()[0])
    assert not np.isneginf(one.evidence()[1:]).any()
    with pytest.raises(ValueError, match="horizon >= 1"):
        ShiftDetector(reference, BINARY, horizon=0)


def test_alarms_over_all_streams_share_one_alpha() -> None:
    rng = np.random.default_rng(9)
    runs, streams = 60, 10
    reference = _binary(rng, 1000, 0.1, runs * streams)[:, None, :]
    detector = ShiftDetector(reference, BINARY, horizon=BLOCKS)
    false = np.zeros(runs, dtype=np.bool_)
    for _ in range(BLOCKS):
        evidence = detector.update(_binary(rng, ROWS, 0.1, runs * streams)).reshape(runs, streams)
        false |= [bool(select_alarms(own, alpha=0.05).any()) for own in evidence]
    assert binom.cdf(int(false.sum()) - 1, runs, 0.05) < 0.995
