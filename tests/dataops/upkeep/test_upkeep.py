"""Packing and collection: whatever is killed where, every version reads as it was committed."""

import gzip
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.data_docs import page
from outrider.dataops.datasets.scan import scan
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.improvement import jobs
from outrider.dataops.loaders.arrow_cache import unused
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.dataops.upkeep.compaction import FEW, Compaction, compact, crowded
from outrider.dataops.upkeep.garbage import CollectedGarbage, collect_garbage
from outrider.monitor.trainer.compaction import Compactor
from tests.running_jobs import begun

Truth = list[tuple[str, list[object], pa.Table]]
"""Digest, lives and rows of each version."""


def commit(
    engine: Engine,
    objects: LocalObjects,
    ids: list[str],
    *,
    name: str = "d",
    label: int = 0,
    append: bool = True,
) -> None:
    columns = {
        "id": ids,
        "ts": np.full(len(ids), np.datetime64("2026-01-05", "us")),
        "inputs.x": np.array([float(key[1:]) for key in ids]),
        "inputs.text": [f"text {key}" for key in ids],
        "label.label": np.full(len(ids), label),
    }
    origin = [Provenance(key, part="held_out" if int(key[1:]) % 3 == 0 else "train") for key in ids]
    batch = Batch.from_columns(columns, model="m")
    for _ in range(100):
        with engine.connect() as connection:
            draft = changes.prepare(
                connection, objects, dataset=name, batch=batch, provenance=origin, append=append
            )
        try:
            with write(engine) as connection:
                changes.commit(connection, draft, validation={}, now_us=1)
            return
        except StaleParent:
            continue
    raise AssertionError("no commit landed")


def appended(engine: Engine, objects: LocalObjects, versions: int, *, first: int = 0, rows: int = 5) -> None:
    for number in range(first, first + versions):
        commit(engine, objects, [f"r{row}" for row in range(number * rows, (number + 1) * rows)])


def truth(engine: Engine, objects: LocalObjects, name: str = "d") -> Truth:
    found: Truth = []
    with engine.connect() as connection:
        for number in range(1, datasets.get(connection, name).number + 1):
            version = datasets.get(connection, name, number)
            lives: list[object] = [*datasets.lives(connection, version)]
            found.append((version.digest, lives, datasets.read_table(connection, objects, version)))
            for part in ("train", "held_out"):
                rows = datasets.read_table(connection, objects, version, part=part)
                batches = list(scan(connection, objects, version, part=part))
                assert pa.Table.from_batches(batches, rows.schema).equals(rows)
    return found


def same(one: Truth, other: Truth) -> bool:
    return len(one) == len(other) and all(
        (a[:2] == b[:2]) and a[2].equals(b[2]) for a, b in zip(one, other, strict=True)
    )


def age(objects: LocalObjects, seconds: float = 90_000) -> None:
    for path in [*objects.folder.glob("??/*"), *objects.folder.glob(".part-*")]:
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.costly("hundreds of versions are committed and packed")
def test_many_files_become_one_object_and_versions_stay(engine: Engine, objects: LocalObjects) -> None:
    appended(engine, objects, 40)
    commit(engine, objects, ["r3", "r77"], label=5)
    before = truth(engine, objects)
    found = compact(engine, objects, "d")
    assert (found.before, found.after, found.packed_rows) == (40, 1, 200)
    assert same(truth(engine, objects), before)
    with engine.connect() as connection:
        first = datasets.get(connection, "d", 1)
        assert [row["id"] for row in datasets.some_rows(connection, objects, first, limit=3)] == [
            "r0",
            "r3",
            "r1",
        ]
        fields = datasets.some_rows(connection, objects, datasets.get(connection, "d"), limit=2)
    assert fields[0]["id"] in {"r195", "r198"}
    assert compact(engine, objects, "d") == Compaction("d", 1, 1, 0, 0)
    appended(engine, objects, 3, first=40)
    before = truth(engine, objects)
    assert compact(engine, objects, "d").after == 1, "a small pack is packed again"
    assert same(truth(engine, objects), before)


def test_files_of_other_columns_are_packed_apart(engine: Engine, objects: LocalObjects) -> None:
    appended(engine, objects, 3)
    for number in range(3):
        ids = [f"r{100 + number}"]
        columns = {"id": ids, "inputs.x": [1.5], "inputs.more": [number], "label.label": [1]}
        with write(engine) as connection:
            draft = changes.prepare(
                connection,
                objects,
                dataset="d",
                batch=Batch.from_columns(columns, model="m"),
                provenance=[Provenance(ids[0])],
                append=True,
            )
            changes.commit(connection, draft, validation={}, now_us=1)
    before = truth(engine, objects)
    assert compact(engine, objects, "d").after == 2
    assert same(truth(engine, objects), before)


