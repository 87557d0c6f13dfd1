"""A label of an entity belongs to the entity's latest record at its time, in whatever order they come."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.state.database import write
from tests.databases import migrated
from tests.soak import examples
from tests.table_rows import append

Stream = list[list[tuple[str, str, int]]]
"""Commits of (kind, entity, time)."""

events = st.tuples(st.sampled_from(["record", "label"]), st.sampled_from(["u", "v"]), st.integers(0, 5))
streams = st.lists(st.lists(events, min_size=1, max_size=5), max_size=8)


def commit(engine: Engine, seq: int, group: list[tuple[str, str, int]]) -> None:
    """One unit: its records are in block ``seq``, its labels in the next."""
    effects = Effects("m", "champion", seq + 1)
    for row, (kind, entity, ts_us) in enumerate(group):
        if kind == "record":
            values = ("m", f"{seq}:{row}", seq, row, ts_us, 0, None, entity, None, None, 1.0, None)
            append(effects.records, values)
        else:
            append(effects.labels, (seq + 1, row, "m", "", "human", "1", "{}", ts_us, 0, entity))
    with write(engine) as connection:
        ledger.apply(connection, effects)


def resolved(engine: Engine) -> dict[tuple[int, int], str]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT seq, row, record_id FROM label").all()
    return {(seq, row): record_id for seq, row, record_id in rows}


def expected(stream: Stream) -> dict[tuple[int, int], str]:
    """By looking at everything, once it is all there."""
    records = [
        (entity, ts_us, (2 * number + 1, row))
        for number, group in enumerate(stream)
        for row, (kind, entity, ts_us) in enumerate(group)
        if kind == "record"
    ]
    found = {}
    for number, group in enumerate(stream):
        for row, (kind, entity, at_us) in enumerate(group):
            if kind == "label":
                own = [(ts_us, place) for of, ts_us, place in records if of == entity and ts_us <= at_us]
                place = max(own)[1] if own else None
                found[2 * number + 2, row] = "" if place is None else f"{place[0]}:{place[1]}"
    return found


@contextmanager
def database() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        engine = migrated(Path(folder) / "state.db")
        yield engine
        engine.dispose()


def test_any_order_gives_the_same_as_looking_at_everything() -> None:
    with database() as engine:

        @given(streams)
        @settings(max_examples=examples(80))
        def check(stream: Stream) -> None:
            with write(engine) as connection:
                for table in ("record", "label", "cursor"):
                    connection.exec_driver_sql(f"DELETE FROM {table}")
            for number, group in enumerate(stream):
                commit(engine, 2 * number + 1, group)
            assert resolved(engine) == expected(stream)

        check()


def test_a_label_waits_for_its_record_and_goes_over_to_a_later_one_that_was_late(engine: Engine) -> None:
    commit(engine, 1, [("label", "u", 10)])
    assert resolved(engine) == {(2, 0): ""}
    commit(engine, 3, [("record", "u", 11), ("record", "v", 10)])
    assert resolved(engine) == {(2, 0): ""}
    commit(engine, 5, [("record", "u", 4)])
    assert resolved(engine) == {(2, 0): "5:0"}
    commit(engine, 7, [("record", "u", 9), ("record", "u", 2)])
    assert resolved(engine) == {(2, 0): "7:0"}


def test_labels_that_name_their_record_stay_where_they_are(engine: Engine) -> None:
    with write(engine) as connection:
        effects = Effects("m", "champion", 1)
        append(effects.labels, (1, 0, "m", "a", "human", "1", "{}", 10, 0, None))
        ledger.apply(connection, effects)
    commit(engine, 3, [("record", "u", 4), ("label", "u", 5)])
    assert resolved(engine) == {(1, 0): "a", (4, 1): "3:0"}
