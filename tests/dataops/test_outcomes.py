"""Outcomes of labels per minute are those of a slow loop over all rows, however labels came and changed."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from outrider.assertions.comparison.matching import same
from outrider.assertions.comparison.typed_text import read_typed
from outrider.dataops.erasure.state_rows import erase_rows_of, name_gone
from outrider.dataops.erasure.target import ErasureTarget, Found
from outrider.dataops.erasure.texts import Quotations
from outrider.dataops.flags.rate_limit import MinuteEntities
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.class_words import NUMBER, class_word
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cube import roll_up
from outrider.dataops.ledger.losses import OF_LABEL
from outrider.dataops.ledger.measures import RATIO, buckets_of
from outrider.dataops.ledger.minutes import DAY_US, HOUR_US, MINUTE_US, minutes_of
from outrider.dataops.ledger.outcomes import LabelledRow, outcomes_of
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.state.database import write
from tests.databases import migrated
from tests.soak import examples
from tests.table_rows import append

START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % DAY_US
TEXTS = ("0", "1", '"cat"', "true", "0.25", "0.5")
record = st.tuples(
    st.just("record"), st.integers(0, 9), st.sampled_from(TEXTS), st.sampled_from(["1", "2", None]),
    st.sampled_from([None, 0, 5_120, 10_000]), st.sampled_from([1.0, 2.5]),
)  # fmt: skip
label = st.tuples(st.just("label"), st.integers(0, 9), st.sampled_from((*TEXTS, None)))
entity_label = st.tuples(st.just("entity"), st.integers(0, 2), st.integers(0, 9), st.sampled_from(TEXTS))
Stream = list[list[tuple[Any, ...]]]


@contextmanager
def database() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        engine = migrated(Path(folder) / "state.db")
        yield engine
        engine.dispose()


def commit(
    engine: Engine, number: int, group: Sequence[tuple[Any, ...]], seen: MinuteEntities | None = None
) -> None:
    seq, received = 2 * number + 1, START_US + number * 40_000_000
    effects = Effects("m", "champion", seq + 1, received={seq: received, seq + 1: received}, version="9")
    for row, (kind, key, *rest) in enumerate(group):
        if kind == "record":
            predicted, version, confidence, weight = rest
            ts_us = START_US + key * 1_000_000
            place = (
                seq,
                row,
                ts_us,
                0,
                version,
                f"e{key % 3}",
                "ab"[key % 2],
                predicted,
                weight,
                version is None,
            )
            append(effects.records, ("m", f"r{key}", *place, confidence, None, None, group_of(key)))
        elif kind == "label":
            (value,) = rest
            body = "{}" if value is None else '{"label": 0}'
            append(effects.labels, (seq + 1, row, "m", f"r{key}", "human", value, body, 0, received, None))
        else:
            at, value = rest
            ts_us = START_US + at * 1_000_000
            row_of = (seq + 1, row, "m", "", "human", value, '{"label": 0}', ts_us, received, f"e{key}")
            append(effects.labels, row_of)
    with write(engine) as connection:
        ledger.count_groups(connection, effects, (seen or MinuteEntities()).add)
        ledger.apply(connection, effects)


def group_of(key: int) -> str | None:
    """Every fourth record came before groups were declared."""
    return None if key % 4 == 3 else json.dumps({"sex": f"sex={'fm'[key % 2]}", "age": "age=(missing)"})


def query(engine: Engine, sql: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql(sql).all())


def slow_outcomes(engine: Engine) -> Counter[tuple[Any, ...]]:
    """By looking at every record and every label."""
    found: Counter[tuple[Any, ...]] = Counter()
    labels = query(engine, "SELECT * FROM label ORDER BY seq, row")
    for one in query(engine, "SELECT * FROM record"):
        own = [each for each in labels if each.record_id == one.id]
        value = own[-1].value if own else None
        if value is None:
            continue
        received = START_US + (one.seq - 1) // 2 * 40_000_000
        version = "" if one.version is None else one.version
        hit = same(read_typed(one.predicted), read_typed(value))
        found[received - received % MINUTE_US, version, one.slice, hit] += 1
    return found


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.one_of(record, label, entity_label), max_size=6), min_size=1, max_size=6))
def test_outcomes_of_any_stream_are_those_of_all_rows(stream: Stream) -> None:
    with database() as engine:
        for number, group in enumerate(stream):
            commit(engine, number, group)
        rows = query(engine, "SELECT * FROM outcome_count")
        assert all(row.records > 0 for row in rows)
        found: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            found[row.minute_us, row.version, row.slice, bool(row.hit)] += row.records
        assert found == slow_outcomes(engine)
        weights = {(row.id): row.weight for row in query(engine, "SELECT id, weight FROM record")}
        assert sum(row.weight for row in rows) <= sum(weights.values()) + 1e-9
        errors = query(engine, "SELECT sum(records) n FROM measure_count WHERE measure = 'abs_error'")
        assert (errors[0].n or 0) == _numeric_pairs(engine)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.one_of(record, label, entity_label), max_size=6), min_size=1, max_size=6))
def test_counts_of_groups_of_any_stream_are_those_of_all_rows(stream: Stream) -> None:
    with database() as engine:
        counted = MinuteEntities()
        for number, group in enumerate(stream):
            fresh = [one for one in group if one[0] != "record" or not _is_there(engine, one[1])]
            commit(engine, number, list({one[:2]: one for one in fresh}.values()), counted)
        found: Counter[tuple[Any, ...]] = Counter()
        entities: Counter[str] = Counter()
        for row in query(engine, "SELECT * FROM group_count"):
            assert row.records > 0
            found[row.part, bool(row.is_labelled), row.minute_us, bool(row.hit)] += row.records
            entities[row.part] += row.entities
        assert found == _slow_groups(engine)
        for part, n in entities.items():
            rows = [one for one in query(engine, "SELECT * FROM record") if part in (one.groups or "")]
            own = {(one.entity, _minute(one), one.predicted, one.version, one.groups) for one in rows}
            assert n == len(own)


def _is_there(engine: Engine, key: int) -> bool:
    return bool(query(engine, f"SELECT 1 FROM record WHERE id = 'r{key}'"))


def _minute(row: Any) -> int:
    received = START_US + (int(row.seq) - 1) // 2 * 40_000_000
    return received - received % MINUTE_US


def _slow_groups(engine: Engine) -> Counter[tuple[Any, ...]]:
    """By looking at every record and every label."""
    found: Counter[tuple[Any, ...]] = Counter()
    labels = query(engine, "SELECT * FROM label ORDER BY seq, row")
    for one in query(engine, "SELECT * FROM record WHERE groups IS NOT NULL"):
        own = [each for each in labels if each.record_id == one.id]
        for part in json.loads(one.groups).values():
            found[part, False, _minute(one), False] += 1
            if own and own[-1].value is not None:
                hit = same(read_typed(one.predicted), read_typed(own[-1].value))
                found[part, True, _minute(one), hit] += 1
    return found


def _numeric_pairs(engine: Engine) -> int:
    """Labelled records whose answer is a fractional type and whose label is a number."""
    labels = query(engine, "SELECT * FROM label ORDER BY seq, row")
    found = 0
    for one in query(engine, "SELECT * FROM record"):
        own = [each for each in labels if each.record_id == one.id]
        if own and own[-1].value is not None:
            answer, truth = read_typed(one.predicted), read_typed(own[-1].value)
            found += isinstance(answer, float) and isinstance(truth, int | float)
    return found


def test_a_class_that_only_erased_records_name_loses_its_name(engine: Engine) -> None:
    rows = [("record", 0, '"secret"', "1", 5_120, 1.0), ("label", 0, '"dog"')]
    rows += [("record", 1, '"cat"', "1", 5_120, 1.0), ("label", 1, '"dog"')]
    rows += [("record", 2, '"cat"', "1", 5_120, 1.0), ("label", 2, '"mine"')]
    commit(engine, 0, rows)
    with write(engine) as connection:
        found, quoted = Found(), Quotations([], [])
        found.ids["m"] = {"r0", "r2"}
        name_gone(connection, ErasureTarget(records=("r0", "r2")), found)
        erase_rows_of(connection, found, quoted)
    counted = query(engine, "SELECT predicted, label, sum(records) FROM outcome_count GROUP BY 1, 2")
    assert set(map(tuple, counted)) == {(OTHERS, "dog", 1), ("cat", "dog", 1), ("cat", OTHERS, 1)}
    losses = {name for (name,) in query(engine, "SELECT slice FROM loss_count")}
    assert {f"{OF_LABEL}dog", OF_LABEL + OTHERS} < losses
    assert not any("mine" in name for name in losses)


def test_equal_classes_are_counted_by_one_name() -> None:
    pairs = [("1", "true"), ("1", "0"), ("0.0", "false"), ('"01"', '"1"'), ('"cat"', "dog"), ("0.25", "0.25")]
    found = outcomes_of([labelled(*pair) for pair in pairs])
    assert [(one.predicted, one.label, one.hit) for one in found] == [
        ("1", "1", True), ("1", "0", False), ("0", "0", True), ("01", "1", False), ("cat", "dog", False),
        (NUMBER, NUMBER, True),
    ]  # fmt: skip
    assert found[-1].error == 0.0


def labelled(predicted: str, value: str, *others: bool) -> LabelledRow:
    """Record with a label; ``others`` say whether counts fold its answer and its label."""
    empty = ("r", 1, 0, "1", None, None)
    return LabelledRow(*empty, predicted, None, 1.0, None, None, None, None, value, 0, *others)


def test_outcomes_keep_the_names_that_answer_and_label_were_given() -> None:
    found = outcomes_of([labelled('"cat"', '"dog"', is_other, not is_other) for is_other in (True, False)])
    assert [(one.predicted, one.label, one.hit) for one in found] == [
        (OTHERS, "dog", False),
        ("cat", OTHERS, False),
    ]
    (hit,) = outcomes_of([labelled('"cat"', '"cat"', False, True)])
    assert (hit.predicted, hit.label, hit.hit) == ("cat", "cat", True)
    assert class_word('"cat"') == "cat"


@pytest.mark.parametrize("value", [1e-9, 0.013, 1.0, 37.0, 1e12])
def test_a_bucket_is_narrower_than_its_ratio(value: float) -> None:
    import numpy as np

    near = np.array([value, value * RATIO * 1.0001])
    assert np.diff(buckets_of(near)).item() in (1, 2)


def test_counts_roll_up_and_add_up(engine: Engine) -> None:
    for number in range(40):
        commit(engine, number, [("record", number % 10, "1", "1", 5_120, 1.0), ("label", number % 10, "1")])
    sql = "SELECT sum(records) n, sum(weight) w, count(*) rows FROM outcome_count"
    (before,) = query(engine, sql)
    now = START_US + DAY_US + 5 * HOUR_US
    with write(engine) as connection:
        roll_up(connection, "m", before_us=0, now_us=now)
    (hourly,) = query(engine, sql)
    assert (hourly.n, hourly.w) == (before.n, before.w)
    assert hourly.rows <= 4 < before.rows
    assert query(engine, f"SELECT count(*) FROM outcome_count WHERE minute_us % {HOUR_US} != 0") == [(0,)]
    with write(engine) as connection:
        roll_up(connection, "m", before_us=now, now_us=now + 40 * DAY_US)
        assert minutes_of(connection, "m", [1])
    (daily,) = query(engine, sql)
    assert (daily.n, daily.w) == (before.n, before.w)
    with write(engine) as connection:
        roll_up(connection, "m", before_us=now + 40 * DAY_US, now_us=now + 900 * DAY_US)
    assert query(engine, "SELECT count(*) FROM outcome_count") == [(0,)]
