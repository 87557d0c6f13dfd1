"""Figures that whylogs found in the same columns: `benchmarks/monitoring/_profile_peers.py` wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.monitoring.profile import FLOATS, traffic
from outrider.assertions.profiling import Profile, ProfileLayout, summaries

FOUND = json.loads((Path(__file__).parent / "whylogs.json").read_text(encoding="utf-8"))


def test_quantiles_means_and_distinct_values_agree_with_whylogs() -> None:
    batch = traffic(FOUND["rows"], seed=0)
    for column in summaries(Profile.of(batch, ProfileLayout.fit(batch))):
        known = FOUND["columns"][column.name]
        assert column.distinct == pytest.approx(known["distinct"], rel=0.13)
        if not column.name.startswith("inputs.x"):
            continue
        assert column.mean == pytest.approx(known["mean"], rel=1e-9)
        assert column.quantiles is not None
        values = np.sort(batch.column(column.name))
        ranks = [np.searchsorted(values, one) / len(values) for one in (known["quantiles"], column.quantiles)]
        assert np.abs(ranks[0] - ranks[1]).max() < 0.025
    assert len([name for name in FOUND["columns"] if name.startswith("inputs.x")]) == FLOATS
