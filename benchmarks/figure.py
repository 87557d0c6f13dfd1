"""One line of JSON per figure, the same for every benchmark."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and what it is held against.

    Attributes
    ----------
    ratio
        ``value`` over the value of ``against``.
    target
        What ``ratio`` should reach; None while a figure is only recorded.
    n, low, high
        Of a statistic: the cases it rests on, and its interval (95 % where ``unit`` says nothing else). Of a
        ratio of pairs: how many pairs, and the interval of their median.
    data
        Data set, or how data were simulated, seeds included.
    """

    name: str
    value: float
    unit: str
    against: str
    ratio: float
    target: float | None = None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    data: str = ""

    @classmethod
    def of_share(
        cls,
        name: str,
        hits: int,
        n: int,
        unit: str,
        *,
        base: float = 1.0,
        target: float | None = None,
        data: str,
    ) -> Self:
        """Share of ``n`` at least 1, with its Wilson interval; ``ratio`` is that to ``base``."""
        from outrider.behavioral_tests.statistics import wilson_interval

        low, high = wilson_interval(hits, n)
        share = hits / n
        ratio = share / base if base else 0.0
        return cls(name, share, unit, f"{base:.4g}", ratio, target, n, low, high, data)

    @classmethod
    def of_pairs(
        cls,
        name: str,
        value: float,
        unit: str,
        against: str,
        ratios: Sequence[float],
        target: float | None = None,
        *,
        data: str,
    ) -> Self:
        """Median of the ratios of pairs measured in turn, with the interval that order statistics give it.

        Below six pairs the interval is from the least to the greatest, which is less than 95 %.
        """
        from scipy.stats import binom

        ranked = sorted(ratios)
        out = max(int(binom.ppf(0.025, len(ranked), 0.5)) - 1, 0)
        low, high = ranked[out], ranked[-1 - out]
        return cls(
            name, value, unit, against, statistics.median(ranked), target, len(ranked), low, high, data
        )

    @property
    def meets(self) -> bool | None:
        """Whether the target is met."""
        return None if self.target is None else self.ratio >= self.target

    def show(self) -> None:
        """Print the line."""
        known = asdict(self)
        statistic = {key: known.pop(key) for key in ("n", "low", "high", "data")}
        fields = known | {"meets": self.meets} | {k: v for k, v in statistic.items() if v not in (None, "")}
        shown = {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in fields.items()}
        print(json.dumps(shown), flush=True)


def show_table(name: str, markdown: str) -> None:
    """Print a table for the docs as one line of JSON; ``benchmarks.results`` keeps it beside the figures."""
    print(json.dumps({"table": name, "markdown": markdown.strip("\n")}, ensure_ascii=False), flush=True)
