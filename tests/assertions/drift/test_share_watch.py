"""Shares of profiles are those of their records; a watch alarms where they change, and seldom else."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from outrider.assertions import Batch
from outrider.assertions.drift import ShareCounter, ShareStreams, ShareWatch, WatchRule, column_shares
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.assertions.profiling.profile import stored_weights

WEEK = 168
STREAMS = ShareStreams(np.full(10, 0.05), np.repeat([0, 1], 5), np.repeat([0, 1], 5), np.ones(10))


def records(rng: np.random.Generator, rows: int, *, names: str = "abcdefghijkl") -> pd.DataFrame:
    frame = pd.DataFrame({"age": rng.normal(40, 9, rows), "plan": rng.choice(list(names), rows)})
    frame.loc[rng.random(rows) < 0.1, "age"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "plan"] = None
    return frame


def batch(frame: pd.DataFrame, weight: NDArray[np.float64] | None = None) -> Batch:
    found = Batch.from_pandas(frame, model="m", inputs=list(frame.columns))
    return found if weight is None else found.with_columns({"weight": weight})


def test_shares_of_a_profile_are_those_of_its_records() -> None:
    rng = np.random.default_rng(1)
    reference, now = records(rng, 4_000), records(rng, 900, names="abcxyz")
    layout = ProfileLayout.fit(batch(reference))
    shares = column_shares(layout, Profile.of(batch(reference), layout).weights)
    hits, seen = ShareCounter.of(shares, layout).count(Profile.of(batch(now), layout).weights)
    for share, won, own in zip(shares, hits, seen, strict=True):
        values = now[share.column.removeprefix("inputs.")]
        there = values.dropna()
        if share.change == "above":
            assert (won, own) == ((there >= share.cut).sum(), len(there))
        elif share.change == "missing":
            assert (won, own) == (values.isna().sum(), len(values))
        elif share.change == "gone":
            assert (won, own) == (0, len(values))
        else:
            is_own = there.isin(share.names) ^ (share.change == "unseen")
            assert (won, own) == (is_own.sum(), len(there))
    assert [share.change for share in shares].count("above") == 5
    assert [share.change for share in shares].count("category") == 8
    before = [won / own for won, own in zip(*ShareCounter.of(shares, layout).count(
        Profile.of(batch(reference), layout).weights), strict=True)][:5]  # fmt: skip
    assert np.allclose(before, [0.9, 0.75, 0.5, 0.25, 0.1], atol=0.02)


def test_a_column_that_is_gone_or_has_other_bins_is_not_counted_as_values() -> None:
    rng = np.random.default_rng(2)
    layout = ProfileLayout.fit(batch(records(rng, 2_000)))
    shares = column_shares(layout, Profile.of(batch(records(rng, 2_000)), layout).weights)
    gone = Profile.of(batch(records(rng, 500)[["plan"]]), layout).weights
    hits, seen = ShareCounter.of(shares, layout).count(gone)
    found = {(one.column, one.change): pair for one, *pair in zip(shares, hits, seen, strict=True)}
    assert found["inputs.age", "gone"] == [500, 500]
    assert found["inputs.age", "missing"] == [0, 0]
    other = ProfileLayout.fit(batch(records(rng, 2_000).assign(age=lambda frame: frame.age * 3)))
    counter = ShareCounter.of(shares, other)
    seen = counter.count(Profile.of(batch(records(rng, 500)), other).weights)[1]
    assert not seen[[one.change == "above" for one in shares]].any()


def test_stored_weights_are_those_of_the_profile() -> None:
    rng = np.random.default_rng(3)
    layout = ProfileLayout.fit(batch(records(rng, 2_000)))
    for own in (batch(records(rng, 700)), batch(records(rng, 700), rng.uniform(1, 8, 700))):
        profile = Profile.of(own, layout)
        assert np.allclose(stored_weights(profile.to_bytes(), layout), profile.weights, atol=1e-5)


def hours(
    rng: np.random.Generator, number: int, *, run: int = 1, rows: int = 400
) -> tuple[NDArray[np.float64], ...]:
    """Hits above five cuts of two columns, and records, shape (10, number) each."""
    cells = run * rng.multinomial(rows // run, [0.1, 0.15, 0.25, 0.25, 0.15, 0.1], (2, number))
    above = cells[..., ::-1].cumsum(axis=-1)[..., -2::-1]
    return above.transpose(0, 2, 1).reshape(10, number).astype(float), np.full((10, number), float(rows))


def test_windows_that_stay_as_they_were_seldom_alarm() -> None:
    rng = np.random.default_rng(4)
    alarms = 0
    for run in [1, 20] * 60:
        hits, seen = hours(rng, 24 + WEEK, run=run)
        watch = ShareWatch(hits[:, :24], seen[:, :24], STREAMS, WatchRule(0.05, WEEK))
        alarms += any(watch.look(hits[:, at], seen[:, at]).any() for at in range(24, 24 + WEEK))
    assert binom.cdf(alarms - 1, 120, 0.05) < 0.99


def test_a_state_that_is_read_again_goes_on_and_a_restart_forgets() -> None:
    rng = np.random.default_rng(5)
    hits, seen = hours(rng, 40)
    watch = ShareWatch(hits[:, :24], seen[:, :24], STREAMS, WatchRule(0.01, WEEK))
    moved = np.clip(hits + 50, 0, seen)
    watch.look(moved[:, 24], seen[:, 24])
    again = ShareWatch.from_bytes(watch.to_bytes(), STREAMS, watch.rule)
    for at in range(25, 30):
        assert (watch.look(moved[:, at], seen[:, at]) == again.look(moved[:, at], seen[:, at])).all()
    assert watch.look(moved[:, 30], seen[:, 30]).any()
    assert watch.has_risen().all()
    assert not watch.look(moved[:, 31], seen[:, 31], standing=np.ones(10, dtype=np.bool_)).any()
    again.restart(np.ones(10, dtype=np.bool_))
    assert not again.look(hits[:, 32], seen[:, 32]).any()


def test_a_reference_of_few_windows_or_observations_judges_nothing() -> None:
    rng = np.random.default_rng(6)
    hits, seen = hours(rng, 30)
    few = ShareWatch(hits[:, :19], seen[:, :19], STREAMS, WatchRule(0.01, WEEK))
    assert not few.judged.any()
    assert not few.look(seen[:, 20], seen[:, 20]).any()
    rare = ShareWatch(hits[:, :24] / 400, seen[:, :24] / 400, STREAMS, WatchRule(0.01, WEEK))
    assert not rare.judged.any()
    assert ShareWatch.from_bytes(few.to_bytes(), STREAMS, few.rule).windows == 0
