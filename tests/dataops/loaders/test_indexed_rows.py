"""Leaks found by the indexes of a version's objects, against the search that reads all its rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.erased import erase_rows
from outrider.dataops.datasets.leak_moves import KnownRows, settle
from outrider.dataops.datasets.leaks import LeakSide, compared, find_leaks, find_matches
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.loaders import leak_index
from outrider.dataops.loaders.indexed_rows import IndexedVersion
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.upkeep.compaction import compact
from tests.databases import migrated
from tests.dataops.test_leaks import edited, sentences


class Rows:
    """A dataset whose versions are searched both ways."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.engine = folder, migrated(folder / "state.db")
        self.objects = LocalObjects(folder / "objects")

    def add(self, batch: Batch | None, parts: Sequence[str] = (), removed: Sequence[str] = ()) -> None:
        keys = [] if batch is None else batch.keys.tolist()
        origins = [Provenance(key, part=part) for key, part in zip(keys, parts, strict=True)]
        with write(self.engine) as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset="d",
                batch=batch,
                provenance=origins,
                append=True,
                removed=removed,
            )
            changes.commit(connection, draft, validation={}, now_us=1)

    def both(self, new: Batch, part: str | None) -> tuple[LeakSide, LeakSide, LeakSide]:
        """The new rows, all rows of the newest version, and those of them that may match."""
        with self.engine.connect() as connection:
            version = datasets.get(connection, "d")
            rows = datasets.read(connection, self.objects, version, part=part)
            rows = rows.take(~np.isin(rows.keys, new.keys))
            indexed = IndexedVersion(
                connection,
                self.objects,
                version,
                part=part,
                without=new.keys.tolist(),
                cache=self.folder / "arrow",
            )
            assert indexed.rows == rows.rows
            inputs, prose = compared([new, rows])
            assert compared([new, indexed.head]) == (inputs, prose)
            left = LeakSide("new", new, inputs, prose)
            near = indexed.near("old", left)
            told = find_leaks(left, near)  # names of rows are read meanwhile
            keys = set(rows.keys.tolist())
            assert all(other in keys for leak in told for _, other in leak["pairs"])
            return left, LeakSide("old", rows, inputs, prose), near


def found(left: LeakSide, right: LeakSide) -> dict[str, tuple[Any, ...]]:
    return {
        match.kind: (match.pairs.rows.tolist(), match.others, match.usual)
        for match in find_matches(left, right)
    }


def texts_of(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"inputs.text": sentences(rng, rows)}


