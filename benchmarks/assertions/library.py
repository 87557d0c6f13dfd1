"""What the assertions of the library find on real data, and what they cost.

``python -m benchmarks.assertions.library [part of a name]``. Where a model can err, a precision is the share
of flagged records on which it does, over the share in all (``ratio`` is the lift). Where records are broken,
faults are put into a few per cent of real ones, and the figures are the share of flagged records that carry
one, the share of faults found, and how often records as they came are flagged. Intervals are Wilson's, as if
records were independent of each other. Cost is of the assertion's function alone, per record, in CPU time.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.assertions import _library_traffic as sources
from benchmarks.assertions._library_traffic import Traffic
from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch
from outrider.assertions import library as lib
from outrider.assertions.checker import severities_of
from outrider.assertions.learn import learn
from outrider.assertions.library.out_of_distribution import fit_energy
from outrider.behavioral_tests.statistics import wilson_interval

BLOCKS = (64, 10_000)
STEM = "assertions.library"
Case = tuple[str, Assertion, Batch]


def main() -> None:
    """Print every figure; a word given on the command line keeps assertions whose name contains it."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    costs: dict[str, tuple[Assertion, Batch]] = {}
    for figures, case in [*_models(), *_faults()]:
        if wanted in case[0]:
            costs.setdefault(case[0], case[1:])
            for figure in figures:
                figure.show()
    for figure in chain.from_iterable(_cost(name, *what) for name, what in sorted(costs.items())):
        figure.show()


# ---- where a model is wrong -----------------------------------------------------------------------------


def _models() -> Iterator[tuple[list[Figure], Case]]:
    intents, tweets = sources.intents(), sources.tweets()
    for traffic in (intents, tweets, sources.reviews(), sources.images()):
        yield from (_wrong(traffic, name, judge) for name, judge in _confidence(traffic))
    yield from (_wrong(tweets, name, judge) for name, judge in _disagreement(tweets))
    digits = sources.digits()
    yield _sure(intents, "outputs.embedding", 0.6)
    yield _sure(sources.digits(noise=0.3), "inputs.image", 0.8)
    for traffic in (intents, digits):
        for name, judge in _distribution(traffic):
            yield _strange(traffic, name, judge)
            yield _wrong(traffic, name, judge)
    yield from _market()


def _confidence(traffic: Traffic) -> list[tuple[str, Assertion]]:
    table = lib.reliability(traffic.reference.tensor("outputs.probs"), traffic.truth)
    return [
        ("low_score", lib.low_score()),
        ("low_margin", lib.low_margin()),
        ("high_entropy", lib.high_entropy()),
        ("overconfident", lib.overconfident(table)),
    ]


def _disagreement(tweets: Traffic) -> list[tuple[str, Assertion]]:
    floor = lib.noise_floor([tweets.reference], "int8")
    rows = tweets.reference.rows
    Figure(
        f"{STEM}.score_differs: floor of int8",
        floor,
        "probability",
        "none",
        1.0,
        n=rows,
        data="earlier airline_tweets",
    ).show()
    return [
        ("label_differs", lib.label_differs("letters")),
        ("ensemble_disagrees", lib.ensemble_disagrees(["letters", "bayes"], share=1.0)),
        ("score_differs (healthy 8-bit twin)", lib.score_differs("int8", above=floor)),
        ("score_differs (broken 2-bit twin)", lib.score_differs("int2", above=floor)),
    ]


def _sure(traffic: Traffic, column: str, confident: float) -> tuple[list[Figure], Case]:
    """Confident answers that neighbours contradict, against all answers that are as confident."""
    assert traffic.known is not None
    assert traffic.known_labels is not None
    judge = lib.contradicts_neighbours(
        traffic.known, traffic.known_labels, classes=traffic.classes, column=column, confident=confident
    )
    sure = traffic.batch.column("outputs.score") >= confident
    fired = severities_of(judge, traffic.batch) > 0
    name, data = (
        f"contradicts_neighbours on {traffic.name}",
        f"{traffic.name}, answers at {confident:g} and above",
    )
    figure = _precision(name, fired[sure], traffic.wrong[sure], "wrong", data)
    return [figure], ("contradicts_neighbours", judge, traffic.batch)


