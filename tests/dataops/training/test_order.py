"""Order of epochs: a function of seed and epoch; quotas of strata."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outrider.dataops.training.options import Rehearsal
from outrider.dataops.training.order import EpochOrder, quotas, step_ends

SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=8)


@given(SIZES, st.integers(0, 500), st.sampled_from(["stratified", "balanced", "uniform"]))
def test_quotas_are_whole_within_their_strata_and_fair(
    sizes: list[int], wanted: int, kind: Rehearsal
) -> None:
    found = quotas(np.array(sizes), wanted, kind)
    whole = min(wanted, sum(sizes))
    assert sum(found) == whole
    assert all(0 <= drawn <= size for drawn, size in zip(found, sizes, strict=True))
    there = [at for at, size in enumerate(sizes) if size]
    if kind == "stratified" and len(there) <= whole:
        assert all(found[at] >= 1 for at in there)
        shares = [size * whole / sum(sizes) for size in sizes] if there else []
        small = sum(share < 1 for share in shares)
        assert all(abs(found[at] - shares[at]) <= 1 + small for at in there)
    elif kind != "stratified":  # none has two more than one that could give more
        most = max(found)
        assert all(found[at] == sizes[at] or most - found[at] <= 1 for at in there)


@given(SIZES, st.integers(0, 30), st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_an_epoch_sees_all_fresh_rows_once_and_the_quota_of_each_stratum(
    sizes: list[int], fresh: int, seed: int, epoch: int
) -> None:
    strata = np.repeat(np.arange(len(sizes)), sizes)
    drawn = quotas(np.array(sizes), sum(sizes) // 3, "stratified")
    order = EpochOrder(np.arange(fresh), fresh + np.arange(len(strata)), strata, drawn, seed)
    rows = order.epoch(epoch)
    assert len(rows) == order.rows == len(set(rows.tolist()))
    assert np.isin(np.arange(fresh), rows).all()
    seen = np.bincount(strata[rows[rows >= fresh] - fresh], minlength=len(sizes))
    assert seen.tolist() == drawn
    assert (rows == order.epoch(epoch)).all()


def test_epochs_and_seeds_draw_other_rows_each_equally_often() -> None:
    strata = np.repeat([0, 1], [90, 10])
    counts = np.zeros(100)
    order = EpochOrder(np.arange(0), np.arange(100), strata, [18, 2], 7)
    for epoch in range(1, 501):
        counts[order.epoch(epoch)] += 1
    assert np.abs(counts / 500 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 500)
    firsts = [
        EpochOrder(np.arange(50), np.arange(0), strata[:0], [0], seed).epoch(1)[0] for seed in range(200)
    ]
    assert len(set(firsts)) > 40


@given(st.integers(1, 300), st.integers(1, 40), st.booleans())
def test_steps_cover_the_rows_and_leave_no_single_one(rows: int, batch: int, joins: bool) -> None:
    sizes = np.diff([0, *step_ends(rows, batch, joins_single=joins)])
    assert sizes.sum() == rows
    assert sizes.max() <= batch + joins
    if joins and batch > 1 and rows > 1:
        assert sizes.min() > 1
