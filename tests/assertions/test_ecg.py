"""The 30 s rhythm assertion: what it finds, and on real recordings how often it is right."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.assertions._ecg_windows import heartbeats, read_windows
from benchmarks.assertions.ecg import (
    Tallies,
    accuracy_change,
    error_ratio,
    faultless_flags,
    flagged_windows,
    genuine_returns,
    run,
)
from tests.requirements import require_data


@pytest.fixture(scope="module")
def tallies() -> Tallies:
    """One split in its three rotations; the benchmark has ten."""
    return run(read_windows(require_data("ecg_cinc2017")), seeds=1, arms=("longer", "self", "weak"))


def flagged(said: str, step_s: float = 5.0) -> dict[int, str]:
    """Flagged windows of one recording and what they should be."""
    count = len(said)
    rows, values = flagged_windows(
        np.array(["r"] * count), np.arange(count, dtype=np.float64) * step_s, np.array(list(said))
    )
    return dict(zip(rows.tolist(), values, strict=True))


def test_a_rhythm_that_returns_within_30_s_corrects_what_stands_between() -> None:
    assert flagged("NNANN") == {2: "N"}
    assert flagged("NAAOAN") == {1: "N", 2: "N", 3: "A", 4: "N"}
    assert flagged("NNNAAA") == {}
    assert flagged("NAAAAN") == {1: "N", 2: "N", 3: "N", 4: "N"}
    assert flagged("NAAAAAAN") == {}  # 35 s
    assert flagged("NAAAAAN") == dict.fromkeys(range(1, 6), "N")  # 30 s
    assert flagged("") == {}


def test_recordings_are_judged_apart() -> None:
    rows, values = flagged_windows(
        np.repeat(["a", "b"], 5), np.tile(np.arange(5) * 5.0, 2), np.array(list("NANNNNNAAA"))
    )
    assert (rows.tolist(), values) == ([1], ["N"])


@pytest.mark.costly("goes through a real data set, whose figures are claimed")
def test_flagged_windows_are_wrong_at_least_1_4_times_as_often(tallies: Tallies) -> None:
    ratio = error_ratio(tallies)
    assert tallies.flagged.sum() > 300
    assert ratio.value >= 1.4
    assert ratio.low >= 1.4
    assert min(tallies.fold_ratios) > 1.0


def test_the_change_of_accuracy_is_reported_beside_its_controls(tallies: Tallies) -> None:
    for control in ("longer", "self"):
        change = accuracy_change(tallies, "weak", control)
        assert change.low <= change.value <= change.high
        assert change.high - change.low < 10
    assert 0 < tallies.corrections_right.sum() < tallies.corrections.sum()


def test_heartbeats_of_a_clean_rhythm_are_found() -> None:
    wave = np.zeros(9000)
    beats = np.arange(150, 9000, 250)
    for offset, height in ((-6, -100), (0, 1000), (6, -200)):
        wave[beats[:-1] + offset] = height
    found = heartbeats(np.convolve(wave, np.hanning(12), "same"))
    assert len(found) == len(beats) - 1
    assert np.abs(np.diff(found) - 250).max() <= 6


def test_on_true_beats_short_runs_are_mostly_genuine() -> None:
    folder = require_data("ecg_mitdb")
    table = genuine_returns(pd.read_csv(folder / "rhythm_episodes.csv", keep_default_na=False))
    assert (table["fires"].sum(), table["episodes"].sum()) == (381, 616)
    assert table.loc["AFIB", "fires"] == 28
    windows, fires = faultless_flags(pd.read_parquet(folder / "beats.parquet"))
    assert (windows, fires) == (21545, 981)