def _distribution(traffic: Traffic) -> list[tuple[str, Assertion]]:
    reference = traffic.reference.tensor("outputs.embedding")
    limit = fit_energy(traffic.reference.tensor("outputs.logits"), quantile=0.95)
    return [
        ("mahalanobis", lib.mahalanobis(lib.fit_mahalanobis(reference, traffic.truth, quantile=0.95))),
        ("far_from_neighbours", lib.far_from_neighbours(lib.fit_neighbours(reference, quantile=0.95))),
        ("high_energy", lib.high_energy(limit)),
    ]


def _market() -> Iterator[tuple[list[Figure], Case]]:
    batch, wrong = sources.market()
    price = "inputs.nswprice"
    for name, judge in (
        ("value_jump", lib.value_jump(price, above=0.05)),
        ("value_spike", lib.value_spike(price, least=0.01)),
    ):
        fired = severities_of(judge, batch) > 0
        yield [_precision(f"{name} on elec2", fired, wrong, "wrong", "elec2, price")], (name, judge, batch)
    constant = lib.stuck_value("inputs.vicprice", rows=48)
    fired = severities_of(constant, batch) > 0
    value = batch.column("inputs.vicprice")
    repeated = value == np.median(value[fired])
    data = "elec2, price of Victoria alike for a day"
    found = _precision("stuck_value on elec2", fired, repeated, "at the one repeated value", data)
    yield [found], ("stuck_value", constant, batch)


def _wrong(traffic: Traffic, name: str, judge: Assertion) -> tuple[list[Figure], Case]:
    fired = severities_of(judge, traffic.batch) > 0
    figure = _precision(f"{name} on {traffic.name}", fired, traffic.wrong, "wrong", traffic.name)
    return [figure], (name.partition(" ")[0], judge, traffic.batch)


def _strange(traffic: Traffic, name: str, judge: Assertion) -> tuple[list[Figure], Case]:
    assert traffic.strange is not None
    fired = severities_of(judge, traffic.batch) > 0
    known = " (a network of 0 to 7; 8 and 9 are out of scope)" if traffic.name == "digits" else ""
    data = f"{traffic.name}{known}, threshold at 95 % of the reference"
    figures = [
        _precision(f"{name} on {traffic.name}", fired, traffic.strange, "out of scope", data),
        _recall(f"{name} on {traffic.name}", fired, traffic.strange, "out of scope", data),
    ]
    return figures, (name, judge, traffic.batch)


# ---- where records are broken ---------------------------------------------------------------------------


def _faults() -> Iterator[tuple[list[Figure], Case]]:
    yield from _census()
    yield from _selections()
    yield from _slates()
    yield from _series()
    yield from _beats()


