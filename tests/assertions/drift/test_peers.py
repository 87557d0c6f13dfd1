"""Statistics agree with those that scipy, NannyML and Evidently gave on the same rows (`peers.json`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.monitoring.drift import SMALL, windows
from outrider.assertions.drift import DriftReport, drift_report, ks_distance, wasserstein

PEERS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "peers.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, pd.DataFrame]:
    return windows(*SMALL)


@pytest.fixture(scope="module")
def report(data: tuple[pd.DataFrame, pd.DataFrame]) -> DriftReport:
    return drift_report(*data)


def of(peer: str, column: str) -> dict[str, float]:
    found: dict[str, float] = PEERS[peer]["statistics"][column]
    return found


def test_numbers_have_the_exact_distances_of_scipy_and_nannyml(
    data: tuple[pd.DataFrame, pd.DataFrame], report: DriftReport
) -> None:
    columns = {each.column: each.statistics for each in report.columns}
    for name in (name for name in map(str, data[0]) if not name.startswith("word")):
        one, two = (each[name].dropna().to_numpy() for each in data)
        exact = ks_distance(one, two)
        assert exact == pytest.approx(of("scipy", name)["ks"], abs=1e-12)
        assert exact == pytest.approx(of("nannyml", name)["ks"], abs=1e-12)
        assert exact - 0.01 <= columns[name]["ks"] <= exact + 1e-12
        moved = wasserstein(one, two)
        assert moved == pytest.approx(of("scipy", name)["wasserstein"], rel=1e-9)
        assert moved == pytest.approx(of("nannyml", name)["wasserstein"], rel=1e-9)
        # Evidently's is over the reference's standard deviation.
        spread = np.std(one)
        assert moved == pytest.approx(of("evidently", name)["wasserstein"] * spread, rel=1e-3)
        assert columns[name]["wasserstein"] == pytest.approx(moved, rel=0.05)


def test_categories_have_the_distances_of_scipy_nannyml_and_evidently(report: DriftReport) -> None:
    words = [each for each in report.columns if each.column.startswith("word")]
    assert len(words) == 5
    for each in words:
        found, name = each.statistics, each.column
        assert found["chi_square"] == pytest.approx(of("scipy", name)["chi_square"], rel=1e-9)
        assert found["chi_square"] == pytest.approx(of("nannyml", name)["chi_square"], rel=1e-9)
        assert found["jensen_shannon"] == pytest.approx(of("nannyml", name)["jensen_shannon"], rel=1e-6)
        assert found["total_variation"] >= of("nannyml", name)["l_infinity"]
        assert found["psi"] == pytest.approx(of("evidently", name)["psi"], rel=1e-6)
        # Evidently's is in nats.
        in_nats = found["jensen_shannon"] * np.sqrt(np.log(2))
        assert in_nats == pytest.approx(of("evidently", name)["jensenshannon"], rel=1e-6)


def test_peers_are_named_with_their_versions() -> None:
    assert {peer: found["version"] for peer, found in PEERS.items()} == {
        "scipy": "1.17.1",
        "nannyml": "0.13.1",
        "evidently": "0.7.23",
    }