def numbers_of(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    columns: dict[str, Any] = {f"inputs.x{at}": rng.normal(size=rows) * 10**at for at in range(6)}
    columns["inputs.image"] = rng.random((rows, 4, 4)).astype(np.float32)
    return columns | {"inputs.kind": rng.choice(["a", "b", "c"], rows)}


def nearly(rng: np.random.Generator, columns: dict[str, Any]) -> dict[str, Any]:
    """The same but for little: edited texts, numbers with little noise."""
    found = dict(columns)
    for name, values in columns.items():
        if name == "inputs.text":
            found[name] = [edited(rng, text) for text in values]
        elif name != "inputs.kind":
            found[name] = values + rng.normal(size=np.shape(values)).astype(values.dtype) * values.std() / 1e3
    return found


def joined(*columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.concatenate([np.asarray(each[name], dtype=np.asarray(each[name]).dtype) for each in columns])
        for name in columns[0]
    }


def some(columns: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    return {name: np.asarray(values)[list(rows)] for name, values in columns.items()}


def batch_of(prefix: str, columns: dict[str, Any], entities: Sequence[str | None]) -> Batch:
    ids = [f"{prefix}{row:03}" for row in range(len(entities))]
    return Batch.from_columns({"id": ids, "entity": list(entities)} | columns, model="m")


@pytest.mark.parametrize("make", [texts_of, numbers_of], ids=["texts", "numbers"])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_indexes_find_what_reading_all_rows_finds(tmp_path: Path, make: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    store = Rows(tmp_path / f"{seed}")
    known = make(rng, 90)
    for at in range(3):
        rows = range(30 * at, 30 * at + 30)
        entities = [f"e{row // 2}" if row % 3 else None for row in rows]
        parts = rng.choice(["train", "held_out"], 30).tolist()
        store.add(batch_of(f"v{at}-", some(known, rows), entities), parts)
    store.add(None, removed=[f"v0-{row:03}" for row in rng.choice(30, 5, replace=False)])
    if seed % 3 == 0:
        compact(store.engine, store.objects, "d")
    if seed % 3 == 1:
        erase_rows(store.engine, store.objects, ["v1-003", "v2-004"])
    columns = joined(some(known, range(0, 60, 4)), nearly(rng, some(known, range(1, 90, 3))), make(rng, 20))
    entities = [
        f"e{row}" for row in range(len(columns["inputs.kind" if make is numbers_of else "inputs.text"]))
    ]
    new = batch_of("n-", columns, entities)
    again = batch_of("v2-", some(known, range(60, 70)), [None] * 10)  # they come again: no leak of themselves
    for part in ("train", "held_out", None):
        for batch in (new, Batch.concat([new, again])):
            left, whole, near = store.both(batch, part)
            assert found(left, near) == found(left, whole)
            assert near.batch.rows <= 4 * batch.rows


def test_new_rows_settle_as_beside_all_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    store = Rows(tmp_path)
    known = texts_of(rng, 60)
    parts = ["train" if row % 2 else "held_out" for row in range(60)]
    store.add(batch_of("v-", known, [None if row % 5 else f"e{row}" for row in range(60)]), parts)
    columns = joined(some(known, range(20)), nearly(rng, some(known, range(20, 40))), texts_of(rng, 20))
    new = batch_of("n-", columns, [f"e{row}" if row % 4 else "v-001" for row in range(60)])
    origins = [Provenance(key, part="train" if row % 3 else "held_out") for row, key in enumerate(new.keys)]
    with store.engine.connect() as connection:
        version = datasets.get(connection, "d")
        sides: list[dict[str, Any]] = [{}, {}]
        for part in ("train", "held_out"):
            sides[0][part] = datasets.read(connection, store.objects, version, part=part)
            sides[1][part] = IndexedVersion(
                connection, store.objects, version, part=part, cache=tmp_path / "arrow"
            )
        reports = []
        for side in sides:
            others = KnownRows(
                {"learned": side["train"]}, {"judged": side["held_out"]}, ("learned", "judged")
            )
            settled = settle(new, origins, others, moves="all")
            reports.append((settled.report, [row.part for row in settled.provenance]))
    assert reports[0] == reports[1]
    assert reports[0][0]["leaks"]
    assert reports[0][0]["moved"]["held_out"] or reports[0][0]["moved"]["train"]


def test_an_index_is_made_again_where_it_is_lost_or_broken(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    store = Rows(tmp_path)
    known = numbers_of(rng, 50)
    store.add(batch_of("v-", known, [None] * 50), ["train"] * 50)
    new = batch_of("n-", nearly(rng, known), [None] * 50)
    left, whole, near = store.both(new, None)
    (path,) = (tmp_path / "arrow").glob("leaks-*.arrow")
    path.write_bytes(path.read_bytes()[:1000])
    assert found(*store.both(new, None)[::2]) == found(left, near) == found(left, whole)
    path.unlink()
    assert found(*store.both(new, None)[::2]) == found(left, whole)


def test_grids_grow_with_the_spreads_of_new_rows(tmp_path: Path) -> None:
    """Near by spreads ten times as large: in the cells of the first rows these are far apart."""
    rng = np.random.default_rng(6)
    store = Rows(tmp_path)
    close = {f"inputs.x{at}": rng.normal(size=40) for at in range(3)}
    wide = {name: rng.normal(size=40) * 100 for name in close}
    store.add(batch_of("a-", close, [None] * 40), ["train"] * 40)
    first = batch_of("n-", nearly(rng, close), [None] * 40)
    left, whole, near = store.both(first, None)
    assert found(left, near) == found(left, whole)
    store.add(batch_of("b-", wide, [None] * 40), ["train"] * 40)
    apart = {name: values + 0.2 for name, values in close.items()}
    left, whole, near = store.both(batch_of("m-", apart, [None] * 40), None)
    assert found(left, whole)["values"][0] == list(range(40))
    assert found(left, near)["values"][0] == list(range(40))


def test_a_large_object_is_indexed_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak_index, "SHARD_ROWS", 16)
    test_new_rows_settle_as_beside_all_rows(tmp_path)
