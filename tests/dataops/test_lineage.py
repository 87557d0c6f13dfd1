"""Lineage of long histories: the nearest ancestors, how many more there are, and a way to the last one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert

from outrider.dataops.datasets.changes import row_counts
from outrider.dataops.models import lineage
from outrider.dataops.models.lineage import LEVELS, NODES
from outrider.dataops.state import improvement_tables
from outrider.dataops.state.database import write
from outrider.errors import NotFound
from tests.databases import migrated


def remember(engine: Engine, versions: int) -> None:
    """A champion that was trained on the newest of many versions, each with its job."""
    edges = [("model", "m@1", "dataset", f"d@{versions}", "fresh")]
    for number in range(1, versions + 1):
        edges.append(("dataset", f"d@{number}", "job", f"job_{number}", "trigger"))
        if number > 1:
            edges.append(("dataset", f"d@{number}", "dataset", f"d@{number - 1}", "parent"))
    names = ("child_kind", "child", "parent_kind", "parent", "role")
    version: dict[str, Any] = {"dataset": "d", "model": "m", "digest": "d", "rows": 3, "created_us": 1}
    version |= {"manifest": {"counts": row_counts([])}, "arrow_schema": b"", "state": b""}
    with write(engine) as connection:
        connection.execute(
            insert(improvement_tables.LineageEdge),
            [dict(zip(names, edge, strict=True)) | {"created_us": 1} for edge in edges],
        )
        connection.execute(
            insert(improvement_tables.DatasetVersion),
            [version | {"number": number} for number in range(1, versions + 1)],
        )
        model = {"model": "m", "version": "1", "status": "champion", "created_us": 1, "changed_us": 1}
        connection.execute(
            insert(improvement_tables.ModelVersion), [model | {"digest": "", "note": "", "source": "{}"}]
        )


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node["parents"]


def steps(connection: Connection, versions: int) -> int:
    """Thousands of steps of SQLite's machine that one trace takes."""
    counted = 0

    def step() -> int:
        nonlocal counted
        counted += 1
        return 0

    raw: Any = connection.connection.dbapi_connection
    raw.set_progress_handler(step, 1_000)
    try:
        tree = lineage.trace(connection, "m")
    finally:
        raw.set_progress_handler(None, 0)
    shown = {(node["kind"], node["id"]) for node in nodes(tree)}
    assert len(shown) + tree["more"] == 1 + 2 * versions
    assert len(shown) <= NODES
    return counted


def test_1200_and_20000_versions_are_traced_in_time_in_proportion(tmp_path: Path) -> None:
    taken = {}
    for versions in (1_200, 20_000):
        engine = migrated(tmp_path / f"{versions}.db")
        remember(engine, versions)
        with engine.connect() as connection:
            taken[versions] = steps(connection, versions)
        engine.dispose()
    assert taken[1_200] > 0
    assert taken[20_000] < 1.5 * 20_000 / 1_200 * taken[1_200]


def test_every_ancestor_is_reached_from_the_last_nodes_of_the_trees(engine: Engine) -> None:
    remember(engine, 400)
    starts: list[str | None] = [None]
    found: set[tuple[str, str]] = set()
    more = []
    with engine.connect() as connection:
        for start in starts:  # grows
            tree = lineage.trace(connection, "m", start=start)
            found |= {(node["kind"], node["id"]) for node in nodes(tree)}
            cut = [f"{node['kind']}:{node['id']}" for node in nodes(tree) if node.get("cut")]
            more.append(tree.get("more", 0))
            starts += cut
            assert bool(cut) == bool(more[-1])
    assert len(found) == 1 + 2 * 400
    assert len(starts) == -(-400 // (LEVELS - 1))
    assert sorted(more, reverse=True) == more


@pytest.mark.parametrize("start", ["dataset:d@99", "d@1", "", "dataset:"])
def test_an_unknown_node_to_start_from_is_told(engine: Engine, start: str) -> None:
    remember(engine, 3)
    with engine.connect() as connection, pytest.raises(NotFound, match="kind:id of a node expected"):
        lineage.trace(connection, "m", start=start)


def test_a_short_history_is_whole(engine: Engine) -> None:
    remember(engine, 3)
    with engine.connect() as connection:
        tree = lineage.trace(connection, "m")
    assert "more" not in tree
    assert [node["id"] for node in nodes(tree) if node["kind"] == "dataset"] == ["d@3", "d@2", "d@1"]
