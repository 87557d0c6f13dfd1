"""Rolling comparison on real drift: all versions stay candidates, against promoting always and never.

In time order a model is refitted every K rows on the latest W. ``always`` puts each refit into production at
once, ``never`` leaves the first one there, and ``rolling`` asks the product's own decision function after
each quarter of ``ROWS`` labelled rows, on rows that neither the champion nor the version was trained on.

``ROWS``, the looks and ``P`` over looks were chosen on the same stream, not on a disjoint part of it.

``python -m benchmarks.improvement.rolling``
"""

import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.dataops.improvement.rolling import LOOKS, VersionLosses, compare_versions

ROWS, P = 2000, 0.01
STEP = ROWS // LOOKS
REFITS = (1500, 2000, 4000)
WINDOWS = (2000, 5000, 10_000)
KINDS = ("boosting", "logistic", "forest")
HARM = 0.01
DECISIONS = 23
HISTORIES = 500
OTHERS = 10
DAY = 48
RATE = 0.25
Losses = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stream:
    """Labelled rows in time order, with the numbers of their entities and hours."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    entity: NDArray[np.int64]
    hour: NDArray[np.int64]
    codes: tuple[int, ...] = ()
    """Columns that are codes of categories."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Errors of each version behind the end of its training, shape (versions, rows), and these ends."""

    errors: NDArray[np.bool_]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """Errors of the versions in production, and changes of the champion as (row, before, after)."""

    served: NDArray[np.bool_]
    changes: list[tuple[int, int, int]]


def elec2() -> Stream:
    """Half-hours of the electricity market: records without an entity, two an hour."""
    frame = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    names = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    hour = np.arange(len(frame)) // 2
    return Stream(frame[names].to_numpy(), frame["class"].to_numpy(), np.zeros(len(frame), np.int64), hour)


def employment() -> Stream:
    """Answers to the census, each person an entity: the last 10,000 rows of the first year, then the rest."""
    folder = data_folder("acs_employment_ma")
    reference = pd.read_parquet(folder / "reference.parquet")
    later = pd.read_parquet(folder / "analysis.parquet")
    later = later.merge(pd.read_parquet(folder / "analysis_target.parquet"), on="id")
    frame = pd.concat([reference[-10_000:], later], ignore_index=True)
    told = ("id", "year", "employed", "prediction", "predicted_probability")
    inputs = frame.drop(columns=list(told)).astype(float).fillna(-1.0)
    people = np.arange(1, len(frame) + 1)
    codes = tuple(at for at, name in enumerate(inputs) if name != "AGEP")
    hour = np.zeros(len(frame), np.int64)
    return Stream(inputs.to_numpy(), frame["employed"].to_numpy(), people, hour, codes)


