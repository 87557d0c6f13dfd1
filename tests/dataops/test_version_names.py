"""Counts name a bounded number of stated versions, however the stream is cut and where it starts again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.minutes import DAY_US, MINUTE_US, minute_of
from outrider.dataops.ledger.version_names import OTHERS, VersionNames
from outrider.dataops.state.database import write
from tests.soak import examples
from tests.table_rows import append

START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % MINUTE_US
BLOCKS = st.lists(
    st.tuples(
        st.sampled_from([MINUTE_US, MINUTE_US // 7, DAY_US // 2, DAY_US, -MINUTE_US]),
        st.lists(st.sampled_from([None, "", *"abcde7", OTHERS]), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=12,
)


def slow(blocks: list[tuple[int, list[str | None]]], most: int) -> list[bool]:
    """Places as one reads them: each stated version's last minute, looked at for every record."""
    last: dict[str, int] = {}
    now, told = START_US, []
    for after_us, versions in blocks:
        now += after_us
        minute = now // MINUTE_US
        for one in versions:
            if not one or one == "7":
                told.append(False)
                continue
            if one not in last and len(last) >= most:
                last = {name: at for name, at in last.items() if minute - at < 1440}
            named = one != OTHERS and (one in last or len(last) < most)
            if named:
                last[one] = max(minute, last.get(one, minute))
            told.append(not named)
    return told


@settings(max_examples=examples(100))
@given(blocks=BLOCKS, cut=st.integers(1, 12))
def test_places_are_those_of_a_slow_loop_however_units_are_cut(
    blocks: list[tuple[int, list[str | None]]], cut: int
) -> None:
    names = VersionNames(most=2)
    names.register(["7"])
    told: list[bool] = []
    received, now = {}, START_US
    for seq, (after_us, _) in enumerate(blocks):
        now += after_us
        received[seq] = now
    for start in range(0, len(blocks), cut):
        part = blocks[start : start + cut]
        pairs = [(at, one) for at, (_, block) in enumerate(part, start) for one in block]
        own = np.array([at for at, _ in pairs])
        found = names.unnamed([one for _, one in pairs], own, received)
        told += [False] * len(pairs) if found is None else found
    assert told == slow(blocks, 2)


def feed(engine: Engine, names: VersionNames, seq: int, at_us: int, versions: list[str]) -> None:
    effects = Effects("m", "champion", seq, received_us=at_us, received={seq: at_us})
    unnamed = names.unnamed(versions, np.full(len(versions), seq), effects.received)
    for row, version in enumerate(versions):
        own = unnamed is not None and unnamed[row]
        key = f"r{seq}-{row}"
        append(
            effects.records,
            ("m", key, seq, row, at_us, row, version, None, None, "0", 1.0, False, None, own),
        )
        flag = (f"f{key}", "m", key, "a", "rev", "champion", version, 1.0, "warning", None, seq, at_us, row)
        append(effects.flags, flag)
    with write(engine) as connection:
        count_flags(connection, effects, FlagBudget())
        ledger.apply(connection, effects)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_flood_is_one_row_a_minute_and_a_version_behind_it_has_its_own(
    engine: Engine, restarts: bool
) -> None:
    names = VersionNames()
    names.register(["7", "8"])
    for minute in range(10):
        at_us = START_US + minute * MINUTE_US
        own = "8" if minute > 7 else "7"
        feed(engine, names, minute + 1, at_us, [own] + [f"request-{minute}-{at}" for at in range(1000)])
        if restarts:
            with engine.connect() as connection:
                names = VersionNames.stored(connection, "m")
            names.register(["7", "8"])
    for table, number in (("record_count", "records"), ("flag_count", "flags")):
        with engine.connect() as connection:
            query = f"SELECT version, sum({number}), count(*) FROM {table} GROUP BY version"
            found = {row[0]: tuple(row[1:]) for row in connection.exec_driver_sql(query)}
        assert len(found) == 50 + 3
        assert sum(records for records, _ in found.values()) == 10_010
        assert (found["7"], found["8"]) == ((8, 8), (2, 2))
        assert found[OTHERS] == (9_950, 10)
        assert all(found[f"request-0-{at}"] == (1, 1) for at in range(50))


def test_a_place_is_free_a_day_after_it_was_last_met() -> None:
    names = VersionNames(most=1)
    assert names.meet("a", START_US)
    assert names.meet("a", START_US + DAY_US // 2)
    assert not names.meet("b", START_US + DAY_US)
    assert names.meet("b", minute_of(START_US + DAY_US // 2 + DAY_US))
    assert not names.meet("a", START_US + 2 * DAY_US)
