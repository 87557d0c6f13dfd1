"""Rounds of the label queue on long-lived entities: budgets are filled, weights right, estimates unbiased."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import Engine, insert

from outrider.assertions.selection import POLICIES, Policy
from outrider.dataops.labels import queue as labels
from outrider.dataops.labels.estimates import evenly_drawn, read_estimates, request_weights
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from tests.dataops.label_requests import request_labels

CAMERAS, RECORDS, BUDGET = 8, 1000, 100
SECOND = 1_000_000
SEEDS = 16
T999 = 4.07
"""99.9 % of Student's distribution, both sides, with 15 degrees of freedom."""


@dataclass(frozen=True)
class Cameras:
    """A record a second of eight cameras; errors are flagged oftener than the rest."""

    engine: Engine
    model: str
    wrong: NDArray[np.bool_]

    def record(self, first: int, last: int, flagged: NDArray[np.bool_]) -> None:
        rows = range(first, last)
        records: list[dict[str, Any]] = [
            {
                "model": self.model,
                "id": f"r{row:04}",
                "seq": 1 + row // 100,
                "row": row % 100,
                "ts_us": row * SECOND,
                "digest": 0,
                "entity": f"camera {row % CAMERAS}",
                "predicted": "0",
            }
            for row in rows
        ]
        flags: list[dict[str, Any]] = [
            {
                "model": self.model,
                "id": f"{self.model} {row}",
                "record_id": f"r{row:04}",
                "assertion": "odd",
                "revision": "1",
                "slot": "champion",
                "severity": 0.1 + row % 7,
                "level": "info",
                "seq": 1 + row // 100,
                "row": row % 100,
                "ts_us": row * SECOND,
            }
            for row in rows
            if flagged[row]
        ]
        with write(self.engine) as connection:
            connection.execute(insert(tables.Record), records)
            if flags:
                connection.execute(insert(tables.Flag), flags)

    def round(self, policy: Policy, seed: int, **more: Any) -> list[labels.RequestedLabel]:
        """Ask, and label everything that was asked for."""
        with write(self.engine) as connection:
            found = request_labels(
                connection, model=self.model, budget=BUDGET, policy=policy, seed=seed, now_us=1, **more
            )
            rows: list[dict[str, Any]] = [
                {
                    "model": self.model,
                    "record_id": item.record_id,
                    "seq": 1000 * int(self.model[1:]) + 100 + item.round,
                    "row": item.position,
                    "source": "human",
                    "value": str(int(self.wrong[int(item.record_id[1:])])),
                    "label": {},
                    "ts_us": 0,
                    "received_us": 0,
                }
                for item in found
            ]
            if rows:
                connection.execute(insert(improvement_tables.Label), rows)
        return found

    def error(self) -> float:
        """Estimated accuracy less the true one."""
        with self.engine.connect() as connection:
            return read_estimates(connection, self.model).accuracy.value - float((~self.wrong).mean())


def cameras(engine: Engine, seed: int, *, came: int = RECORDS) -> tuple[Cameras, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    wrong = rng.random(RECORDS) < 0.046
    flagged = rng.random(RECORDS) < np.where(wrong, 0.5, 0.02)
    found = Cameras(engine, f"m{seed}", wrong)
    found.record(0, came, flagged)
    return found, flagged


@pytest.mark.parametrize("policy", POLICIES)
def test_rounds_are_full_while_records_remain_and_labels_of_all_give_the_truth(
    engine: Engine, policy: Policy
) -> None:
    found, _ = cameras(engine, 0)
    for _ in range(RECORDS // BUDGET):
        assert len(found.round(policy, 0)) == BUDGET
    assert found.round(policy, 0) == []
    assert found.error() == pytest.approx(0.0, abs=1e-6)
    with engine.connect() as connection:
        weights = [one.weight for one in request_weights(connection, "m0").values()]
    assert weights == pytest.approx(np.full(RECORDS, weights[0]), rel=1e-3)


@pytest.mark.parametrize("policy", ["uniform", "bal"])
def test_a_policy_with_nothing_left_draws_evenly_and_its_weights_say_so(
    engine: Engine, policy: Policy
) -> None:
    found, flagged = cameras(engine, 1)
    asked = found.round(policy, 0)
    last = max(item.position for item in asked if not item.is_audit)
    assert last < BUDGET / 2
    for item in asked[last + 1 :]:
        assert (item.is_audit, item.reason, item.floor) == (True, "audit", 1.0)
        assert item.probability == pytest.approx(1 / item.population)
    with engine.connect() as connection:
        weights = request_weights(connection, "m1")
        even = evenly_drawn(connection, "m1")
    # What the policy had no taste for weighs the same, whether it was drawn before or after.
    plain = [weights[item.record_id].weight for item in asked if not flagged[int(item.record_id[1:])]]
    assert plain == pytest.approx(np.full(len(plain), plain[0]))
    left = np.array([item.population for item in asked])
    floor = np.array([item.floor for item in asked])
    chance = 1 - np.prod(1 - floor / left)
    assert plain[0] * RECORDS / BUDGET == pytest.approx(1 / chance)
    assert max(one.weight for one in weights.values()) == pytest.approx(plain[0])
    assert {name for name, drawn in even.items() if drawn} <= {item.record_id for item in asked[: last + 1]}


@pytest.mark.parametrize(("policy", "came"), [("uniform", RECORDS), ("bal", 400)])
def test_estimates_over_rounds_are_unbiased(engine: Engine, policy: Policy, came: int) -> None:
    errors = []
    for seed in range(SEEDS):
        found, flagged = cameras(engine, seed, came=came)
        for number in range(3):
            assert len(found.round(policy, seed)) == BUDGET
            if number == 0 and came < RECORDS:
                found.record(came, RECORDS, flagged)
        errors.append(found.error())
    mean, error = np.mean(errors), np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(mean) < T999 * error
    assert error < 0.008


def test_a_round_of_newer_records_tells_nothing_about_older_ones(engine: Engine) -> None:
    errors = []
    for seed in range(SEEDS):
        found, _ = cameras(engine, seed)
        found.wrong[:500] |= np.arange(500) % 4 == 0  # the older half is worse
        found.round("random", seed)
        found.round("random", seed, since_us=500 * SECOND)
        errors.append(found.error())
    mean, error = np.mean(errors), np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(mean) < T999 * error
    assert error < 0.01


def test_without_an_audit_a_round_ends_with_its_policy_and_estimates_nothing(engine: Engine) -> None:
    found, flagged = cameras(engine, 0)
    asked = found.round("uniform", 0, audit_share=0.0, group_s=1.0)
    assert {item.record_id for item in asked} == {f"r{row:04}" for row in np.flatnonzero(flagged)}
    with engine.connect() as connection:
        assert read_estimates(connection, "m0").accuracy.method == "none"
    found.round("uniform", 0)  # what is known counts beside what was drawn later
    with engine.connect() as connection:
        accuracy = read_estimates(connection, "m0").accuracy
    assert accuracy.low <= float((~found.wrong).mean()) <= accuracy.high
