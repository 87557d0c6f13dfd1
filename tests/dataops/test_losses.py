"""Blocks of losses are those of a slow loop over first labels, however transactions are cut."""

from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, insert

from outrider.assertions.statistics.bets import weight_classes
from outrider.dataops.ledger import losses
from outrider.dataops.ledger.losses import BLOCK, FirstOutcome, count_losses
from outrider.dataops.ledger.measures import buckets_of
from outrider.dataops.ledger.minutes import HOUR_US
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Label, LabelRequest

Table = list[tuple[Any, ...]]


def outcomes(seed: int, count: int, *, entities: int = 40, numbers: bool = False) -> list[FirstOutcome]:
    rng = np.random.default_rng(seed)
    known = np.cumsum(rng.exponential(HOUR_US / 60, count)).astype(np.int64)
    return [
        FirstOutcome(
            f"r{at:05}", "12"[at > count // 2], "ab"[int(rng.integers(2))],
            f"e{rng.integers(entities)}" if rng.random() < 0.7 else None, int(known[at]) - 5, int(known[at]),
            float(rng.choice([1.0, 4.0])), bool(rng.random() < 0.8),
            float(rng.normal()) if numbers else float("nan"),
        )
        for at in range(count)
    ]  # fmt: skip


def slow_counts(found: list[FirstOutcome]) -> dict[tuple[Any, ...], int]:
    """Model's counts by looking at one outcome after the other."""
    counts: dict[tuple[Any, ...], int] = {}
    state: dict[str, tuple[int, int, int, set[str]]] = {}
    for one in found:
        number, begun, held, seen = state.get(one.version, (-1, 0, BLOCK, set()))
        if held >= BLOCK or one.known_us >= begun + HOUR_US:
            number, begun, held, seen = number + 1, one.known_us, 0, set()
        if one.entity not in seen:
            if one.entity is not None:
                seen.add(one.entity)
            bucket = 0 if one.hit else -1
            if not np.isnan(one.error):
                bucket = int(buckets_of(np.abs([one.error]))[0])
            weight = int(weight_classes(np.array([one.weight]))[0])
            key = ("m", one.version, number, one.slice, weight, bucket)
            counts[key] = counts.get(key, 0) + 1
            held += 1
        state[one.version] = (number, begun, held, seen)
    return counts


def stored(engine: Engine, table: str) -> Table:
    with engine.connect() as connection:
        return [
            tuple(row)
            for row in connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5, 6")
        ]


@pytest.mark.parametrize("cut", [1, 7, 400])
@pytest.mark.parametrize("numbers", [False, True])
def test_blocks_are_those_of_a_slow_loop_however_transactions_are_cut(
    engine: Engine, cut: int, numbers: bool
) -> None:
    found = outcomes(6, 400, numbers=numbers)
    for start in range(0, len(found), cut):
        with write(engine) as connection:
            count_losses(connection, "m", found[start : start + cut])
    assert {row[:6]: row[6] for row in stored(engine, "loss_count")} == slow_counts(found)


def test_old_blocks_are_put_together_and_the_newest_stay(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "KEPT", 5)
    monkeypatch.setattr(losses, "MERGED_EVERY", 2)
    found = [one for one in outcomes(7, 3_000, entities=10_000) if one.version == "1"]
    with write(engine) as connection:
        count_losses(connection, "m", found)
    slow = slow_counts(found)
    rows = stored(engine, "loss_count")
    newest = max(row[2] for row in rows)
    assert len({row[2] for row in rows}) < 15 < newest
    for name in (3, 4, 5):
        sums = [
            {key: sum(n for *row, n in pairs if row[name] == key) for key in {row[name] for *row, _ in pairs}}
            for pairs in (rows, [(*key, n) for key, n in slow.items()])
        ]
        assert sums[0] == sums[1]
    assert {row[:6]: row[6] for row in rows if row[2] > newest - 5} == {
        key: n for key, n in slow.items() if key[2] > newest - 5
    }


def test_an_open_block_keeps_hashes_of_entities_and_a_full_one_none(engine: Engine) -> None:
    with write(engine) as connection:
        count_losses(connection, "m", outcomes(8, 120, entities=10_000)[:60])
    blocks = stored(engine, "loss_block")
    assert [bool(row[8]) for row in blocks] == [False, True]
    assert "e" not in {word for row in blocks for word in str(row[8]).split() if len(word) != 16}


def test_what_is_large_is_known_from_enough_errors_on_and_stays(engine: Engine) -> None:
    found = [one for one in outcomes(9, 1_200, entities=10_000, numbers=True) if one.version == "1"]
    with write(engine) as connection:
        count_losses(connection, "m", found)
    bounds = [row[9] for row in stored(engine, "loss_block")]
    known = [bound for bound in bounds if bound is not None]
    assert 200 / BLOCK <= len(bounds) - len(known) <= 12
    assert len(set(known)) == 1
    large = np.quantile([abs(one.error) for one in found], 0.9)
    assert abs(known[0] - int(buckets_of(np.array([large]))[0])) <= 2


def test_count_losses_takes_the_scale_from_the_traffic_when_failures_are_labelled_first(
    engine: Engine,
) -> None:
    """Of a failure in ten the labels are all asked for, of the rest one in twenty."""
    rng = np.random.default_rng(3)
    is_failure = rng.random(40_000) < 0.1
    error = np.where(is_failure, rng.normal(0, 1_000, 40_000), rng.normal(0, 50, 40_000))
    asked = np.where(is_failure, 1.0, 0.05)
    chosen = np.flatnonzero(rng.random(40_000) < asked)
    chosen = chosen[np.argsort(~is_failure[chosen] + rng.random(len(chosen)) * 1.1)]
    requests = [
        {"model": "m", "record_id": f"r{at}", "policy": "p", "reason": "p", "probability": float(asked[at]),
         "round": 1, "created_us": 0, "position": 0, "population": 40_000,
         "floor": 0.05, "is_audit": False}
        for at in chosen.tolist()
    ]  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(LabelRequest), requests)
        for begin in range(0, len(chosen), 100):
            part = list(enumerate(chosen[begin : begin + 100].tolist(), begin))
            connection.execute(insert(Label), [
                {"model": "m", "seq": 1, "row": place, "record_id": f"r{at}", "ts_us": 0, "label": "{}",
                 "source": "", "received_us": 0}
                for place, at in part
            ])  # fmt: skip
            count_losses(connection, "m", [
                FirstOutcome(f"r{at}", "1", "", None, place, place, 1.0, False, float(error[at]))
                for place, at in part
            ])  # fmt: skip
    bound = next(row[9] for row in stored(engine, "loss_block") if row[9] is not None)
    sides = np.abs(error), np.abs(error[chosen[:200]])
    large = [int(buckets_of(np.array([np.quantile(side, 0.9)]))[0]) for side in sides]
    assert abs(bound - large[0]) <= 8 < large[1] - large[0]
