"""Measured values that the documentation quotes, one JSON file per benchmark."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from outrider.behavioral_tests.statistics.intervals import wilson_interval

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Result:
    """A measured value with its interval.

    Attributes
    ----------
    n
        How many observations it is of.
    low, high
        Ends of the interval; None where the value is a plain count or a description.
    data
        Data set and part that it was measured on.
    confidence
        Of the interval; None without one.
    """

    name: str
    value: float
    unit: str
    n: int
    low: float | None
    high: float | None
    data: str
    confidence: float | None = 0.95


def share(name: str, hits: int, n: int, data: str) -> Result:
    """Share with its Wilson interval; ``n`` at least 1."""
    low, high = wilson_interval(hits, n)
    return Result(name, hits / n, "share", n, low, high, data)


def plain(name: str, value: float, unit: str, n: int, data: str) -> Result:
    """Value without an interval."""
    return Result(name, value, unit, n, None, None, data, None)


def clustered_share(name: str, hits: Sequence[int], n: Sequence[int], data: str) -> Result:
    """Share over clusters whose members are alike: ratio estimate, t with one less than their number.

    References
    ----------
    Cochran, "Sampling Techniques", 3rd edition, §3.12.
    """
    from scipy.stats import t

    right, total = np.asarray(hits, dtype=float), np.asarray(n, dtype=float)
    many, rate = len(total), right.sum() / total.sum()
    spread = np.sqrt(many / (many - 1) * ((right - rate * total) ** 2).sum()) / total.sum()
    reach = t.ppf(0.975, many - 1) * spread
    low, high = float(max(0.0, rate - reach)), float(min(1.0, rate + reach))
    return Result(name, float(rate), "share", int(total.sum()), low, high, data)


def write(benchmark: str, results: Iterable[Result]) -> Path:
    """Write ``benchmarks/results/<benchmark>.json``, values to six digits."""
    lines = [
        {
            key: float(f"{value:.6g}") if isinstance(value, float) else value
            for key, value in asdict(one).items()
        }
        for one in results
    ]
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{benchmark}.json"
    path.write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n", encoding="utf-8")
    return path


def read(benchmark: str) -> dict[str, Result]:
    """Results of a benchmark by name, as they were written."""
    found = json.loads((FOLDER / f"{benchmark}.json").read_text(encoding="utf-8"))
    return {line["name"]: Result(**line) for line in found}