def _census() -> Iterator[tuple[list[Figure], Case]]:
    live, _, earlier = sources.census()
    rng = np.random.default_rng(0)
    hit = rng.random(live.rows) < 0.02

    def broken(column: str, values: Sequence[Any] | NDArray[Any]) -> Batch:
        return live.with_columns(
            {column: [v if h else o for o, v, h in zip(_listed(live, column), values, hit, strict=True)]}
        )

    def case(
        name: str, judge: Assertion, faulty: Batch, fault: str, clean: Batch = live
    ) -> tuple[list[Figure], Case]:
        return _found(
            name, "adult_census", f"2 % of {live.rows:,} records: {fault}", judge, clean, faulty, hit
        )

    age, hours = live.column("inputs.age"), live.column("inputs.hours-per-week")
    country, sex = "inputs.native-country", "inputs.sex"
    yield case(
        "bounds",
        lib.bounds("inputs.age", low=16, high=100),
        broken("inputs.age", rng.choice([-1, 999], live.rows).tolist()),
        "ages of -1 and 999",
    )
    minutes = lib.unit_mixup("inputs.hours-per-week", low=1, high=99, conversions={"minutes": (1 / 60, 0)})
    yield case(
        "unit_mixup",
        minutes,
        broken("inputs.hours-per-week", (hours * 60).tolist()),
        "hours a week in minutes",
    )
    inches = broken("inputs.age", (age * 2.54).tolist())
    yield case("multiple_of", lib.multiple_of("inputs.age", 1), inches, "ages times 2.54")
    yield case(
        "ordered",
        lib.ordered("inputs.education-num", "inputs.age"),
        live.with_columns(
            {
                "inputs.age": np.where(hit, live.column("inputs.education-num"), age),
                "inputs.education-num": np.where(hit, age, live.column("inputs.education-num")),
            }
        ),
        "years of education and age swapped",
    )
    allowed = sorted(set(_listed(earlier, country)))
    misspelt = [value.lower() for value in _listed(live, country)]
    yield case(
        "categories",
        lib.categories(country, allowed),
        broken(country, [f"{value} " for value in _listed(live, country)]),
        f"a blank behind the country, countries of {earlier.rows:,} earlier records allowed",
    )
    names = lib.text_pattern(country, r"\?|[A-Z][A-Za-z&()-]+")
    yield case(
        "text_pattern", names, broken(country, misspelt), "countries in lower case (one is a question mark)"
    )
    yield case(
        "required", lib.required(["inputs.age", country]), broken(country, [None] * live.rows), "country lost"
    )
    endless = broken("outputs.score", [np.inf] * live.rows)
    yield case("finite", lib.finite(["outputs.score"]), endless, "scores overflowed")
    yield case(
        "unknown_columns",
        lib.unknown_columns(live.names),
        live.with_columns({"inputs.Age": [int(a) if h else None for a, h in zip(age, hit, strict=True)]}),
        "a field sent under another spelling too",
    )
    flipped = broken(sex, ["Male" if value == "Female" else "Female" for value in _listed(live, sex)])
    relation = "inputs.relationship"
    yield case(
        "implies",
        lib.implies(relation, ["Husband"], sex, ["Male"]),
        flipped,
        "sex flipped, rule on husbands only",
    )
    both = "sex flipped, rule on husbands and wives"
    yield case(
        "determines", lib.determines(relation, sex, {"Husband": "Male", "Wife": "Female"}), flipped, both
    )
    pairs = [("Husband", "Female"), ("Wife", "Male")]
    yield case("never_together", lib.never_together(relation, sex, pairs), flipped, both)
    sums = np.asarray(
        live.column("inputs.capital-gain") - live.column("inputs.capital-loss"), dtype=np.float64
    )
    net = live.with_columns({"inputs.loss": -live.column("inputs.capital-loss"), "inputs.net": sums})
    off = net.with_columns({"inputs.net": np.where(hit, sums + 100, sums)})
    judge = lib.adds_up(["inputs.capital-gain", "inputs.loss"], "inputs.net")
    yield case("adds_up", judge, off, "capital gain less loss off by 100, allowed within 1 %", net)
    table = {name: _listed(live, name) for name in ("id", "inputs.hours-per-week", "inputs.workclass")}
    later = broken("inputs.hours-per-week", (hours + 5).tolist())
    yield case("served_differs", lib.served_differs(table), later, "hours a week served 5 too high")


