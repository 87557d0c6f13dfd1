"""Counts of flags are exact whatever is kept; what is kept is the same however the stream is cut."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects, flag_id
from outrider.dataops.ledger.counters import add_counts
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.monitor.views.agreement.reader import report_json
from outrider.monitor.views.overview.reader import read_overview
from tests.model_sources import FUNCTION
from tests.soak import examples
from tests.table_rows import append

START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % 60_000_000
IDS = [f"{n:032x}" for n in range(20_000)]


def unit(
    rows: range,
    *,
    seq: int,
    subject: str | None = None,
    received_us: int = START_US,
    version: str = "1",
) -> Effects:
    """Records of a block, on every one of which ``a`` fires; ``subject`` makes them all one event."""
    effects = Effects("m", "champion", seq, received_us=received_us, received={seq: received_us})
    for at, row in enumerate(rows):
        key, part = f"r{row}", "ab"[row % 2]
        append(effects.records, ("m", key, seq, at, row, row, version, None, part, "0", 1.0, False))
        identity = flag_id("m", version, "a", "rev", subject or key)
        flag = (identity, "m", key, "a", "rev", "champion", version, 1.0, "warning", '{"x": 1}', seq, at, row)
        append(effects.flags, flag)
    effects.counts.update({"flags:a": len(rows), "records": len(rows)})
    return effects


def commit(engine: Engine, effects: Effects, budget: FlagBudget) -> int:
    with write(engine) as connection:
        found = count_flags(connection, effects, budget)
        ledger.apply(connection, effects)
    return sum(new.flags for new in found)


def rows(engine: Engine, sql: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


def test_all_flags_of_a_quiet_minute_are_kept() -> None:
    assert FlagBudget(1000).admit(IDS[:1000], before=0).all()


def test_a_storm_keeps_about_twice_the_budget_at_most() -> None:
    kept = FlagBudget(1000, seed=3).admit(IDS, before=0)
    assert kept[:1000].all()
    expected = 1000 + sum((1000 / n) ** 2 for n in range(1001, len(IDS) + 1))
    assert abs(kept.sum() - expected) < 4 * np.sqrt(1000)
    assert kept.sum() < 2100
    assert FlagBudget(1000, seed=4).admit(IDS, before=0).tolist() != kept.tolist()


@settings(max_examples=examples(50))
@given(cuts=st.lists(st.integers(0, 3000), max_size=6), seed=st.integers(0, 2**70))
def test_the_choice_does_not_depend_on_how_the_stream_is_cut(cuts: list[int], seed: int) -> None:
    budget = FlagBudget(100, seed=seed)
    whole = budget.admit(IDS[:3000], before=0).tolist()
    parts: list[bool] = []
    edges = [0, *sorted(cuts), 3000]
    for start, stop in pairwise(edges):
        parts += budget.admit(IDS[start:stop], before=start).tolist()
    assert parts == whole


@pytest.mark.parametrize("sizes", [[600], [100, 250, 250], [599, 1]])
def test_counts_are_exact_and_the_kept_ones_are_always_the_same(engine: Engine, sizes: list[int]) -> None:
    start = 0
    for seq, size in enumerate(sizes, start=1):
        assert commit(engine, unit(range(start, start + size), seq=seq), FlagBudget(50, seed=1)) == size
        start += size
    counted = rows(engine, "SELECT slice, minute_us, flags, kept FROM flag_count ORDER BY slice")
    assert [(part, minute, flags) for part, minute, flags, _ in counted] == [
        ("a", START_US, 300),
        ("b", START_US, 300),
    ]
    kept = {row[0] for row in rows(engine, "SELECT record_id FROM flag")}
    assert sum(row[3] for row in counted) == len(kept)
    assert kept >= {f"r{n}" for n in range(50)}
    chosen = FlagBudget(50, seed=1).admit(
        [flag_id("m", "1", "a", "rev", f"r{n}") for n in range(600)], before=0
    )
    assert kept == {f"r{n}" for n in np.flatnonzero(chosen)}
    counters = dict(rows(engine, "SELECT name, value FROM counter"))
    assert counters["flags:a"] == 600
    assert counters["thinned:a"] == 600 - len(kept)
    assert rows(engine, "SELECT sum(records) FROM record_count") == [(600,)]


def test_figures_of_versions_stay_with_the_one_that_answered(tmp_path: Path, engine: Engine) -> None:
    with write(engine) as connection:
        told: dict[str, Any] = {
            "model": "m",
            "version": "1",
            "content": b"",
            "is_weights": False,
            "now_us": 1,
        }
        models.register_initial(connection, LocalObjects(tmp_path / "objects"), **told, source=FUNCTION)
        for version in ("2", "3"):
            models.register(
                connection,
                model="m",
                version=version,
                status="challenger",
                digest="d",
                weights=None,
                now_us=2,
                source=FUNCTION,
            )
        add_counts(connection, "m", "2", {"records": 40, "flags:a": 4})  # of their shadows
        add_counts(connection, "m", "3", {"records": 30, "flags:a": 3})
    commit(engine, unit(range(600), seq=1), FlagBudget(50, seed=1))
    with write(engine) as connection:
        models.promote(connection, "m", "2", now_us=3, reason="better", by="ann")
    promoted = {one.version: one.records for one in read_overview(engine, "m", now_us=START_US).versions}
    assert promoted == {"1": 600, "2": 0, "3": 30}
    commit(engine, unit(range(600, 610), seq=2, version="2"), FlagBudget(50, seed=1))
    found = read_overview(engine, "m", now_us=START_US)
    assert {one.version: (one.records, one.flags) for one in found.versions} == {
        "1": (600, 600),
        "2": (10, 10),
        "3": (30, 3),
    }
    assert found.records == 610
    report = {one["version"]: one["judged"] for one in report_json(engine, "m", now_us=START_US)["versions"]}
    assert report == {"1": 600, "2": 10, "3": 30}


def test_the_next_minute_has_a_budget_of_its_own(engine: Engine) -> None:
    budget = FlagBudget(10)
    commit(engine, unit(range(100), seq=1), budget)
    before = len(rows(engine, "SELECT id FROM flag"))
    commit(engine, unit(range(100, 110), seq=2, received_us=START_US + 60_000_000), budget)
    assert len(rows(engine, "SELECT id FROM flag")) == before + 10


def test_an_event_that_is_found_again_counts_once_even_in_a_storm(engine: Engine) -> None:
    budget = FlagBudget(5)
    assert commit(engine, unit(range(20), seq=1), budget) == 20
    assert commit(engine, unit(range(20, 23), seq=2, subject="gap"), budget) == 1
    assert commit(engine, unit(range(23, 25), seq=3, subject="gap"), budget) == 0
    assert rows(engine, "SELECT sum(flags) FROM flag_count") == [(21,)]
    assert dict(rows(engine, "SELECT name, value FROM counter"))["flags:a"] == 21
    event = flag_id("m", "1", "a", "rev", "gap")
    # It stands, or it would be counted again; with its evidence only if it was drawn.
    found = rows(engine, f"SELECT evidence FROM flag WHERE id = '{event}'")
    drawn = budget.admit([event], before=20)[0]
    assert found == [('{"x": 1}',) if drawn else (None,)]


def test_slices_of_records_of_earlier_blocks_are_looked_up(engine: Engine) -> None:
    first = unit(range(4), seq=1)
    first.flags = first.flags.where([False] * len(first.flags))
    first.counts.clear()
    commit(engine, first, FlagBudget())
    later = Effects("m", "champion", 2, received_us=START_US, received={2: START_US})
    later.flags = unit(range(4), seq=1).flags
    later.counts["flags:a"] = 4
    commit(engine, later, FlagBudget())
    found = Counter(dict(rows(engine, "SELECT slice, flags FROM flag_count")))
    assert found == {"a": 2, "b": 2}
