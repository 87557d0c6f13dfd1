"""What ``learn`` proposes on real data: do expected fire rates hold later, and are faults found.

``python -m benchmarks.assertions.learning``. Rules of the Massachusetts census of 2015 are held against the
three years after, each observed rate against the 95 % interval of the expected one. Then faults are put into
the period that follows the reference of ``adult_census``, ``acs_employment_ma`` and ``elec2``, into every
column (or pair of columns of one type) in turn, all proposals accepted. Of records as they came it is said on
how many of 1,000 anything fires.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.assertions.assertion import Assertion
from outrider.assertions.checker import severities_of
from outrider.assertions.learn import Proposal, learn
from outrider.behavioral_tests.statistics import wilson_interval

Bools = NDArray[np.bool_]
SEED = 0
SHARE = 0.05
"""Records of the next period that get a fault of one record."""
RUN, RUNS = 48, 20
"""Records that a sensor is stuck for, and how often."""
WANTED = 0.9


@dataclass(frozen=True)
class Period:
    """A reference, what came next, and what is learned from the one."""

    name: str
    reference: Batch
    later: Batch
    proposals: list[Proposal]
    has_series: bool = False

    @property
    def columns(self) -> list[str]:
        """Columns that faults are put into."""
        return [name for name in self.later.names if name.startswith("inputs.")]


@dataclass
class Tally:
    """Faults of one kind: how many were put in and found, by column."""

    put: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    runs: dict[str, bool] = field(default_factory=dict)
    """Whether a fault that lasts is found: 0.9 of the stretches of RUN faulty records have a flag."""

    def add(self, where: str, flagged: Bools) -> None:
        """Count the faults of one column, shape (faults,)."""
        if len(flagged):
            self.put[where], self.found[where] = len(flagged), int(flagged.sum())
            size = min(RUN, len(flagged))
            stretches = flagged[: len(flagged) // size * size].reshape(-1, size).any(axis=1)
            self.runs[where] = bool(stretches.mean() >= WANTED)

    def share(self, where: str) -> float:
        """Share found of one column."""
        return self.found[where] / self.put[where]


def main() -> None:
    """Print every figure."""
    _rates()
    lines = [
        "| data | fault | records | found | columns or pairs at 0.9 | at 0.9 once it lasts | least found |",
        "|---|---|---|---|---|---|---|",
    ]
    for period in _periods():
        _idle(period)
        for kind, tally in _faults(period).items():
            lines.append(_shown(period, kind, tally))
    show_table("faults", "\n".join(lines))


# ---- expected rates -------------------------------------------------------------------------------------


def _rates() -> None:
    reference, later = (_acs(part) for part in ("reference", "analysis"))
    begin = time.perf_counter()
    proposals = learn(reference)
    taken = time.perf_counter() - begin
    fired = {one.name: _fired(one.assertion(), later) for one in proposals}
    rates = {name: float(rows.mean()) for name, rows in fired.items()}
    inside = [one.interval[0] <= rates[one.name] <= one.interval[1] for one in proposals]
    data = "acs_employment_ma: rules of 2015, 208,892 records of 2016 to 2018"
    _statistic("census.rates_inside", np.array(inside), "% of proposals", "95", data)
    anything = np.logical_or.reduce(list(fired.values()))
    _statistic("census.any_rule", anything, "% of later records", "0.5 expected at most", data)
    loudest = max(rates, key=rates.__getitem__)
    _statistic("census.loudest", fired[loudest], f"% of later records: {loudest}", "none", data)
    Figure(
        "census.time", taken / reference.rows * 1e6, f"us per record of {reference.rows}", "none", 1.0
    ).show()


# ---- faults in the next period --------------------------------------------------------------------------


def _idle(period: Period) -> None:
    """Flags on records as they came: of all proposals, and by whether their columns drift."""
    fired = [_fired(one.assertion(), period.later) for one in period.proposals]
    none = np.zeros(period.later.rows, dtype=np.bool_)
    data = _data(period)
    for name, chosen in (
        ("all", fired),
        ("steady", [rows for one, rows in zip(period.proposals, fired, strict=True) if not one.drift]),
    ):
        either = np.logical_or.reduce([none, *chosen])
        unit = f"% of records as they came, {len(chosen)} proposals"
        _statistic(f"{period.name}.false.{name}", either, unit, "0.5", data)


def _faults(period: Period) -> dict[str, Tally]:
    found = {
        "x 2.54": Tally(),
        "x 2.54, rounded": Tally(),
        "exchanged": Tally(),
        "of another record": Tally(),
    }
    judges = [one.assertion() for one in period.proposals]
    rng = np.random.default_rng(SEED)
    hit = rng.random(period.later.rows) < SHARE
    for column in period.columns:
        value = _values(period.later, column)
        if value.dtype != object:
            for kind, change in (("x 2.54", _longer), ("x 2.54, rounded", _rounded)):
                _put(period, judges, found[kind], hit, {column: change(value)})
        other = value[rng.permutation(len(value))]
        _put(period, judges, found["of another record"], hit, {column: other})
    for first, second in combinations(period.columns, 2):
        left, right = _values(period.later, first), _values(period.later, second)
        if left.dtype == right.dtype:
            _put(period, judges, found["exchanged"], hit, {first: right, second: left})
    if period.has_series:
        found["stuck"] = Tally()
        for column in period.columns:
            found["stuck"].add(column.partition(".")[2], _stuck(period, judges, column, rng))
    return found


def _put(period: Period, judges: list[Assertion], tally: Tally, hit: Bools, wrong: dict[str, Any]) -> None:
    """Give the records of ``hit`` other values, and count those that become others and are found."""
    later = period.later
    changed = np.zeros(later.rows, dtype=np.bool_)
    columns: dict[str, list[Any]] = {}
    for column, values in wrong.items():
        value = _values(later, column)
        changed |= hit & (value != values)
        columns[column] = np.where(hit, values, value).tolist()
    faulty = later.with_columns(columns)
    if not period.has_series:  # what is judged alone needs no neighbours
        faulty, changed = faulty.take(changed), changed[changed]
    flagged = np.logical_or.reduce([_fired(judge, faulty) for judge in judges])
    tally.add(" and ".join(name.partition(".")[2] for name in wrong), flagged[changed])


def _stuck(period: Period, judges: list[Assertion], column: str, rng: np.random.Generator) -> Bools:
    """Which of the runs that the column is stuck for are flagged, shape (runs,)."""
    rows = period.later.rows
    starts = np.sort(rng.choice(np.arange(1, rows // RUN - 1, 2), RUNS, replace=False)) * RUN
    value = _values(period.later, column).copy()
    for start in starts:
        value[start : start + RUN] = value[start]
    faulty = period.later.with_columns({column: value.tolist()})
    idle = np.logical_or.reduce([_fired(judge, period.later) for judge in judges])
    flagged = np.logical_or.reduce([_fired(judge, faulty) for judge in judges]) & ~idle
    return np.array([flagged[start + 1 : start + RUN].any() for start in starts])


def _longer(value: NDArray[Any]) -> NDArray[np.float64]:
    return np.round(value * 2.54, 9)


def _rounded(value: NDArray[Any]) -> NDArray[np.float64]:
    """As a sender stores it: whole numbers stay whole, others keep their six digits."""
    whole = bool((value == np.round(value)).all())
    return np.round(value * 2.54, 0 if whole else 6)


def _shown(period: Period, kind: str, tally: Tally) -> str:
    """One line of the table; prints the figure of all columns together."""
    put, found = sum(tally.put.values()), sum(tally.found.values())
    low, high = wilson_interval(found, put)
    share = found / put
    Figure(
        name=f"{period.name}.{kind}",
        value=100 * share,
        unit=f"% found, {len(tally.put)} columns or pairs",
        against="90",
        ratio=share / WANTED,
        n=put,
        low=100 * low,
        high=100 * high,
        data=_data(period),
    ).show()
    order = sorted(tally.put, key=tally.share)
    good = sum(tally.share(where) >= WANTED for where in order)
    least = ", ".join(f"{where} {tally.share(where):.2f}" for where in order[:3])
    shown = f"{100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    lasting = good if kind == "stuck" else sum(tally.runs.values())
    counts = f"{good} of {len(order)} | {lasting} of {len(order)}"
    return f"| {period.name} | {kind} | {put:,} | {shown} | {counts} | {least} |"


def _statistic(name: str, rows: Bools, unit: str, against: str, data: str) -> None:
    low, high = wilson_interval(int(rows.sum()), len(rows))
    Figure(
        name, 100 * float(rows.mean()), unit, against, 1.0, None, len(rows), 100 * low, 100 * high, data
    ).show()


def _fired(judge: Assertion, batch: Batch) -> Bools:
    return severities_of(judge, batch) > 0


def _values(batch: Batch, column: str) -> NDArray[Any]:
    found = batch.to_arrow().column(column)
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    number = pa.types.is_integer(found.type) or pa.types.is_floating(found.type)
    return found.to_numpy(zero_copy_only=False) if number else np.array(found.to_pylist(), dtype=object)


# ---- data -----------------------------------------------------------------------------------------------


def _data(period: Period) -> str:
    before, after = period.reference.rows, period.later.rows
    return f"{period.name}: rules of {before:,} records, the {after:,} after, seed {SEED}"


def _periods() -> Iterator[Period]:
    make: list[tuple[str, Callable[[], Batch], Callable[[], Batch], bool]] = [
        ("adult_census", lambda: _adult().slice(0, 24_000), lambda: _adult().slice(24_000), False),
        ("acs_employment_ma", lambda: _acs("reference"), lambda: _acs("analysis").slice(0, 69_000), False),
        ("elec2", lambda: _elec2().slice(18_000, 20_000), lambda: _elec2().slice(38_000), True),
        (
            "elec2.drifting",
            lambda: _elec2().slice(18_000, 12_000),
            lambda: _elec2().slice(30_000, 8_000),
            True,
        ),
    ]
    for name, reference, later, has_series in make:
        learned_from = reference()
        yield Period(name, learned_from, later(), learn(learned_from), has_series)


def _adult() -> Batch:
    frame = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    inputs = [str(name) for name in frame if name != "income"]
    return Batch.from_pandas(frame, model="adult", inputs=inputs, labels=["income"])


def _acs(part: str) -> Batch:
    frame = pd.read_parquet(data_folder("acs_employment_ma") / f"{part}.parquet")
    outputs = ["prediction", "predicted_probability"]
    inputs = [str(name) for name in frame if name not in ("id", "employed", "year", *outputs)]
    return Batch.from_pandas(frame, model="acs", inputs=inputs, outputs=outputs, id="id")


def _elec2() -> Batch:
    """One stream, a record every half hour."""
    frame = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    columns = ("nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
    begin = np.datetime64("1996-05-07", "us")
    return Batch.from_columns(
        {
            "entity": ["nsw"] * len(frame),
            "ts": begin + frame["step"].to_numpy() * np.timedelta64(30, "m"),
            **{f"inputs.{name}": frame[name].to_numpy() for name in columns},
        },
        model="elec2",
    )


if __name__ == "__main__":
    main()
