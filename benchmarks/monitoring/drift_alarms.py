"""False alarms of drift reports on windows without drift, and drift that is found.

Reports at an error of 5 % and without a floor of the effect, so that the chances alone decide; each draw is
a reference and a current window of the same source. The promise: the upper 95 % bound of the share of reports
with any alarm is at most the error. Power at the usual settings: shares of planted changes found, and columns
of real data.

Rows of real tables in their order, at the usual settings: windows that follow one another, with nothing
planted and with two standard deviations added to one column of the current one; the same rows shuffled. What
moves such tables by itself is in both: scenes, prices, airlines in the news.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions.drift import drift_report
from outrider.behavioral_tests.statistics import wilson_interval

ERROR, DRAWS, POWER_DRAWS = 0.05, 1000, 100
TINY = 1e-9
Columns = dict[str, Any]


def independent(rng: np.random.Generator, rows: int) -> Columns:
    """Heavy tails, ties, rare values, many categories, nulls."""
    return {
        "normal": rng.normal(size=rows),
        "cauchy": rng.standard_cauchy(rows),
        "counts": rng.poisson(0.5, rows),
        "rare": rng.random(rows) < 0.01,
        "uneven": rng.choice(list("abcd"), rows, p=[0.9, 0.07, 0.02, 0.01]),
        "zipf": np.array([f"z{value}" for value in np.minimum(rng.zipf(1.7, rows), 3000)]),
        "nulls": np.where(rng.random(rows) < 0.02, np.nan, rng.normal(size=rows)),
    }


def runs(rng: np.random.Generator, rows: int) -> Columns:
    """Twenty records of an entity behind each other, alike."""
    many = rows // 20
    entity = np.repeat(np.arange(many), 20)
    value = rng.normal(size=many)[entity]
    return {
        "number": value + 0.1 * rng.normal(size=rows),
        "kind": rng.choice(list("abc"), many)[entity],
        "nulls": np.where((rng.random(many) < 0.1)[entity], np.nan, value),
        "user": np.array([str(each) for each in rng.integers(10**12, size=many)])[entity],
    }


def uneven(rng: np.random.Generator, rows: int) -> Columns:
    """Entities with one record or hundreds, mixed."""
    sizes = np.minimum(rng.zipf(1.8, rows), rows // 20)
    entity = np.repeat(np.arange(rows), sizes)[:rows]
    rng.shuffle(entity)
    value = rng.normal(size=rows)[entity]
    return {
        "number": value + 0.3 * rng.normal(size=rows),
        "kind": rng.choice(list("abcd"), rows)[entity],
        "user": np.array([str(each) for each in rng.integers(10**12, size=rows)])[entity],
    }


def lagged(rng: np.random.Generator, rows: int) -> Columns:
    """Autoregression, a tenth of the past forgotten at each step."""
    noise = rng.normal(size=(rows + 100,))
    value = np.convolve(noise, 0.9 ** np.arange(100), mode="full")[100 : rows + 100]
    return {"number": value, "level": np.where(value > 1, "high", np.where(value > -1, "middle", "low"))}


def season(rng: np.random.Generator, rows: int) -> Columns:
    """A wave of 500 records as large as the noise."""
    value = np.sin(2 * np.pi * (np.arange(rows) / 500 + rng.random())) + rng.normal(size=rows)
    return {"number": value, "level": np.where(value > 1, "high", np.where(value > -1, "middle", "low"))}


def slow(rng: np.random.Generator, rows: int) -> Columns:
    """Autoregression that forgets within 300 records, as large as the noise."""
    kept = np.exp(-np.arange(3000) / 300)
    drawn = np.convolve(rng.normal(size=rows + 2999), kept / np.sqrt((kept**2).sum()), mode="valid")
    return {"number": drawn + rng.normal(size=rows), "high": drawn > 1}


def walk(rng: np.random.Generator, rows: int) -> Columns:
    """Random walk, five times the noise over 6,000 records."""
    steps = rng.normal(size=rows) * 5 / np.sqrt(6000)
    return {"number": np.cumsum(steps) + rng.normal(size=rows)}


def weighted(rng: np.random.Generator, rows: int) -> Columns:
    """Records captured with very unequal probabilities."""
    return independent(rng, rows) | {"weight": np.exp(rng.normal(size=rows))}


@dataclass(frozen=True, slots=True)
class Source:
    """Windows without drift; those of one stream follow one another."""

    name: str
    draw: Callable[[np.random.Generator, int], Columns]
    sizes: tuple[int, int]
    entity: str | None = None
    weight: str | None = None
    is_stream: bool = False

    def windows(self, rng: np.random.Generator) -> tuple[Columns, Columns]:
        """Reference and current window."""
        if not self.is_stream:
            return self.draw(rng, self.sizes[0]), self.draw(rng, self.sizes[1])
        every = self.draw(rng, sum(self.sizes))
        end = self.sizes[0]
        before = {name: each[:end] for name, each in every.items()}
        return before, {name: each[end:] for name, each in every.items()}


SOURCES = (
    Source("small", independent, (200, 200)),
    Source("short", independent, (2000, 200)),
    Source("long", independent, (500, 4000)),
    Source("large", independent, (8000, 8000)),
    Source("runs_of_entities", runs, (4000, 4000), entity="user"),
    Source("runs", runs, (4000, 4000)),
    Source("uneven_entities", uneven, (3000, 3000), entity="user"),
    Source("lagged", lagged, (6000, 6000)),
    Source("lagged_short", lagged, (6000, 300)),
    Source("season", season, (6000, 2000), is_stream=True),
    Source("season_short", season, (6000, 300), is_stream=True),
    Source("slow", slow, (6000, 2000), is_stream=True),
    Source("slow_short", slow, (6000, 600), is_stream=True),
    Source("walk", walk, (6000, 2000), is_stream=True),
    Source("walk_short", walk, (6000, 600), is_stream=True),
    Source("weighted", weighted, (2000, 2000), weight="weight"),
)


def is_alarm(source: Source, seed: int) -> bool:
    """True where a report on two windows of a source calls any column drifting."""
    rng = np.random.default_rng([seed, 19])
    one, two = source.windows(rng)
    columns = [name for name in one if name not in ("user", "weight")]
    return drift_report(
        one, two, columns=columns, entity=source.entity, weight=source.weight,
        alpha=ERROR, least=TINY, least_share=TINY,
    ).is_drift  # fmt: skip


def false_alarms(draws: int = DRAWS) -> None:
    """Reports without any alarm, of windows without drift."""
    for source in SOURCES:
        target = None if source.draw is walk else 1.0  # leaves all values that it had, sooner or later
        alarms = sum(is_alarm(source, seed) for seed in range(draws))
        high = wilson_interval(alarms, draws)[1]
        Figure(
            f"monitoring.drift_alarms.{source.name}", alarms / draws, "share of reports with any alarm",
            f"upper 95 % bound at most {ERROR}", ERROR / high, target, draws, *wilson_interval(alarms, draws),
            data=f"{source.sizes[0]} and {source.sizes[1]} records without drift, no floor, from seed 0",
        ).show()  # fmt: skip


def shift(data: Columns, rng: np.random.Generator) -> str:
    """A quarter of a standard deviation, with a tenth more noise."""
    rows = len(data["normal"])
    data["normal"] = data["normal"] + rng.normal(0.25, 0.1, rows)
    return "normal"


def more_nulls(data: Columns, rng: np.random.Generator) -> str:
    """Five points more of nulls."""
    data["nulls"] = np.where(rng.random(len(data["nulls"])) < 0.05, np.nan, data["nulls"])
    return "nulls"


def renamed(data: Columns, rng: np.random.Generator) -> str:
    """Half of a category of seven per cent in capitals."""
    is_moved = (data["uneven"] == "b") & (rng.random(len(data["uneven"])) < 0.5)
    data["uneven"] = np.where(is_moved, "B", data["uneven"])
    return "uneven"


def power(draws: int = POWER_DRAWS) -> None:
    """Planted changes that are found, and nothing else called drift, at 4,000 and 4,000 records."""
    for plant in (shift, more_nulls, renamed):
        found = 0
        for seed in range(draws):
            rng = np.random.default_rng([seed, 20])
            one, two = independent(rng, 4000), independent(rng, 4000)
            column = plant(two, rng)
            found += [each.column for each in drift_report(one, two).drifting] == [column]
        Figure.of_share(
            f"monitoring.drift_alarms.found.{plant.__name__}", found, draws, "share of reports",
            base=0.9, target=1.0, data=f"{plant.__doc__} 4,000 and 4,000 records, usual settings",
        ).show()  # fmt: skip


def real() -> None:
    """Columns called drifting on real data: halves of one sample, and years and seasons that differ."""
    adult = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    mixed = adult.sample(frac=1.0, random_state=0)
    acs = data_folder("acs_employment_ma")
    elec = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    windows = {
        "adult_halves": (mixed.iloc[:16_000], mixed.iloc[16_000:]),
        "acs_years": tuple(pd.read_parquet(acs / f"{name}.parquet") for name in ("reference", "analysis")),
        "elec2_late": (elec.iloc[:10_000], elec.iloc[-10_000:]),
    }
    for name, (one, two) in windows.items():
        both = [str(column) for column in one if column in two.columns]
        found = drift_report(one, two, columns=both)
        told = "; ".join(f"{each.column}: {each.words}" for each in found.drifting)
        Figure(
            f"monitoring.drift_alarms.{name}", len(found.drifting), "columns that drift",
            f"{len(found.columns)} compared", len(found.drifting) / max(1, len(found.columns)), data=told,
        ).show()  # fmt: skip


def real_streams() -> Iterator[tuple[str, pd.DataFrame]]:
    """Numbers of real tables in their order."""
    yield "elec2", _table("elec2", "elec2")[["nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]]
    azure = _table("azure_llm_trace_conv", "trace")
    gaps = np.diff(azure["arrival_s"], prepend=0.0)
    yield "azure_llm_trace_conv", azure[["context_tokens", "generated_tokens"]].assign(gap=gaps)
    tweets = _table("airline_tweets", "tweets")
    is_negative = tweets["label"] == "negative"
    yield "airline_tweets", pd.DataFrame({"length": tweets["text"].str.len(), "negative": is_negative})
    beats = _table("ecg_mitdb", "beats")
    yield "ecg_mitdb", pd.DataFrame({"interval": beats.groupby("record", observed=True)["time_s"].diff()})
    for name in ("mot17_dpm", "mot15_pedestrians"):
        yield name, _table(name, "detections")[["left", "top", "width", "height", "conf"]]
    boxes = _table("kitti_tracks", "truth")
    yield "kitti_tracks", boxes[boxes["class_name"] != "DontCare"][["x1", "y1", "alpha", "z3d"]]
    yield "acs_employment_ma", _table("acs_employment_ma", "reference")[["AGEP", "predicted_probability"]]
    yield "adult_census", _table("adult_census", "adult")[["age", "education-num", "hours-per-week"]]


def _table(folder: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(data_folder(folder) / f"{name}.parquet")


@dataclass(slots=True)
class Ordered:
    """Reports and planted columns of one table, and what became of them.

    Attributes
    ----------
    in_reach
        Columns whose planted distance is at least the smallest that the report says it finds.
    """

    reports: int = 0
    alarmed: int = 0
    columns: int = 0
    found: int = 0
    shuffled: int = 0
    in_reach: int = 0
    found_in_reach: int = 0

    def add(self, one: pd.DataFrame, two: pd.DataFrame) -> None:
        """Hold a current window against its reference, with nothing planted and with each column moved."""
        columns = [str(name) for name in one if one[name].nunique() > 1]
        both = pd.concat([one, two]).sample(frac=1.0, random_state=0)
        self.reports += 1
        self.alarmed += drift_report(one, two, columns=columns).is_drift
        for name in columns:
            by = 2 * float(one[name].std())
            moved = {each.column: each for each in drift_report(one, _moved(two, name, by)).columns}[name]
            mixed = drift_report(both.iloc[: len(one)], _moved(both.iloc[len(one) :], name, by))
            self.columns += 1
            self.found += moved.status == "drift"
            self.shuffled += any(each.column == name for each in mixed.drifting)
            self.in_reach += moved.distance >= moved.smallest_found
            self.found_in_reach += moved.distance >= moved.smallest_found and moved.status == "drift"


def _moved(data: pd.DataFrame, name: str, by: float) -> pd.DataFrame:
    return data.assign(**{name: data[name] + by})


def ordered() -> None:
    """Windows of real rows in their order."""
    known = {}
    for name, table in real_streams():
        rows = table.reset_index(drop=True).astype(float)
        held = known[name] = Ordered()
        for times in (3, 4, 8, 16):
            for share in (1.0, 0.5):
                before = int(len(rows) * share * times / (times + 1))
                now = before // times
                for start in np.unique(np.linspace(0, len(rows) - before - now, 3).astype(int)):
                    held.add(
                        rows.iloc[start : start + before], rows.iloc[start + before : start + before + now]
                    )
    every = [sum(getattr(each, field) for each in known.values()) for field in Ordered.__slots__]
    total = Ordered(*every)
    data = f"{len(known)} real tables in order, references of 3, 4, 8, 16 windows; 2 sd added to one column"
    for figure, hits, n, unit in (
        ("alarms", total.alarmed, total.reports, "share of reports with nothing planted"),
        ("found", total.found, total.columns, "share of columns"),
        ("shuffled", total.shuffled, total.columns, "share of columns"),
        ("in_reach", total.found_in_reach, total.in_reach, "share of columns at the smallest distance told"),
    ):
        target = 1.0 if figure in ("shuffled", "in_reach") else None
        Figure.of_share(
            f"monitoring.drift_alarms.ordered.{figure}", hits, n, unit,
            base=0.8 if figure == "in_reach" else 1.0, target=target, data=data,
        ).show()  # fmt: skip
    lines = [
        "| rows in order | reports, of them alarmed | columns moved by 2 sd | found | shuffled |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {each.reports}, {each.alarmed} | {each.columns} | {each.found} | {each.shuffled} |"
            for name, each in known.items()
        ),
    ]
    show_table("ordered", "\n".join(lines))


if __name__ == "__main__":
    ordered()
    real()
    power()
    false_alarms()
