"""One line of JSON per figure, the same for every benchmark."""

import json
from dataclasses import asdict, dataclass


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
        Of a statistic: the cases it rests on, and its interval (95 % where ``unit`` says nothing else).
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