def _selections() -> Iterator[tuple[list[Figure], Case]]:
    """A model that selects 27 % of men and 8 % of women; and the same answers, given to either sex by lot."""
    judge = lib.selection_gap("inputs.sex", ["Female", "Male"], positive=">50K")
    live = sources.incomes()
    lot = np.random.default_rng(0).permutation(live.column("inputs.sex"))
    fired = severities_of(judge, live) > 0
    idle = float((severities_of(judge, live.with_columns({"inputs.sex": lot})) > 0).mean())
    refused = (live.column("inputs.sex") == "Female") & (live.column("outputs.label") != ">50K")
    first = int(np.flatnonzero(fired)[0])
    selected, sex = live.column("outputs.label") == ">50K", live.column("inputs.sex")
    men, women = float(selected[sex == "Male"].mean()), float(selected[sex == "Female"].mean())
    name = "selection_gap on adult_census"
    data = f"adult_census, boosting that selects {men:.2f} of men and {women:.2f} of women"
    low, high = wilson_interval(round(idle * live.rows), live.rows)
    figures = [
        _recall(name, fired, refused, "women not selected", data),
        Figure(
            f"{STEM}.{name}: until the first flag", float(first), "records", "none", 1.0,
            n=live.rows, data=data,
        ),
        Figure(
            f"{STEM}.{name}: sexes by lot", idle * 1000, "flags per 1,000 records", "none", 1.0,
            n=live.rows, low=1000 * low, high=1000 * high, data=data,
        ),
        _false_alarms(judge),
    ]  # fmt: skip
    yield figures, ("selection_gap", judge, live)


def _false_alarms(judge: Assertion) -> Figure:
    """Episodes per 1,000 windows where the gap is exactly what is allowed: the worst case."""
    rng = np.random.default_rng(1)
    rows, episodes = 500_000, 0
    sex = rng.choice(["Female", "Male"], rows, p=[1 / 3, 2 / 3])
    selected = rng.random(rows) < np.where(sex == "Male", 0.4, 0.3)
    columns = {
        "version": ["1"] * rows,
        "inputs.sex": sex.tolist(),
        "outputs.label": np.where(selected, ">50K", "<=50K").tolist(),
    }
    at = np.flatnonzero(severities_of(judge, Batch.from_columns(columns, model="m")))
    episodes = int((np.diff(at) > 1000).sum()) + bool(len(at))
    windows = rows // 1000
    low, high = wilson_interval(episodes, windows)
    return Figure(
        f"{STEM}.selection_gap at the limit", 1000 * episodes / windows, "episodes per 1,000 windows",
        "none", 1.0, n=windows, low=1000 * low, high=1000 * high,
        data="simulated, seed 1: windows of 1,000 records, the true gap exactly what is allowed",
    )  # fmt: skip


def _slates() -> Iterator[tuple[list[Figure], Case]]:
    """Five most probable intents of every request, as slates of 5."""
    traffic = sources.intents()
    probs = traffic.batch.tensor("outputs.probs")
    best = np.argsort(-probs, axis=1, kind="stable")[:, :5]
    items = np.array(traffic.classes, dtype=object)[best]
    scores = np.take_along_axis(probs, best, axis=1)
    hit = np.random.default_rng(0).random(len(items)) < 0.02
    live = Batch.from_columns({"outputs.items": items.tolist(), "outputs.scores": scores.tolist()}, model="m")

    def slated(change: Any, column: str = "outputs.items") -> Batch:
        kept = items if column == "outputs.items" else scores
        rows = [change(row.tolist()) if h else row.tolist() for row, h in zip(kept, hit, strict=True)]
        return live.with_columns({column: rows})

    blocked = slated(lambda row: [*row[:4], "recalled"])
    for name, judge, faulty, fault in (
        ("empty_slate", lib.empty_slate(), slated(lambda _: []), "emptied"),
        (
            "duplicate_items",
            lib.duplicate_items(),
            slated(lambda row: [*row[:4], row[0]]),
            "first item repeated",
        ),
        ("blocked_items", lib.blocked_items(["recalled"]), blocked, "a recalled item put in"),
        (
            "order_disagrees",
            lib.order_disagrees(),
            slated(lambda row: row[::-1], "outputs.scores"),
            "scores reversed",
        ),
    ):
        data = f"the five likeliest intents as a slate, 2 % of {live.rows:,} slates: {fault}"
        yield _found(name, "clinc150", data, judge, live, faulty, hit)


