"""The book of stated values is bounded, keeps what is heavy, and depends on records and minutes alone."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule, rate_alarms
from outrider.dataops.ledger.flag_marks import LEVEL_BITS, judged_marks, store_marks
from outrider.dataops.ledger.minutes import DAY_US, HOUR_US, MINUTE_US
from outrider.dataops.ledger.stated_values import (
    COUNTERS,
    KEPT_US,
    LONGEST,
    OTHERS,
    PLACES,
    StatedValues,
    ValueBook,
    forget_unmet,
)
from outrider.dataops.state.database import write
from tests.soak import at_most, examples, rounds

START_US = 20_000 * DAY_US
AFTER = [0, MINUTE_US, 7 * HOUR_US, DAY_US, KEPT_US]
BLOCKS = st.lists(
    st.tuples(
        st.sampled_from(AFTER),
        st.lists(st.sampled_from([None, "", *"abcdefgh7", OTHERS]), min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=14,
)


class SlowBook:
    """Places as one reads them, record by record."""

    def __init__(self, places: int, counters: int, least: int) -> None:
        self.places, self.counters, self.least = places, counters, least
        self.counts: dict[str, int] = {}
        self.met: dict[str, int] = {}
        self.named: set[str] = set()
        self.error = self.minute = 0

    def weight(self) -> int:
        return round(1000 * 2 ** (self.minute % DAY_US // HOUR_US / 24))

    def share(self, value: str) -> int:
        return max(0, self.counts.get(value, 0) - self.error)

    def prune(self) -> None:
        self.counts = {value: count for value, count in self.counts.items() if count > self.error}

    def begin(self, minute: int) -> None:
        for _ in range(minute // DAY_US - self.minute // DAY_US if self.minute else 0):
            self.counts = {value: count // 2 for value, count in self.counts.items()}
            self.error //= 2
        self.prune()
        self.minute = minute
        old = {value for value, at in self.met.items() if at <= minute - KEPT_US}
        self.named -= old
        self.counts = {value: count for value, count in self.counts.items() if value not in old}
        waiting = [one for one in self.counts if one != "7" and one not in self.named]
        waiting = [one for one in waiting if self.share(one) >= self.least * self.weight()]
        holders = sorted(self.named, key=lambda one: (self.share(one), self.met[one], one))
        for value in sorted(waiting, key=lambda one: (-self.share(one), one)):
            if len(self.named) >= self.places:
                if not holders or 2 * self.share(value) <= 3 * (self.share(holders[0]) + self.error):
                    break
                self.named.remove(holders.pop(0))
            self.named.add(value)

    def meet(self, value: str | None, minute: int) -> bool:
        if minute > self.minute:
            self.begin(minute)
        if not value or value == "7":
            return True
        if value == OTHERS:
            return False
        if len(self.named) < self.places:
            self.named.add(value)
        self.counts[value] = self.counts.get(value, self.error) + self.weight()
        self.met[value] = self.minute
        if len(self.counts) == 2 * self.counters:
            self.error = sorted(self.counts.values(), reverse=True)[self.counters]
            self.prune()
        return value in self.named


@settings(max_examples=examples(300))
@given(blocks=BLOCKS, cut=st.integers(1, 14))
def test_places_are_those_of_a_slow_loop_however_units_are_cut(
    blocks: list[tuple[int, list[str | None]]], cut: int
) -> None:
    stated, slow = StatedValues("m"), SlowBook(places=2, counters=2, least=2)
    stated.books["slice"] = book = ValueBook(places=2, counters=2, least=2)
    book.declare(["7"])
    minutes = START_US + np.cumsum([after for after, _ in blocks])
    records = [(one, int(at)) for (_, block), at in zip(blocks, minutes, strict=True) for one in block]
    told: list[bool] = []
    for start in range(0, len(records), cut):
        part = records[start : start + cut]
        told += stated.meet("slice", [one for one, _ in part], np.array([at for _, at in part])).tolist()
    assert told == [slow.meet(*record) for record in records]
    assert book.error == slow.error


@settings(max_examples=examples(20), deadline=None)
@given(blocks=BLOCKS, every=st.integers(1, 5))
def test_a_book_that_is_stored_and_read_again_goes_on_as_before(
    shared_engine: Engine, blocks: list[tuple[int, list[str | None]]], every: int
) -> None:
    kept, model = StatedValues("kept"), "again"
    with write(shared_engine) as connection:
        for table in ("stated_value", "stated_dimension"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    again, now = StatedValues(model), START_US
    for number, (after, block) in enumerate(blocks):
        now += after
        minutes = np.full(len(block), now)
        for stated in (kept, again):
            stated.books.setdefault("slice", ValueBook(places=2, counters=2, least=2))
        assert kept.meet("slice", block, minutes).tolist() == again.meet("slice", block, minutes).tolist()
        with write(shared_engine) as connection:
            again.store(connection)
            forget_unmet(connection, model, now_us=now)
        if number % every == 0:
            with shared_engine.connect() as connection:
                again = StatedValues.stored(connection, model)
            for book in again.books.values():
                book.places, book.counters, book.least = 2, 2, 2


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    from tests.databases import migrated

    engine = migrated(tmp_path_factory.mktemp("books") / "state.db")
    yield engine
    engine.dispose()


FLOOD = rounds(1_000_000, part=20)
HONEST = [f"shop {at}" for at in range(20)]


def honest(rng: np.random.Generator, rows: int) -> list[str]:
    """Twenty values of 1 % to 9 % of the records, with those between them that come once."""
    shares = np.concatenate([np.full(12, 0.01), np.full(8, 0.09)])
    return [HONEST[at] for at in rng.choice(20, rows, p=shares / shares.sum())]


@pytest.mark.parametrize("order", ["flood first", "flood last", "mixed", "restarted"])
def test_values_of_one_percent_have_places_whatever_floods_come_when(order: str, engine: Engine) -> None:
    rng, stated, now = np.random.default_rng(0), StatedValues("m"), START_US
    usual = honest(rng, FLOOD // 2)
    flood = [f"flood {at}" for at in range(FLOOD)]
    mixed = [*usual, *flood]
    rng.shuffle(mixed)
    streams = {"flood last": [usual, flood], "mixed": [mixed]}
    stream = streams.get(order, [flood, usual])
    for records in stream:
        for start in range(0, len(records), 1000):
            part = records[start : start + 1000]
            stated.meet("slice", part, np.full(len(part), now))
            now += 0 if start % 5000 else MINUTE_US
        if order == "restarted":
            with write(engine) as connection:
                stated.store(connection)
            with engine.connect() as connection:
                stated = StatedValues.stored(connection, "m")
    stated.meet("slice", ["the next minute"], np.array([now + MINUTE_US]))
    book = stated.book("slice")
    share = Counter(one for records in stream for one in records)
    heavy = {one for one in HONEST if share[one] >= 0.01 * 1.5 * FLOOD}
    assert len(heavy) >= 8
    assert heavy <= {one for one in HONEST if one in book}
    assert len(book) <= 2 * COUNTERS + PLACES


def test_a_value_of_exactly_one_percent_gets_a_place_among_as_many_rivals_as_there_are_places() -> None:
    book, rivals = ValueBook(), [f"rival {at}" for at in range(PLACES)]
    for minute in range(10):
        part = [*rivals * 10, *[f"once {minute} {at}" for at in range(10)], *["one percent"] * 20]
        book.meet(part[: 10 * PLACES + 10] if minute < 5 else part, START_US + minute * MINUTE_US)
    for minute in range(10, 60):  # 0.495 % each, and 1 %
        book.meet([*rivals * 10, *["one percent"] * 20], START_US + minute * MINUTE_US)
    assert "one percent" in book
    assert book.count("one percent") < 0.01 * book.total


def test_a_flood_takes_no_place_of_a_value_that_is_met_at_night_alone() -> None:
    rng, book = np.random.default_rng(1), ValueBook()
    for hour in range(24 * 6):
        now = START_US + hour * HOUR_US
        night = ["night"] * (24 if hour % 24 == 3 else 0)  # 1 % of the records of a day
        day = [f"once {hour} {at}" for at in range(50)] + [f"day {at}" for at in rng.integers(0, 30, 50)]
        found = book.meet([*day, *night], now)
        if hour > 30 and night:
            assert found[-len(night) :].all()
    assert "night" in book


def test_one_new_value_a_minute_for_days_leaves_the_book_small_and_honest_values_in_it() -> None:
    book = ValueBook()
    for minute in range(5 * 1440):
        now = START_US + minute * MINUTE_US
        found = book.meet([f"new {minute}", *HONEST], now)
        assert found[1:].all()
    assert len(book) <= 2 * COUNTERS + PLACES


def test_the_heaviest_of_a_long_tail_have_the_places() -> None:
    rng, book = np.random.default_rng(2), ValueBook()
    users = [f"user {at}" for at in range(20_000)]
    share = 1.0 / np.arange(1, 20_001)
    for minute in range(60):
        drawn = rng.choice(20_000, 2_000, p=share / share.sum())
        book.meet([users[at] for at in drawn], START_US + minute * MINUTE_US)
    book.meet(["end"], START_US + HOUR_US)
    assert all(users[at] in book for at in range(9))  # of 1 % and more
    assert sum(users[at] in book for at in range(PLACES)) >= 0.7 * PLACES


def test_values_alike_do_not_take_turns() -> None:
    rng, book, entered = np.random.default_rng(3), ValueBook(), 0
    values, before = [f"value {at}" for at in range(3 * PLACES)], set[str]()
    for minute in range(600):
        drawn = rng.integers(0, len(values), 500)
        book.meet([values[at] for at in drawn], START_US + minute * MINUTE_US)
        now = {value for value in values if value in book}
        entered += len(now - before)
        before = now
    assert entered <= 1.5 * PLACES


def test_a_long_text_and_the_name_of_the_rest_have_no_place() -> None:
    book = ValueBook()
    assert book.meet(["x" * (LONGEST + 1), OTHERS, "x" * LONGEST, None, ""], START_US).tolist() == [
        False, False, True, True, True,
    ]  # fmt: skip


def test_a_value_that_is_not_met_for_two_days_is_forgotten(engine: Engine) -> None:
    stated = StatedValues("m")
    stated.meet("slice", ["gone", "here"], np.full(2, START_US))
    stated.meet("slice", ["here"], np.array([START_US + DAY_US]))
    with write(engine) as connection:
        stated.store(connection)
        forget_unmet(connection, "m", now_us=START_US + KEPT_US)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT value FROM stated_value").scalars().all() == ["here"]
    stated.meet("slice", ["here"], np.array([START_US + KEPT_US]))
    assert ("gone" in stated.book("slice"), "here" in stated.book("slice")) == (False, True)


def test_a_declared_value_needs_no_place_and_an_undeclared_one_competes() -> None:
    book = ValueBook(places=1)
    book.declare(["7", "8"])
    assert book.meet(["a", "7", "b", "8"], START_US).tolist() == [True, True, False, True]
    book.declare(["7"])
    assert book.meet(["8", "7"], START_US).tolist() == [False, True]


@pytest.mark.parametrize("by_us", [-3 * HOUR_US, 3 * HOUR_US])
def test_a_step_of_the_clock_moves_the_book(by_us: int) -> None:
    stated, now = StatedValues("m"), START_US
    stated.meet("slice", [f"first {at}" for at in range(PLACES)], np.full(PLACES, now))
    stated.shift(by_us)
    now += by_us + MINUTE_US
    stated.meet("slice", ["late"] * 50, np.full(50, now))
    assert stated.meet("slice", ["late"], np.array([now + MINUTE_US])).all()


def test_what_has_no_place_is_told_once(engine: Engine) -> None:
    stated = StatedValues("m")
    for minute in range(3):
        texts = [f"{minute} {at}" for at in range(PLACES)]
        stated.meet("slice", texts, np.full(PLACES, START_US + minute * MINUTE_US))
    assert stated.filled == ["slice"]
    with write(engine) as connection:
        stated.store(connection)
    with engine.connect() as connection:
        again = StatedValues.stored(connection, "m")
    again.meet("slice", ["more"], np.array([START_US + 3 * MINUTE_US]))
    assert again.filled == []


RULE = AlarmRule(alpha=0.2, horizon_s=6 * 3600.0, baseline_s=7200.0)


def alarms_of(seed: int, *, fault: str = "") -> tuple[set[str], int]:
    """Slices that alarm in six hours, of a book with ten places whose heaviest change every hour.

    Each record is flagged with a chance of 5 %; from minute 330 on those of ``fault`` with 50 %.
    """
    rng, book, counts = np.random.default_rng(seed), ValueBook(places=10), MinuteCounts("m", RULE.minutes)
    found: set[str] = set()
    names: set[str] = set()
    for minute in range(360):
        weight = 1.0 / (1 + (np.arange(60) - 7 * (minute // 60)) % 60) ** 1.5
        drawn = rng.choice(60, 120, p=weight / weight.sum())
        parts = [f"shop {at}" for at in drawn]
        share = np.where((np.array(parts) == fault) & (minute >= 330), 0.5, 0.05)
        hits = rng.random(120) < share
        named = book.meet(parts, START_US + minute * MINUTE_US)
        start = START_US // MINUTE_US + minute + 1 - counts.minutes
        counts.start_us = start * MINUTE_US
        counts.rows.shift(start, counts.minutes - 1)
        for part, is_named, hit in zip(parts, named.tolist(), hits.tolist(), strict=True):
            name = part if is_named else OTHERS
            names.add(name)
            for key in (name, ALL):
                counts.rows.add(("", key), counts.minutes - 1, 1)
                if hit:
                    counts.rows.add(("x", key), counts.minutes - 1, 1)
        if minute % 5 == 4:
            found |= {one.slice for one in rate_alarms(counts, ["x"], RULE, standing=set())}
    return found, len(names)


@pytest.mark.costly("needs as many records as a promise is about")
def test_places_by_weight_raise_no_false_alarm_though_their_holders_change() -> None:
    runs = rounds(200, part=25)
    made = [alarms_of(seed) for seed in range(runs)]
    assert min(names for _, names in made) > 20  # many more than places
    assert sum(bool(found) for found, _ in made) / runs <= at_most(RULE.alpha, runs)


def test_a_slice_that_entered_late_is_found_where_its_share_rises() -> None:
    found, _ = alarms_of(1, fault="shop 35")
    assert "shop 35" in found


def test_marks_of_versions_without_a_name_are_one_and_keep_their_flags(engine: Engine) -> None:
    def judged() -> dict[tuple[str, int], np.ndarray]:
        return {("7", 1): judged_marks(np.array([0, 2])), (OTHERS, 1): judged_marks(np.array([1, 3]))}

    with write(engine) as connection:
        store_marks(
            connection, "m", "champion", judged(), [("build-1", 1, 1, "warning"), ("7", 1, 2, "info")]
        )
        store_marks(connection, "m", "champion", {}, [("build-3", 1, 3, "critical"), ("7", 1, 0, "info")])
        rows = connection.exec_driver_sql("SELECT version, marks FROM judged_block").all()
    warning, info, critical = (LEVEL_BITS[level] for level in ("warning", "info", "critical"))
    assert {version: list(marks) for version, marks in rows} == {
        "7": [1 + info, 0, 1 + info], OTHERS: [0, 1 + warning, 0, 1 + critical],
    }  # fmt: skip


def test_value_that_begins_like_counts_of_another_kind_has_no_name() -> None:
    book = ValueBook()
    assert book.meet(["\0v", "\1fraud", "north"], START_US).tolist() == [False, False, True]
    book.meet(["\1fraud"] * 100, START_US)
    assert book.meet(["\1fraud"], START_US + 60_000_000).tolist() == [False]
