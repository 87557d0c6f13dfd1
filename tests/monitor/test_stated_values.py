"""Values that senders invent stay few in counts, memory and database, through the worker and its restarts."""

import gc
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.commands import doctor
from outrider.dataops.erasure import pending
from outrider.dataops.erasure.erasing import complete
from outrider.dataops.erasure.target import ErasureTarget
from outrider.dataops.ledger.stated_values import COUNTERS, OTHERS, PLACES
from outrider.monitor.settings.erasure_place import place_of
from outrider.monitor.views.series.chart import MOST_LINES
from tests.monitor.services import every_app
from tests.monitor.test_routes_data import Client
from tests.scan import needles, places
from tests.soak import rounds

from .workbench import Workbench, workbench

CONFIG = """
[models.toy]
target = "label"
slice_by = "user"
group_by = ["team"]
assertions = ["checks.py"]
"""
CHECKS = """
from outrider.assertions import assertion

@assertion(level="warning")
def low(batch):
    return batch.column("inputs.x") < 0.5
"""
ROWS = 500


def project(folder: Path) -> Path:
    (folder / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    return folder / "outrider.toml"


def sent(block: int, name: Callable[[int], str], *, rows: int = ROWS) -> list[dict[str, Any]]:
    """Records that state one name in every dimension."""
    return [
        {
            "id": f"r{block}-{at}",
            "version": name(at),
            "inputs": {"x": 0.1},
            "outputs": {"label": name(at)},
            "attrs": {"user": name(at), "team": name(at)},
        }
        for at in range(rows)
    ]


def flood(block: int) -> Callable[[int], str]:
    """New names, and one of 2 %."""
    return lambda at: "honest" if at % 50 == 10 else f"u{block}-{at}"


def feed(made: Workbench, block: int, *, after_s: float = 15.0) -> None:
    records = sent(block, flood(block))
    made.feed(records, after_s=after_s)
    made.label({one["id"]: one["outputs"]["label"] for one in records[::5]})


def named(made: Workbench, table: str, column: str) -> set[str]:
    return {row[0] for row in made.rows(f"SELECT DISTINCT {column} FROM {table}")} - {""}


def test_a_flood_in_every_dimension_leaves_few_names_and_the_honest_ones(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as made:
        for block in range(8):
            feed(made, block)
            if block == 4:
                made.restart()
            made.work()
        columns = {
            "record_count": ("slice", "version"), "flag_count": ("slice", "version"),
            "outcome_count": ("predicted", "label", "slice"), "group_count": ("part", "predicted"),
            "version_count": ("version",),
        }  # fmt: skip
        for table, names in columns.items():
            for column in names:
                found = named(made, table, column)
                assert len(found) <= PLACES + 1, (table, column)
                assert OTHERS in found, (table, column)
                assert found & {"honest", "team=honest"}, (table, column)
        assert made.rows("SELECT sum(records) FROM record_count") == [(8 * ROWS,)]
        dimensions = made.rows("SELECT dimension, count(*) FROM stated_value GROUP BY 1")
        assert {name for name, _ in dimensions} == {"version", "slice", "answer", "label", "group:team"}
        assert all(count <= 2 * COUNTERS + PLACES for _, count in dimensions)
        told = made.registry.get_sample_value(
            "outrider_values_folded_total", {"model": "toy", "dimension": "slice"}
        )
        assert told is not None
        assert told > 0
        facts = doctor._folded(made.config)
        assert facts["toy slice"].endswith(f"under {OTHERS}: {PLACES} values have names")


def test_an_honest_value_gets_a_place_after_a_flood_has_taken_all(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as made:
        made.feed(sent(0, lambda at: f"u{at}"))
        made.work()
        for block in range(1, 4):
            made.feed(sent(block, lambda at: f"shop {at % 10}"), after_s=70)
            made.work()
        counted = dict(made.rows("SELECT slice, sum(records) FROM record_count GROUP BY 1"))
        assert {f"shop {at}" for at in range(10)} <= counted.keys()
        assert counted["shop 0"] == 2 * ROWS / 10  # its evidence begins when it enters


@pytest.mark.parametrize("restarts", [False, True])
def test_counts_do_not_depend_on_how_blocks_are_cut_or_where_the_worker_starts_again(
    tmp_path: Path, restarts: bool
) -> None:
    def tables(cut: int, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
        folder.mkdir()
        with workbench(project(folder)) as made:
            for block in range(4):
                records = sent(block, flood(block), rows=250)
                for start in range(0, 250, cut):
                    made.feed(records[start : start + cut], after_s=20 if not start else 0)
                    if restarts and cut < 250:
                        made.work()
                if restarts and cut < 250:
                    made.restart()
                made.work()
            order = "ORDER BY 1, 2, 3, 4, 5, 6"
            return {
                table: made.rows(f"SELECT * FROM {table} {order}")
                for table in ("record_count", "flag_count", "group_count", "stated_value")
            }

    whole, parts = (tables(cut, tmp_path / str(cut)) for cut in (250, 70))
    assert whole == parts


def resident_bytes() -> int:
    """Memory of this process, in which the worker runs."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_under_values_without_end(tmp_path: Path) -> None:
    blocks, seen = rounds(1_000_000 // ROWS, part=200), []
    with workbench(project(tmp_path)) as made:
        for block in range(blocks):
            feed(made, block)
            made.work()
            seen.append(resident_bytes())
        rows = {
            table: made.rows(f"SELECT count(*) FROM {table}")[0][0]
            for table in ("version_count", "stated_value")
        }
    warm = seen[len(seen) // 4]
    assert max(seen) - warm < 50e6, json.dumps([one - warm for one in seen[:: max(1, blocks // 20)]])
    assert rows["version_count"] <= 61 * (PLACES + 1)
    assert rows["stated_value"] <= 5 * (2 * COUNTERS + PLACES)


def test_a_body_of_new_values_takes_memory_as_one_of_the_same_values_does(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as made:
        grown = []
        for body, name in enumerate((lambda at: "honest", lambda at: f"new-{at}")):
            made.feed(sent(body, name, rows=15_000))
            before = resident_bytes()
            made.work()
            grown.append(resident_bytes() - before)
        assert grown[1] < grown[0] + 50e6
        marked = made.rows("SELECT count(DISTINCT version) FROM judged_block")[0][0]
        assert marked <= PLACES + 1


@pytest.mark.parametrize("comes_first", [True, False])
def test_erasure_takes_a_person_out_of_the_book(tmp_path: Path, comes_first: bool) -> None:
    person, markers = "person-zq7f31", needles("person-zq7f31")
    own = sent(99, lambda _: person, rows=2)
    own = [one | {"entity": person, "version": "1", "id": f"zq7f-{at}"} for at, one in enumerate(own)]
    with workbench(project(tmp_path)) as made:
        if comes_first:  # with a place, else without
            made.feed(own)
        made.feed(sent(0, flood(0)))
        if not comes_first:
            made.feed(own)
        made.label(dict.fromkeys(["zq7f-0", "zq7f-1"], person))
        made.work()
        named = made.rows("SELECT DISTINCT is_named FROM stated_value WHERE value LIKE '%zq7f31'")
        assert {bool(row[0]) for row in named} == {comes_first, True}  # labels are few: theirs has one
        settings, folder, now_us = made.settings, made.settings.data_folder, made.now_us
    assert "state.db stated_value" in places(folder, markers)
    pending.ask(folder, ErasureTarget((person,)), who="command", now_us=now_us)
    complete(place_of(settings))
    assert places(folder, markers) == []
    with workbench(project(tmp_path)) as made:
        made.feed(sent(1, flood(1)))
        made.work()


def test_pages_show_the_heaviest_versions_and_the_others_under_a_flood(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as made:
        for block in range(3):
            feed(made, block, after_s=0)
        made.work()
        made.feed([], after_s=90)
        page = Client(every_app(made.engine, made.journal, models=("toy",)))
        overview, groups = (page.get(f"/m/toy{path}?range=90d").text for path in ("", "/fairness"))
        chart = overview.partition("<figcaption>Records</figcaption>")[2].partition("</figure>")[0]
        assert chart.count("<li ") == MOST_LINES
        assert "version honest" in chart
        assert "other versions" in chart
        assert f"with the most records, 7 of {PLACES + 1}" in overview
        table = overview.partition("Accuracy on labelled records")[2].partition("</table>")[0]
        assert re.findall(r"<th>([^<]*)</th>", table)[:3] == ["Slice", "version honest", "other versions"]
        assert table.count("<tr>") <= 22
        assert OTHERS not in re.sub(r'value="[^"]*"', "", overview)
        assert "records of version honest" in groups