def test_the_rows_of_a_pack_lie_part_by_part(engine: Engine, objects: LocalObjects) -> None:
    appended(engine, objects, 10)
    compact(engine, objects, "d")
    with engine.connect() as connection:
        (stored,) = datasets.stored_rows(connection, datasets.get(connection, "d"), part="held_out")
        assert (len(stored.runs), sum(run.rows for run in stored.runs)) == (10, 17)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(objects.mapped(stored.sha256))))
    assert [file.metadata.row_group(at).num_rows for at in range(2)] == [17, 33]


def killed_at(step: str, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def reached(name: str) -> None:
        left[0] -= name == step
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def in_child(work: Callable[[], object]) -> int:
    """Exit of a process that does some work: minus the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child never returns into the test
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("step", ["pack noted", "pack stored", "old objects touched", "files pointed"])
def test_a_killed_packing_leaves_the_old_state_or_the_new(
    engine: Engine, objects: LocalObjects, tmp_path: Path, step: str
) -> None:
    appended(engine, objects, 8)
    before = truth(engine, objects)
    engine.dispose()  # a connection is of one process

    def work() -> None:
        own = open_database(f"sqlite:///{tmp_path / 'state.db'}")
        compact(own, LocalObjects(objects.folder), "d", reached=killed_at(step))

    assert in_child(work) == -signal.SIGKILL
    assert same(truth(engine, objects), before)
    compact(engine, objects, "another")
    named = {path.name for path in objects.folder.glob("??/*")}
    assert len(named) == (9 if step == "files pointed" else 8), "an unfinished pack goes"
    assert same(truth(engine, objects), before)
    age(objects)
    collect_garbage(engine, objects)
    assert same(truth(engine, objects), before)
    appended(engine, objects, 2, first=8)
    before = truth(engine, objects)
    assert compact(engine, objects, "d").after == 1
    assert same(truth(engine, objects), before)


@pytest.mark.parametrize(("step", "times"), [("names read", 1), ("object deleted", 1), ("object deleted", 3)])
def test_a_killed_collection_loses_nothing(
    engine: Engine, objects: LocalObjects, tmp_path: Path, step: str, times: int
) -> None:
    appended(engine, objects, 6)
    compact(engine, objects, "d")
    before = truth(engine, objects)
    age(objects)
    engine.dispose()

    def work() -> None:
        own = open_database(f"sqlite:///{tmp_path / 'state.db'}")
        collect_garbage(own, LocalObjects(objects.folder), reached=killed_at(step, times))

    assert in_child(work) == -signal.SIGKILL
    assert same(truth(engine, objects), before)
    collect_garbage(engine, objects)
    assert len(list(objects.folder.glob("??/*"))) == 1
    assert same(truth(engine, objects), before)


def test_commits_packings_and_collections_at_once_all_land(
    engine: Engine, objects: LocalObjects, tmp_path: Path
) -> None:
    """Two appenders, two packers and a collector, in processes of their own, whatever is in whose way."""
    appended(engine, objects, 4)
    engine.dispose()
    url, stop = f"sqlite:///{tmp_path / 'state.db'}", tmp_path / "stop"

    def child(work: Callable[[Engine, LocalObjects], None]) -> int:
        made = os.fork()
        if not made:
            code = 1
            try:
                work(open_database(url), LocalObjects(objects.folder))
                code = 0
            finally:
                os._exit(code)
        return made

    def pack(own: Engine, store: LocalObjects) -> None:
        while not stop.exists():
            compact(own, store, "d")

    def collect(own: Engine, store: LocalObjects) -> None:
        while not stop.exists():
            collect_garbage(own, store, older_than_s=5.0)

    def append(first: int) -> Callable[[Engine, LocalObjects], None]:
        return lambda own, store: appended(own, store, 8, first=first)

    appenders = [child(append(first)) for first in (100, 200)]
    others = [child(work) for work in (pack, pack, collect)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in appenders]
    stop.touch()
    codes += [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in others]
    assert codes == [0] * 5
    found = truth(engine, objects)
    assert [table.num_rows for _, _, table in found] == [5 * number for number in range(1, 21)]
    ids = set(found[-1][2].column("id").to_pylist())
    rows = [*range(4), *range(100, 108), *range(200, 208)]
    assert ids == {f"r{row}" for number in rows for row in range(number * 5, number * 5 + 5)}


def test_an_erasure_or_another_packing_in_between_is_left_as_it_is(
    engine: Engine, objects: LocalObjects
) -> None:
    appended(engine, objects, 4)
    with engine.connect() as connection:
        old = datasets.stored_rows(connection, datasets.get(connection, "d"))[0].sha256
    digest = objects.put(b"what an erasure wrote instead")

    def meanwhile(step: str) -> None:
        if step == "pack stored":
            with write(engine) as connection:
                change = text("UPDATE dataset_file SET sha256 = :new WHERE sha256 = :old")
                connection.execute(change, {"new": digest, "old": old})

    found = compact(engine, objects, "d", reached=meanwhile)
    assert (found.packed_rows, found.after) == (0, 4)
    assert len(list(objects.folder.glob("??/*"))) == 5, "the pack that nothing names is gone"


def collected(
    engine: Engine, objects: LocalObjects, cache: Path, *, is_dry: bool = False
) -> CollectedGarbage:
    caches = unused(cache, older_than_s=7 * 86_400.0)
    return collect_garbage(engine, objects, caches=caches, is_dry=is_dry)


def test_only_old_unnamed_files_of_datasets_are_collected(
    engine: Engine, objects: LocalObjects, tmp_path: Path
) -> None:
    appended(engine, objects, 3)
    cache = tmp_path / "arrow"
    cache.mkdir()
    (cache / "version.arrow").write_bytes(b"rows")
    table = pa.table({"id": ["a"]}).replace_schema_metadata({"outrider.model": "m"})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    draft = objects.put(sink.getvalue().to_pybytes())
    docs = objects.put(gzip.compress(page("<p>x</p>", "d@1").encode(), mtime=0))
    sent, open_table = objects.put(b"a table of a closed job"), objects.put(b"a table of an open job")
    others = [
        objects.put(content) for content in (b"weights", b"", gzip.compress(b"payload", mtime=0), b"PAR1")
    ]
    (objects.folder / ".part-abc").write_bytes(b"half")
    with write(engine) as connection:
        for digest in (sent, open_table):
            job = jobs.add(connection, model="m", kind="dataset", params={"object": digest}, now_us=1)
            if digest == sent:
                jobs.finish(connection, begun(connection, job), "done", {}, now_us=2)
    before = truth(engine, objects)
    assert collected(engine, objects, cache).files == (), "all of it is new"
    age(objects)
    objects.touch(draft)  # a commit is about to name it
    os.utime(cache / "version.arrow", (time.time() - 8 * 86_400,) * 2)
    dry = collected(engine, objects, cache, is_dry=True)
    kinds = {"broken writes": 1, "caches": 1, "data docs": 1, "sent tables": 1}
    assert {kind: found["files"] for kind, found in dry.by_kind().items()} == kinds
    assert {docs, sent} <= {path.name for path in objects.folder.glob("??/*")}
    found = collected(engine, objects, cache)
    assert found == dry
    assert found.bytes == sum(one.bytes for one in found.files) > 0
    left = {path.name for path in objects.folder.glob("??/*")}
    assert {draft, open_table, *others} <= left
    assert not {docs, sent} & left
    assert same(truth(engine, objects), before)
    age(objects)
    assert [one.kind for one in collected(engine, objects, cache).files] == ["row files"]
    assert draft not in {path.name for path in objects.folder.glob("??/*")}


def test_an_object_put_again_is_young_again(objects: LocalObjects) -> None:
    digest = objects.put(b"content")
    age(objects)
    assert objects.put(b"content") == digest
    assert not objects.remove_old(digest, older_than_s=3600)
    age(objects)
    assert objects.remove_old(digest, older_than_s=3600)
    assert not objects.touch(digest)
    assert not objects.has(objects.put(b"content")) or objects.get(digest) == b"content"


def test_the_trainer_packs_a_dataset_of_many_small_files_once(engine: Engine, objects: LocalObjects) -> None:
    compactor = Compactor(engine, objects)
    appended(engine, objects, FEW, rows=1)
    compactor.look()
    with engine.connect() as connection:
        assert crowded(connection) == {}
        assert len(datasets.stored_rows(connection, datasets.get(connection, "d"))) == FEW
    appended(engine, objects, 1, first=FEW, rows=1)
    with engine.connect() as connection:
        assert crowded(connection) == {"d": FEW + 1}
    compactor.look()
    with engine.connect() as connection:
        assert len(datasets.stored_rows(connection, datasets.get(connection, "d"))) == 1


@pytest.mark.costly("hundreds of versions are committed and packed")
def test_a_damaged_file_stops_no_trainer(
    engine: Engine, objects: LocalObjects, caplog: pytest.LogCaptureFixture
) -> None:
    appended(engine, objects, FEW + 1, rows=1)
    with engine.connect() as connection:
        stored = datasets.stored_rows(connection, datasets.get(connection, "d"))
    path = objects.path(stored[5].sha256)
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    compactor = Compactor(engine, LocalObjects(objects.folder))
    compactor.look()
    assert "d is not packed: object" in caplog.text
    path.write_bytes(whole)
    assert len(truth(engine, objects)) == FEW + 1


def test_rows_are_read_on_while_their_objects_are_packed_and_collected(
    engine: Engine, objects: LocalObjects, tmp_path: Path
) -> None:
    appended(engine, objects, 6)
    with engine.connect() as connection:
        rows = scan(connection, objects, datasets.get(connection, "d"))
    age(objects)
    compact(engine, objects, "d")
    collect_garbage(engine, objects)
    assert sum(batch.num_rows for batch in rows) == 30