def _series() -> Iterator[tuple[list[Figure], Case]]:
    live, _ = sources.market()
    rng = np.random.default_rng(0)
    demand = live.column("inputs.nswdemand")
    hit = np.zeros(live.rows, dtype=np.bool_)
    hit[rng.choice(np.arange(100, live.rows - 100), 350, replace=False)] = True

    put_in = f"{int(hit.sum())} of {live.rows:,} half-hours"

    def case(
        name: str, judge: Assertion, faulty: Batch, bad: NDArray[np.bool_], fault: str
    ) -> tuple[list[Figure], Case]:
        return _found(name, "elec2", fault, judge, live, faulty, bad)

    glitch = live.with_columns({"inputs.nswdemand": np.where(hit, demand + 0.3, demand)})
    jump, off = lib.value_jump("inputs.nswdemand", above=0.2), f"{put_in}: demand off by 0.3 for one record"
    yield case("value_jump", jump, glitch, hit | np.roll(hit, 1), f"{off}, both edges count")
    yield case("value_spike", lib.value_spike("inputs.nswdemand", least=0.1), glitch, hit, off)
    frozen, long = demand.copy(), np.zeros(live.rows, dtype=np.bool_)
    for start in np.flatnonzero(hit)[::5]:
        frozen[start : start + 12] = frozen[start]
        long[start + 5 : start + 12] = True
    stuck = lib.stuck_value("inputs.nswdemand", rows=6)
    still = live.with_columns({"inputs.nswdemand": frozen})
    yield case("stuck_value", stuck, still, long, "demand frozen for six hours, judged after the third")
    step = live.column("inputs.step")
    reset = live.with_columns({"inputs.step": np.where(hit, 0, step)})
    yield case("monotone", lib.monotone("inputs.step"), reset, hit, f"{put_in}: a counter reset to 0")
    first, second = "inputs.nswprice", "inputs.vicprice"
    reference, later, gone = live.slice(8_000, 20_000), live.slice(28_000), hit[28_000:]
    [learned] = [one for one in learn(reference) if one.name == "nswprice_swapped_vicprice"]
    price, other = later.column(first), later.column(second)
    exchanged = {first: np.where(gone, other, price), second: np.where(gone, price, other)}
    put_in = f"the prices of both states exchanged in {int(gone.sum())} of {later.rows:,}"
    fault = f"learned from the 20,000 half-hours before; {put_in}"
    swapped = later.with_columns(exchanged)
    yield _found("swapped", "elec2", fault, learned.assertion(), later, swapped, gone)
    kept = ~hit
    after = np.roll(hit, 1)[kept]
    yield _found(
        "time_gap",
        "elec2",
        f"{int(hit.sum())} of {live.rows:,} half-hours lost",
        lib.time_gap(1801.0),
        live,
        live.take(kept),
        after,
    )


def _beats() -> Iterator[tuple[list[Figure], Case]]:
    others, early, late = sources.beats()
    rng = np.random.default_rng(0)
    hit = rng.random(late.rows) < 0.01
    symbols = sorted(set(_listed(early, "outputs.label")))
    swapped = [
        str(rng.choice([one for one in symbols if one != now])) if h else now
        for now, h in zip(_listed(late, "outputs.label"), hit, strict=True)
    ]
    faulty = late.with_columns({"outputs.label": swapped})
    near = hit | np.roll(hit, 1)  # the change back is as impossible
    for who, reference in (("their first 15 minutes", early), ("other patients", others)):
        judge = lib.unseen_transition("outputs.label", _transitions(reference))
        fault = f"1 % of beat labels swapped, allowed changes learned from {who}"
        yield _found("unseen_transition", f"ecg_mitdb ({who})", fault, judge, late, faulty, near)