def new_model(kind: str, codes: tuple[int, ...]) -> Any:
    """Classifier of a kind, untrained; codes are numbers for trees."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if kind == "boosting":
        return HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    if kind == "forest":
        return RandomForestClassifier(50, min_samples_leaf=5, n_jobs=1, random_state=0)
    apart = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), list(codes)), remainder=StandardScaler()
    )
    return make_pipeline(apart, LogisticRegression(max_iter=1000))


def refitted(
    stream: Stream, kind: str, window: int, every: int, known: dict[int, NDArray[np.bool_]]
) -> Versions:
    """Versions of a model, refitted every so many rows on a window of the latest; ``known`` by their ends."""
    rows = len(stream.y)
    ends = range(window, rows - every + 1, every)
    for end in ends:
        if end not in known:
            past = slice(end - window, end)
            model = new_model(kind, stream.codes).fit(stream.x[past], stream.y[past])
            known[end] = np.zeros(rows, dtype=np.bool_)
            known[end][end:] = model.predict(stream.x[end:]) != stream.y[end:]
    return Versions(np.stack([known[end] for end in ends]), tuple(ends))


def followed(
    versions: Versions, stream: Stream, *, looks: Collection[int] = (), newest: int | None = None
) -> Course:
    """Versions in production by the rolling comparison.

    Parameters
    ----------
    looks
        Rows at which versions are compared; without, each quarter of ``ROWS``.
    newest
        Most versions that stay candidates, the latest ones; None for all.
    """
    errors, ends = versions.errors, versions.ends
    champion, begin, rows = 0, ends[0], errors.shape[1]
    served, changes = np.empty(rows - begin, dtype=np.bool_), []
    last = begin
    for now in range(begin + STEP, rows, STEP):
        if looks and now not in looks:
            continue
        served[last - begin : now - begin] = errors[champion, last:now]
        last = now
        there = [at for at, end in enumerate(ends) if end < now]
        others = [at for at in there[-newest if newest else None :] if at != champion]
        found = compare_versions(
            [pair(versions, stream, champion, at, now) for at in others], rows=ROWS, p=P
        ).winner
        if found is not None:
            changes.append((now, champion, int(found)))
            champion = int(found)
    served[last - begin :] = errors[champion, last:]
    return Course(served, changes)


def pair(versions: Versions, stream: Stream, champion: int, other: int, now: int) -> VersionLosses:
    """Latest rows that neither was trained on."""
    unseen = slice(max(versions.ends[champion], versions.ends[other], now - ROWS), now)
    old, new = (versions.errors[at, unseen].astype(np.float64) for at in (champion, other))
    return VersionLosses(str(other), old, new, stream.entity[unseen], stream.hour[unseen])


def promoted_always(versions: Versions) -> Course:
    """Each refit in production at once."""
    errors, ends = versions.errors, versions.ends
    until = (*ends[1:], errors.shape[1])
    served = [errors[at, begin:end] for at, (begin, end) in enumerate(zip(ends, until, strict=True))]
    return Course(np.concatenate(served), [(ends[at], at - 1, at) for at in range(1, len(ends))])


def harmful(versions: Versions, course: Course, every: int) -> int:
    """Promotions behind which the next K rows are over a point worse than with the version before."""
    count = 0
    for row, before, after in course.changes:
        block = versions.errors[:, row : row + every].mean(axis=1)
        count += bool(block[after] - block[before] > HARM)
    return count


def settings(stream: Stream) -> Iterator[tuple[str, int, int, Versions]]:
    """Every kind of model, window and distance of refits."""
    for kind, window in product(KINDS, WINDOWS):
        known: dict[int, NDArray[np.bool_]] = {}
        for every in REFITS:
            yield kind, window, every, refitted(stream, kind, window, every, known)


def drift() -> Versions:
    """Figures on real drift; the versions of one setting, for the error."""
    stream = elec2()
    gains: dict[str, list[float]] = {name: [] for name in ("always", "never", "better", "late", "newest")}
    harm = {"rolling": 0, "always": 0}
    changes, cells, kept = 0, dict[tuple[str, int], list[str]](), None
    for kind, window, every, versions in settings(stream):
        courses = {
            "rolling": followed(versions, stream),
            "late": followed(versions, stream, looks=versions.ends),
            "newest": followed(versions, stream, newest=1),
            "always": promoted_always(versions),
            "never": Course(versions.errors[0, versions.ends[0] :], []),
        }
        right = {name: 100 * (1 - float(course.served.mean())) for name, course in courses.items()}
        for name, values in gains.items():
            peer = max(right["always"], right["never"]) if name == "better" else right[name]
            values.append(right["rolling"] - peer)
        for name in harm:
            harm[name] += harmful(versions, courses[name], every)
        changes += len(courses["rolling"].changes)
        told = " / ".join(f"{right[name]:.1f}" for name in ("never", "always", "rolling"))
        cells.setdefault((kind, window), []).append(told)
        if (kind, window, every) == ("boosting", 5000, 1500):
            kept = versions
        if sys.stderr.isatty():
            print(kind, window, every, right, file=sys.stderr)
    report(gains, harm, changes)
    lines = [f"| {kind} | {window:,} | {' | '.join(row)} |" for (kind, window), row in cells.items()]
    head = "| model | latest rows | " + " | ".join(f"refit every {every:,}" for every in REFITS) + " |"
    show_table("settings", "\n".join([head, "|---|---:|---:|---:|---:|", *lines]))
    assert kept is not None
    return kept


def report(gains: dict[str, list[float]], harm: dict[str, int], changes: int) -> None:
    """Print the figures on drift."""
    data = f"elec2, {len(gains['always'])} settings; {ROWS} rows, p < {P}, a look every {STEP}"
    mean = {name: float(np.mean(values)) for name, values in gains.items()}
    for name, least in (("always", 0.5), ("never", 1.5)):
        show(
            f"above_{name}",
            mean[name],
            f"points of accuracy above {name}, mean",
            least,
            mean[name] / least,
            data,
        )
    below = max(0.0, -min(gains["better"]))
    show(
        "below_better",
        below,
        "points below the better of the two, worst setting",
        1.0,
        1 / max(below, 0.01),
        data,
    )
    share = harm["rolling"] / harm["always"]
    show(
        "harmful", share, f"harmful promotions, {harm['rolling']} of {changes}, over those of always, "
        f"{harm['always']}", 0.5, 0.5 / max(share, 0.01), data,
    )  # fmt: skip
    show("looks", mean["late"], "points above looking at each refit alone", 0.0, None, data)
    show("earlier", mean["newest"], "points above comparing the newest version alone", 0.0, None, data)


def show(name: str, value: float, unit: str, against: float, ratio: float | None, data: str) -> None:
    """Print a figure; without a ratio it is only recorded."""
    target = None if ratio is None else 1.0
    Figure(f"improvement.rolling.{name}", value, unit, f"{against:g}", ratio or 0.0, target, data=data).show()


def flat() -> None:
    """Promotions where nothing drifts; and those of a model whose refits differ all the same."""
    stream = employment()
    window, every = 10_000, 8700
    data = (
        f"acs_employment_ma, refits every {every:,} rows on {window:,}; {ROWS} rows, p < {P}, "
        f"a look every {STEP}"
    )

    def changes(kind: str, codes: tuple[int, ...]) -> tuple[int, int]:
        own = replace(stream, codes=codes)
        versions = refitted(own, kind, window, every, {})
        found = followed(versions, own).changes
        if sys.stderr.isatty():
            print(kind, found, file=sys.stderr)
        return len(found), len(versions.ends) - 1

    each = [changes(kind, stream.codes) for kind in KINDS]
    worst, proposals = max(each)
    unit = f"promotions beside {proposals} proposals"
    show("flat", worst, f"{unit}, most of three kinds", 2, 2 / max(worst, 1), data)
    odd, _ = changes("logistic", ())
    show("flat_codes", odd, f"{unit}, logistic regression on codes as numbers", 2, None, data)


def scatter(versions: Versions) -> float:
    """Variance of a day's mean difference of two versions by that of independent rows, median of pairs."""
    found = []
    for at in range(len(versions.ends) - 1):
        unseen = versions.errors[at : at + 2, versions.ends[at + 1] :].astype(np.float64)
        more = unseen[1] - unseen[0]
        days = more[: len(more) // DAY * DAY].reshape(-1, DAY).mean(axis=1)
        found.append(days.var(ddof=1) * DAY / more.var())
    return float(np.median(found))


def errors(between_days: float) -> None:
    """Promotions of versions that are no better: by one decision, and by 23 one behind the other."""
    rng = np.random.default_rng(23)
    rows = ROWS + (DECISIONS - 1) * STEP
    for name in ("independent", "days"):
        once = ever = 0
        for _ in range(HISTORIES):
            history = equal(rng, rows, between_days if name == "days" else 1.0)
            found = [wins(history, at * STEP) for at in range(DECISIONS)]
            once += found[0]
            ever += any(found)
        what = "half-hours that err independently"
        if name == "days":
            what = f"half-hours whose days scatter {between_days:.2g} times as much, as in elec2"
        data = f"simulated, {what}; {OTHERS} versions, {ROWS} rows, p < {P}, seed 23"
        for key, count, unit in (
            ("one", once, "one decision"),
            ("all", ever, f"any of {DECISIONS} decisions, {STEP} rows apart"),
        ):
            unit = f"share of histories in which {unit} promotes an equal version"
            Figure.of_share(
                f"improvement.rolling.error.{name}.{key}", count, HISTORIES, unit, data=data
            ).show()


def equal(rng: np.random.Generator, rows: int, between_days: float) -> list[VersionLosses]:
    """Versions that err alike in the long run, in a quarter of the rows, half of them the same for all.

    Each has a rate of its own each day, so that a day's mean difference scatters so many times as much as
    that of independent rows.
    """
    one_row = 0.5 * 2 * RATE * (1 - RATE)  # variance of the difference of two versions on a row
    spread = np.sqrt((between_days - 1) * one_row / DAY / 2)  # of one version's rate between days
    days = rows // DAY + 1
    rate = RATE + spread * rng.standard_normal((OTHERS + 1, days)).repeat(DAY, axis=1)[:, :rows]
    shared = rng.random(rows) < 0.5
    chance = np.where(shared, rng.random(rows), rng.random((OTHERS + 1, rows)))
    champion, *own = (chance < rate).astype(np.float64)
    nobody, hour = np.zeros(rows, dtype=np.int64), np.arange(rows) // 2
    return [VersionLosses(str(at), champion, one, nobody, hour) for at, one in enumerate(own)]


def wins(history: list[VersionLosses], begin: int) -> bool:
    """True where any version is promoted by the rows from ``begin`` on."""
    rows = slice(begin, begin + ROWS)
    pairs = [
        VersionLosses(one.version, one.champion[rows], one.own[rows], one.entity[rows], one.hour[rows])
        for one in history
    ]
    return compare_versions(pairs, rows=ROWS, p=P).winner is not None


def main() -> None:
    """Print all figures; say what is missing where the data are not there."""
    warnings.simplefilter("ignore")
    try:
        versions = drift()
        flat()
    except FileNotFoundError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return
    between_days = scatter(versions)
    data = "elec2, boosting refitted every 1,500 rows on 5,000"
    show(
        "scatter", between_days, "variance of daily differences by that of independent rows", 1.0, None, data
    )
    errors(between_days)


if __name__ == "__main__":
    main()
