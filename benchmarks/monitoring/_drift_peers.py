"""Results and times of peers on the same data, by the Python of an environment that has one of them.

``PYTHON benchmarks/monitoring/_drift_peers.py FOLDER NAME`` prints one JSON object: version, seconds,
statistics by column.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

warnings.simplefilter("ignore")
os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
Statistics = dict[str, dict[str, float]]


def scipy_statistics(reference: pd.DataFrame, current: pd.DataFrame) -> Statistics:
    """Exact distances of numbers, chi-square of categories."""
    from scipy import stats

    found: Statistics = {}
    for name in map(str, reference):
        one, two = reference[name].dropna(), current[name].dropna()
        if one.dtype.kind == "f":
            found[name] = {
                "ks": float(stats.ks_2samp(one, two, method="asymp").statistic),
                "wasserstein": float(stats.wasserstein_distance(one, two)),
            }
        else:
            table = pd.crosstab(pd.concat([one, two]), [0] * len(one) + [1] * len(two))
            found[name] = {"chi_square": float(stats.chi2_contingency(table, correction=False).statistic)}
    return found


def nannyml_statistics(reference: pd.DataFrame, current: pd.DataFrame) -> Statistics:
    """Univariate drift of one chunk."""
    import nannyml

    words = [name for name in reference if reference[name].dtype.kind != "f"]
    calculator = nannyml.UnivariateDriftCalculator(
        column_names=list(reference),
        treat_as_categorical=words,
        continuous_methods=["kolmogorov_smirnov", "wasserstein", "jensen_shannon"],
        categorical_methods=["chi2", "jensen_shannon", "l_infinity"],
        chunk_number=1,
    )
    calculator.fit(reference)
    frame = calculator.calculate(current).filter(period="analysis").to_df()
    methods = {"kolmogorov_smirnov": "ks", "chi2": "chi_square"}
    found: Statistics = {}
    for name, method, what in frame.columns:
        if what == "value":
            found.setdefault(name, {})[methods.get(method, method)] = float(frame[name, method, what].iloc[0])
    return found


def evidently_statistics(reference: pd.DataFrame, current: pd.DataFrame) -> Statistics:
    """Drift of every column by the named distances."""
    from evidently.legacy.calculations.stattests import get_stattest
    from evidently.legacy.core import ColumnType

    found: Statistics = {}
    for name in map(str, reference):
        kind = ColumnType.Numerical if reference[name].dtype.kind == "f" else ColumnType.Categorical
        one, two = reference[name].dropna(), current[name].dropna()
        methods = ("wasserstein",) if kind == ColumnType.Numerical else ("psi", "jensenshannon", "chisquare")
        for method in methods:
            test = get_stattest(one, two, kind, method)
            found.setdefault(name, {})[method] = float(test(one, two, kind, 0.1).drift_score)
    return found


PEERS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], Statistics]] = {
    "scipy": scipy_statistics,
    "nannyml": nannyml_statistics,
    "evidently": evidently_statistics,
}


def main(folder: Path, name: str) -> None:
    """Print version, seconds and statistics."""
    reference, current = (pd.read_parquet(folder / f"{each}.parquet") for each in ("reference", "current"))
    for frame in (reference, current):
        for column in frame:
            if frame[column].dtype.kind != "f":
                frame[column] = frame[column].astype(object)
    began = time.perf_counter()
    found = PEERS[name](reference, current)
    told: dict[str, Any] = {"peer": name, "version": version(name), "statistics": found}
    print(json.dumps(told | {"seconds": round(time.perf_counter() - began, 3)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