def _transitions(batch: Batch) -> list[tuple[str, str]]:
    label, entity = _listed(batch, "outputs.label"), batch.column("entity")
    same = entity[1:] == entity[:-1]
    return sorted({(a, b) for a, b, s in zip(label, label[1:], same, strict=False) if s and a != b})


def _listed(batch: Batch, column: str) -> list[Any]:
    found: list[Any] = batch.to_arrow().column(column).to_pylist()
    return found


def _found(
    name: str, source: str, fault: str, judge: Assertion, clean: Batch, faulty: Batch, hit: NDArray[np.bool_]
) -> tuple[list[Figure], Case]:
    fired, idle = severities_of(judge, faulty) > 0, severities_of(judge, clean) > 0
    low, high = wilson_interval(int(idle.sum()), len(idle))
    title, data = f"{name} on {source}", f"{source}, {fault}"
    figures = [
        _precision(title, fired, hit, "faulty", data),
        _recall(title, fired, hit, "faulty", data),
        Figure(
            f"{STEM}.{title}: as it came", float(idle.mean()) * 1000, "flags per 1,000 records", "none", 1.0,
            n=len(idle), low=low * 1000, high=high * 1000, data=source,
        ),
    ]  # fmt: skip
    return figures, (name, judge, clean)


# ---- figures --------------------------------------------------------------------------------------------


def _precision(name: str, fired: NDArray[np.bool_], bad: NDArray[np.bool_], what: str, data: str) -> Figure:
    stem, data, base = f"{STEM}.{name}: {what}", f"{data}; {len(bad):,} records", float(bad.mean())
    if not fired.any():
        return Figure.of_share(f"{stem}, nothing flagged", 0, len(bad), "flagged", data=data)
    hits = int(bad[fired].sum())
    return Figure.of_share(stem, hits, int(fired.sum()), f"{what} of flagged", base=base, data=data)


def _recall(name: str, fired: NDArray[np.bool_], bad: NDArray[np.bool_], what: str, data: str) -> Figure:
    hits, rate = int(fired[bad].sum()), float(fired.mean())
    return Figure.of_share(
        f"{STEM}.{name}: found", hits, int(bad.sum()), f"{what} found", base=rate, data=data
    )


def _cost(name: str, judge: Assertion, batch: Batch) -> list[Figure]:
    small, large = (_us_per_record(judge, batch, rows) for rows in BLOCKS)
    data = "CPU time of one core, median over blocks"
    return [
        Figure(f"{STEM}.{name}: cost", small, "µs per record, blocks of 64", "none", 1.0, data=data),
        Figure(
            f"{STEM}.{name}: cost in large blocks", large, "µs per record, blocks of 10,000", "blocks of 64",
            large / small, data=data,
        ),
    ]  # fmt: skip


def _us_per_record(judge: Assertion, batch: Batch, rows: int) -> float:
    """Median over blocks; each is new, so that nothing is cached."""
    copies = -(-rows // batch.rows)
    if copies > 1:
        batch = Batch.concat([Batch(batch.to_arrow(), model=batch.model)] * copies).with_answers(
            {
                slot: Batch.concat([answer] * copies)
                for slot in batch.answer_slots
                if (answer := batch.answers(slot)) is not None
            }
        )
    taken: list[float] = []
    for start in range(0, min(batch.rows - rows, rows * 60) + 1, rows):
        block = batch.slice(start, rows)
        begin = time.thread_time()
        judge.severities(block)
        taken.append(time.thread_time() - begin)
    if len(taken) < 5:
        taken += [_again(judge, batch.slice(0, rows)) for _ in range(5)]
    return statistics.median(taken) / rows * 1e6


def _again(judge: Assertion, block: Batch) -> float:
    begin = time.thread_time()
    judge.severities(block)
    return time.thread_time() - begin


if __name__ == "__main__":
    main()
