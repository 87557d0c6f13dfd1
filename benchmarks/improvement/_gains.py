"""Gains of answers as figures."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from benchmarks.figure import Figure


def show_gain(name: str, differences: NDArray[np.float64], least: float | None, data: str) -> None:
    """Mean difference with its 95 % interval; its lower end is held against ``least``."""
    mean, n = float(differences.mean()), len(differences)
    half = float(t.ppf(0.975, n - 1) * differences.std(ddof=1)) / n**0.5
    low, high = mean - half, mean + half
    held = "" if least is None else f"lower end above {least:g}"
    ratio = 1.0 if least is None else float(low > least)
    Figure(
        name, mean, "of answers", held or "recorded", ratio, None if least is None else 1.0, n=n, low=low,
        high=high, data=data,
    ).show()  # fmt: skip
