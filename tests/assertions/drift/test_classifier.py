"""The domain classifier finds relations that changed, names the columns, and is rarely wrong."""

from typing import Any

import numpy as np
import pytest

from outrider.assertions.drift import drift_report
from tests.soak import at_most, rounds


def related(rng: np.random.Generator, rows: int, *, sign: float = 1.0, run: int = 1) -> dict[str, Any]:
    x, y = np.repeat(rng.normal(size=(2, rows // run)), run, axis=1)
    return {
        "x": x,
        "y": sign * 0.8 * x + 0.6 * y,
        "other": rng.normal(size=rows),
        "kind": np.repeat(rng.choice(list("ab"), rows // run), run),
    }


def test_a_changed_relation_is_found_and_its_columns_are_named() -> None:
    rng = np.random.default_rng(0)
    found = drift_report(related(rng, 3000), related(rng, 3000, sign=-1.0), is_multivariate=True)
    assert found.is_drift
    assert not found.drifting
    assert found.together is not None
    assert found.together.low > 0.7
    assert set(found.together.columns[:2]) == {"x", "y"}
    assert found.sentence.startswith("no column drifts alone, all together do")
    assert found.to_dict()["together"]["auroc"] == found.together.auroc


@pytest.mark.parametrize("run", [1, 20])
def test_equal_windows_are_rarely_told_apart(run: int) -> None:
    draws, alarms = rounds(1000, part=20), 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        found = drift_report(
            related(rng, 1000, run=run), related(rng, 1000, run=run), is_multivariate=True, least=1e-9
        ).together
        assert found is not None
        alarms += found.chance <= 0.05
    assert alarms <= at_most(0.05, draws) * draws


def test_too_few_records_or_columns_are_not_classified() -> None:
    rng = np.random.default_rng(0)
    few = related(rng, 200)
    assert drift_report(few, few, is_multivariate=True).together is None
    one = {"x": rng.normal(size=1000)}
    assert drift_report(one, one, is_multivariate=True).together is None
    many = related(rng, 1000)
    assert drift_report(many, many).together is None
