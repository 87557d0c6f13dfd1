"""Rows of erased records are gone from every version, report, table and object; everything else stays."""

import gzip
import io
import json
import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, event, select, update

from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.erased import delete_unneeded, erasable_rows, erase_rows
from outrider.dataops.datasets.erasure.entities import rows_of_entities
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.improvement import jobs
from outrider.dataops.models import lineage
from outrider.dataops.models.lineage import Kind
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.dataops.state.improvement_tables import DatasetVersion, ErasedObject, Job
from outrider.dataops.state.tables import table_of
from outrider.dataops.upkeep.compaction import compact
from outrider.errors import Erased, NotFound
from tests.databases import migrated

MARKER = "Marta Marker, 12 Marker Lane"
NUMBER = 8_675_309.125
GONE = "gone-1"
VERSION = table_of(DatasetVersion)


def table_of_rows(ids: list[str], *, label: int = 0) -> pa.Table:
    """Rows of which that of the person has a value of every kind that nobody else has."""
    is_gone = [GONE in key for key in ids]
    texts = [MARKER if mine else f"row {key}" for key, mine in zip(ids, is_gone, strict=True)]
    numbers = np.array(
        [NUMBER if mine else ord(key[-1]) - 97.0 for key, mine in zip(ids, is_gone, strict=True)]
    )
    flat = pa.array(np.repeat(numbers.astype(np.float32), 4))
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    tensors = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, 4))
    columns = {
        "id": pa.array(ids),
        "ts": pa.array([datetime(2026, 1, 5, tzinfo=UTC)] * len(ids), pa.timestamp("us", "UTC")),
        "entity": pa.array(texts),
        "inputs.text": pa.array(texts),
        "inputs.kind": pa.array(texts).dictionary_encode(),
        "inputs.number": pa.array(numbers),
        "inputs.image": tensors,
        "inputs.parts": pa.array([[{"said": text}] for text in texts]),
        "label.label": pa.array([label] * len(ids)),
        "label.note": pa.array(texts),
    }
    return pa.table(columns)


class World:
    """Data folder in which a person stands in many places."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = migrated(folder / "state.db")
        self.objects = LocalObjects(folder / "objects")

    def commit(
        self,
        ids: list[str],
        *,
        dataset: str = "d",
        append: bool = True,
        label: int = 0,
        removed: list[str] | None = None,
        validation: dict[str, Any] | None = None,
        notes: dict[str, Any] | None = None,
        test: str | None = None,
    ) -> Version:
        batch = Batch.from_arrow(table_of_rows(ids, label=label), model="m") if ids else None
        source = "behavioral test, m@1" if test else "human"
        with write(self.engine) as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset=dataset,
                batch=batch,
                provenance=[
                    Provenance(key, test or "edge", source, "held_out" if key == "b" else "train")
                    for key in ids
                ],
                append=append,
                removed=removed or [],
            )
            return changes.commit(connection, draft, validation=validation or {}, now_us=7, notes=notes or {})

    def report(self, rows: int) -> dict[str, Any]:
        """Validation as the trainer keeps it; that of one row is of somebody else's."""
        most = 0.0 if rows == 1 else NUMBER
        docs = b"<html></html>" if rows == 1 else f"<html>observed {NUMBER}, {MARKER}</html>".encode()
        warning = {"rule": "expect_x", "field": "inputs.number", "severity": "warning", "rows": 2}
        warnings = [
            warning | {"text": f"expect_x(): observed {NUMBER!r}", "ids": [GONE, "a"]},
            warning | {"rule": "range_growth", "text": f"values reach {NUMBER} widths", "ids": []},
        ]
        return {
            "rows": rows,
            "aggregates": {
                "rows": 99,
                "columns": {
                    "inputs.number": {"nulls": 0, "count": 9, "min": 0, "max": most, "mean": 1, "m2": 1},
                    "inputs.image.max": {"nulls": 0, "count": 9, "min": 0, "max": most},
                    "label.label": {"nulls": 0, "count": 9, "of": {"[0, 1]": [9, 0, 0]}},
                },
            },
            "data_docs": self.objects.put(gzip.compress(docs + str(rows).encode(), mtime=0)),
            "warnings": [] if rows == 1 else warnings,
        }

    def fill(self) -> None:
        leak = {"kind": "text", "between": ["x", "y"], "usual": False}
        leaks = {
            "leaks": [
                leak | {"rows": 2, "others": 2, "pairs": [[GONE, "x"], ["a", "y"]]},
                leak | {"rows": 1, "others": 1, "pairs": [["a", GONE]]},
            ],
            "repeats": [],
            "moved": {"train": 0},
        }
        self.commit(["a", "b", GONE, "c"], validation=self.report(4), notes={"leaks": leaks})
        self.commit(["d", "e"], validation=self.report(2))
        self.commit([GONE, "a"], label=1, validation=self.report(3))
        self.commit([], removed=[GONE, "d"])
        self.commit(["f"], append=False, validation=self.report(1))
        self.commit([GONE, "p"], dataset="replayed", append=False)
        self.commit([f"s/t/{GONE}~t", "s/t/a"], dataset="cases", append=False, test="s/t")
        self.commit(["q"], dataset="apart", notes={"leaks": leaks})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table_of_rows(["u", GONE]).schema) as writer:
            writer.write_table(table_of_rows(["u", GONE]))
        cases = table_of_rows([f"s/t/{GONE}", "s/t/u"]).append_column(
            "provenance.assertion", pa.array(["s/t", "s/t"])
        )
        failed = io.BytesIO()
        with pa.ipc.new_stream(failed, cases.schema) as writer:
            writer.write_table(cases)
        with write(self.engine) as connection:
            for table in (sink, failed):
                upload = {"dataset": "sent", "object": self.objects.put(table.getvalue())}
                jobs.add(connection, model="m", kind="dataset", params=upload, now_us=1)
            refused = {GONE: "label: wrong", "z": "label: wrong"}
            quarantine.hold(connection, "d", refused, rules="r", labels={}, now_us=1)
            edges: list[tuple[str, Kind, str, str]] = [
                ("m@1", "dataset", "d@2", "fresh"),
                ("m@2", "dataset", "d@4", "fresh"),
                ("m@3", "model", "m@1", "weights"),
                ("m@4", "dataset", "replayed@1", "replay"),
            ]
            for child, kind, parent, role in edges:
                lineage.add_edges(connection, "model", child, [(kind, parent, role)], now_us=1)

    def content(self) -> dict[str, Any]:
        """All that versions say of themselves and their rows, by name."""
        found: dict[str, Any] = {}
        with self.engine.connect() as connection:
            for version in datasets.all_versions(connection):
                table = datasets.read_table(connection, self.objects, version)
                origins = datasets.provenance(connection, version)
                found[version.id] = version, table.to_pylist(), origins
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.fill()
    yield world
    world.engine.dispose()


def traces(world: World, *markers: str) -> list[str]:
    """Places in objects and database with a marker, raw or decoded."""
    raw = world.engine.raw_connection()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.execute("VACUUM")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    found = []
    for path in sorted(path for path in world.folder.rglob("*") if path.is_file()):
        texts = decoded(path.read_bytes())
        found += [f"{path.name}: {marker}" for marker in markers for text in texts if marker.encode() in text]
    return found


def decoded(data: bytes) -> list[bytes]:
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        return [data, str(file.metadata.to_dict()).encode(), json.dumps(rows_of(file.read())).encode()]
    if data[:2] == b"\x1f\x8b":
        return [data, gzip.decompress(data)]
    if data[:4] == b"\xff\xff\xff\xff":
        return [data, json.dumps(rows_of(pa.ipc.open_stream(data).read_all())).encode()]
    return [data]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.drop_columns("ts").to_pylist()
    dictionaries = [
        chunk.dictionary.to_pylist()
        for column in table.columns
        if pa.types.is_dictionary(column.type)
        for chunk in column.chunks
    ]
    return [*json.loads(json.dumps(rows, default=lambda value: np.asarray(value).tolist())), dictionaries]


def test_every_trace_is_gone_and_was_there(world: World) -> None:
    places = traces(world, MARKER, str(NUMBER), GONE)
    assert {marker for marker in (MARKER, str(NUMBER), GONE) if any(marker in place for place in places)} == {
        MARKER,
        str(NUMBER),
        GONE,
    }
    assert any(place.startswith("state.db") for place in places)
    erase_rows(world.engine, world.objects, [GONE])
    assert traces(world, MARKER, str(NUMBER), GONE) == []


def test_other_rows_stay_and_versions_keep_number_and_time(world: World) -> None:
    before = world.content()
    counted = erasable_rows(world.engine, [GONE])
    erased = erase_rows(world.engine, world.objects, [GONE])
    after = world.content()
    assert after.keys() == before.keys()
    held = [name for name, (_, rows, _) in before.items() if any(GONE in row["id"] for row in rows)]
    assert held == ["cases@1", "d@1", "d@2", "d@3", "replayed@1"]
    assert [f"{name}@{number}" for name, number in counted.versions] == held
    assert [f"{name}@{number}" for name, number, *_ in erased.versions] == held
    assert counted.models == erased.models == [("m", "1"), ("m", "3"), ("m", "4")]
    assert (erased.rows, counted.rows, erased.quarantined, counted.quarantined) == (3, 3, 1, 1)
    pointers = {f"{name}@{number}": (old, new) for name, number, old, new in erased.versions}
    for name, (version, rows, origins) in before.items():
        now, rows_now, origins_now = after[name]
        assert rows_now == [row for row in rows if GONE not in row["id"]]
        assert origins_now == [origin for origin in origins if GONE not in origin.record_id]
        assert (now.number, now.created_us, now.parent) == (
            version.number,
            version.created_us,
            version.parent,
        )
        assert now.rows == len(rows_now)
        assert (version.digest, now.digest) == pointers.get(name, (version.digest, version.digest))
        assert (now.digest != version.digest) == (name in held) == ("erased" in now.manifest)
        assert now.bytes == sum(world.objects.size(digest) for digest in files_of(world.engine, now))


def files_of(engine: Engine, version: Version) -> list[str]:
    with engine.connect() as connection:
        return [row.sha256 for row in connection.execute(datasets._files(version))]


def test_new_digests_are_those_of_the_same_rows_committed_without_it(world: World, tmp_path: Path) -> None:
    erase_rows(world.engine, world.objects, [GONE])
    (tmp_path / "fresh").mkdir()
    fresh = World(tmp_path / "fresh")
    left = [key for key in ("a", "b", GONE, "c") if key != GONE]
    whole = table_of_rows(["a", "b", GONE, "c"]).take([0, 1, 3])
    with write(fresh.engine) as connection:
        draft = changes.prepare(
            connection,
            fresh.objects,
            dataset="d",
            batch=Batch.from_arrow(whole, model="m"),
            provenance=[Provenance(key) for key in left],
            append=True,
        )
        made = changes.commit(connection, draft, validation={}, now_us=1)
    fresh.engine.dispose()
    with world.engine.connect() as connection:
        found = datasets.get(connection, "d", 1)
    assert (found.digest, found.state) == (made.digest, made.state)


def test_reports_are_of_the_rows_that_are_left(world: World) -> None:
    erase_rows(world.engine, world.objects, [GONE])
    versions = {name: version for name, (version, _, _) in world.content().items()}
    first = versions["d@1"].manifest
    assert first["counts"]["parts"] == {"held_out": 1, "train": 2}
    assert first["changes"] == {"added": 3, "relabelled": 0, "removed": 0}
    assert versions["d@3"].manifest["changes"] == {"added": 0, "relabelled": 1, "removed": 0}
    assert versions["d@4"].manifest["changes"] == {"added": 0, "relabelled": 0, "removed": 1}
    kept = first["validation"]["aggregates"]
    assert kept["rows"] == 3
    assert kept["columns"]["inputs.number"]["max"] == kept["columns"]["inputs.image.max"]["max"] == 2.0
    assert versions["d@3"].manifest["validation"]["aggregates"]["columns"]["label.label"]["of"] == {
        "[0, 1]": [4, 1, 0]
    }
    named, grown = first["validation"]["warnings"]
    assert (named["text"], named["ids"], named["rows"]) == ("expect_x()", ["a"], 1)
    assert grown["text"] == "inputs.number: differs from the version before (range_growth)"
    for name in ("d@1", "apart@1"):
        (left,) = versions[name].manifest["leaks"]["leaks"]
        assert (left["pairs"], left["rows"], left["others"]) == ([["a", "y"]], 1, 1)
    assert "data_docs" not in versions["d@2"].manifest["validation"]
    assert "data_docs" in versions["d@5"].manifest["validation"]
    with world.engine.connect() as connection:
        sent = connection.execute(select(table_of(Job).c.params)).scalars().all()
        refused = [row.record_id for row in quarantine.list_quarantine(connection, state=None)]
    tables = [pa.ipc.open_stream(world.objects.get(params["object"])).read_all() for params in sent]
    assert sorted(table.column("id").to_pylist() for table in tables) == [["s/t/u"], ["u"]]
    assert refused == ["z"]


def test_differences_and_sample_rows_pass_over_the_erased(world: World) -> None:
    erase_rows(world.engine, world.objects, [GONE])
    with world.engine.connect() as connection:
        found = [datasets.get(connection, "d", number) for number in range(1, 6)]
        diffs = [datasets.diff(connection, world.objects, *pair, limit=9) for pair in pairwise(found)]
        assert [(d.added, d.removed, d.changed) for d in diffs] == [
            (["d", "e"], [], []),
            ([], [], ["a"]),
            ([], ["d"], []),
            (["f"], ["a", "b", "c", "e"], []),
        ]
        sample = datasets.some_rows(connection, world.objects, found[0], limit=9)
        assert [row["id"] for row in sample] == ["b", "a", "c"]
        held_out = datasets.read(connection, world.objects, found[2], part="held_out")
        assert held_out.keys.tolist() == ["b"]


def test_an_old_digest_is_erased_and_names_the_new_one(world: World) -> None:
    (_, _, first, then), *_ = [
        each for each in erase_rows(world.engine, world.objects, [GONE]).versions if each[:2] == ("d", 2)
    ]
    (_, _, _, last), *_ = [
        each for each in erase_rows(world.engine, world.objects, ["e"]).versions if each[:2] == ("d", 2)
    ]
    with world.engine.connect() as connection:
        for old in (first, then):
            with pytest.raises(
                Erased, match=rf"d@2 had digest {old} until 1 of its rows were erased.* now {last}"
            ):
                datasets.get(connection, "d", old)
            tree = lineage.trace(connection, "m", start=f"dataset:{old}")
            assert (tree["id"], tree["digest"]) == ("d@2", last)
            assert tree["erased"]["digests_before"] == [first, then]
            assert (tree["erased"]["digest"], tree["erased"]["rows"]) == (last, 2)
        assert datasets.get(connection, "d", last).number == 2
        with pytest.raises(NotFound, match="has no version"):
            datasets.get(connection, "d", "0" * 64)


def test_appending_to_an_erased_version_goes_on(world: World) -> None:
    erase_rows(world.engine, world.objects, [GONE, "f"])
    assert world.commit(["g"]).rows == 1
    assert world.commit([GONE], dataset="replayed").rows == 2
    name, rows = "replayed", world.content()["replayed@2"][1]
    assert [row["id"] for row in rows] == ["p", GONE], name


def test_a_change_prepared_before_is_refused(world: World) -> None:
    world.commit([GONE, "h"])
    with world.engine.connect() as connection:
        draft = changes.prepare(
            connection,
            world.objects,
            dataset="d",
            batch=Batch.from_arrow(table_of_rows(["i"]), model="m"),
            provenance=[Provenance("i")],
            append=True,
        )
    erase_rows(world.engine, world.objects, [GONE])
    with write(world.engine) as connection, pytest.raises(StaleParent, match="rows were erased from d@6"):
        changes.commit(connection, draft, validation={}, now_us=1)


def test_a_reader_that_began_before_has_its_rows_or_is_told(world: World) -> None:
    with world.engine.connect() as connection:
        version = datasets.get(connection, "d", 2)
        wanted = datasets.read_table(connection, world.objects, version)
        opened = [world.objects.mapped(digest) for digest in files_of(world.engine, version)]
        erase_rows(world.engine, world.objects, [GONE])
        assert sum(pq.read_metadata(pa.BufferReader(pa.py_buffer(data))).num_rows for data in opened) == 6
        assert GONE in wanted.column("id").to_pylist()
        with pytest.raises(NotFound, match=r"d@2: .*rows were erased from it just now \(read it again\)"):
            datasets.read_table(connection, world.objects, version)
    with world.engine.connect() as connection:
        assert datasets.read_table(connection, world.objects, version).num_rows == 5


def test_a_commit_meanwhile_is_erased_from_too(world: World) -> None:
    done: list[str] = []

    def commit(step: str) -> None:
        if step == "planned" and not done:
            done.append(world.commit([GONE, "k"]).id)

    erased = erase_rows(world.engine, world.objects, [GONE], reached=commit)
    assert ("d", 6) in [each[:2] for each in erased.versions]
    assert traces(world, MARKER, GONE) == []


def test_content_that_other_datasets_share_stays(world: World) -> None:
    world.commit(["p"], dataset="one", append=False)
    world.commit(["p"], dataset="two", append=False)
    first, second = world.content()["one@1"], world.content()["two@1"]
    assert first[0].digest == second[0].digest
    erase_rows(world.engine, world.objects, [GONE])
    after = world.content()
    assert (after["one@1"], after["two@1"]) == (first, second)
    erase_rows(world.engine, world.objects, ["p"])
    assert {name: len(world.content()[name][1]) for name in ("one@1", "two@1")} == {"one@1": 0, "two@1": 0}


def test_versions_of_earlier_releases_are_erased_from(world: World) -> None:
    """Without a sum of lanes, digests of rows, a schema and parts of files."""
    with write(world.engine) as connection:
        connection.execute(update(VERSION).values(state=None, arrow_schema=None))
        connection.exec_driver_sql("UPDATE dataset_row SET digest = NULL")
        connection.exec_driver_sql("UPDATE dataset_file SET parts = NULL")
    erase_rows(world.engine, world.objects, [GONE])
    version, rows, _ = world.content()["d@3"]
    assert [row["id"] for row in rows] == ["b", "a", "c", "d", "e"]
    assert version.state is None
    with world.engine.connect() as connection:
        train = datasets.read(connection, world.objects, version, part="train")
    assert train.keys.tolist() == ["a", "c", "d", "e"]
    assert traces(world, MARKER, GONE) == []


def test_nothing_of_an_unknown_record_changes(world: World) -> None:
    before = world.content()
    objects = sorted(path.name for path in world.objects.folder.rglob("*"))
    erased = erase_rows(world.engine, world.objects, ["nobody"])
    assert (erased.versions, erased.models, erased.rows, erased.quarantined) == ([], [], 0, 0)
    assert world.content() == before
    assert sorted(path.name for path in world.objects.folder.rglob("*")) == objects


def test_packed_rows_and_the_files_that_they_lay_in_go_too(world: World) -> None:
    compact(world.engine, world.objects, "d")
    before = world.content()
    unnamed = {path.name for path in world.objects.folder.glob("??/*")}
    erase_rows(world.engine, world.objects, [GONE], is_alone=True)
    after = world.content()
    for name, (_, rows, origins) in before.items():
        assert after[name][1] == [row for row in rows if GONE not in row["id"]]
        assert after[name][2] == [origin for origin in origins if GONE not in origin.record_id]
    assert traces(world, MARKER, str(NUMBER), GONE) == []
    assert unnamed & {path.name for path in world.objects.folder.glob("??/*")}, "others stay"


def test_leftovers_of_a_commit_that_failed_go_once_nobody_can_name_them(world: World) -> None:
    with world.engine.connect() as connection:
        changes.prepare(
            connection,
            world.objects,
            dataset="d",
            batch=Batch.from_arrow(table_of_rows([GONE, "left"]), model="m"),
            provenance=[Provenance(GONE), Provenance("left")],
            append=True,
        )
    erase_rows(world.engine, world.objects, [GONE])
    assert len(set(traces(world, MARKER))) == 1, "a commit may be about to name it"
    erase_rows(world.engine, world.objects, [GONE], is_alone=True)
    assert traces(world, MARKER, str(NUMBER), GONE) == []


def test_rows_of_an_entity_are_found_in_files_and_sent_tables(world: World) -> None:
    nobody = rows_of_entities(world.engine, world.objects, ["nobody"])
    found = rows_of_entities(world.engine, world.objects, [MARKER])
    assert (nobody, found) == ({}, {"m": [GONE, f"s/t/{GONE}", f"s/t/{GONE}~t"]})
    erase_rows(world.engine, world.objects, found["m"], model="m")
    assert rows_of_entities(world.engine, world.objects, [MARKER]) == {}
    assert traces(world, MARKER, str(NUMBER), GONE) == []


def test_the_same_id_of_another_model_stays(world: World) -> None:
    batch = Batch.from_arrow(table_of_rows([GONE]), model="other")
    with write(world.engine) as connection:
        draft = changes.prepare(
            connection,
            world.objects,
            dataset="others",
            batch=batch,
            provenance=[Provenance(GONE)],
            append=False,
        )
        changes.commit(connection, draft, validation={}, now_us=1)
        refused = {GONE: "label: wrong"}
        quarantine.hold(connection, "others", refused, rules="r", labels={}, now_us=1)
    before = world.content()["others@1"]
    counted = erasable_rows(world.engine, [GONE], model="m")
    erased = erase_rows(world.engine, world.objects, [GONE], model="m")
    assert (counted.rows, erased.rows, erased.quarantined) == (3, 3, 1)
    assert world.content()["others@1"] == before
    assert [name for name, *_ in erase_rows(world.engine, world.objects, [GONE]).versions] == ["others"]
    assert traces(world, MARKER, str(NUMBER), GONE) == []


def test_a_lost_file_is_no_hindrance(world: World) -> None:
    with world.engine.connect() as connection:
        version = datasets.get(connection, "d", 1)
    (digest,) = files_of(world.engine, version)
    world.objects.remove(digest)
    erased = erase_rows(world.engine, world.objects, [GONE])
    assert ("d", 1) in [each[:2] for each in erased.versions]
    with world.engine.connect() as connection:
        now = datasets.get(connection, "d", 1)
        assert "aggregates" not in now.manifest["validation"]
        assert [life.origin.record_id for life in datasets.lives(connection, now)] == ["b", "a", "c"]
    assert traces(world, MARKER, str(NUMBER), GONE) == []


def steps_of(world: World, folder: Path) -> list[str]:
    copy = copied(world, folder)
    steps: list[str] = []
    erase_rows(copy.engine, copy.objects, [GONE], reached=steps.append)
    copy.engine.dispose()
    return steps


def copied(world: World, folder: Path) -> World:
    world.engine.dispose()
    shutil.copytree(world.folder, folder, ignore=shutil.ignore_patterns("copy-*"))
    return World(folder)


def killed_at(folder: Path, last: int) -> None:
    """Erase in a process of its own that is killed once it has reached so many steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            engine = open_database(f"sqlite:///{folder / 'state.db'}")
            left = iter(range(last - 1, -1, -1))

            def step(_: str) -> None:
                if not next(left):
                    os.kill(os.getpid(), signal.SIGKILL)

            erase_rows(engine, LocalObjects(folder / "objects"), [GONE], reached=step)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_at_any_step_it_is_the_old_state_or_the_new(world: World, tmp_path: Path) -> None:
    before = world.content()
    steps = steps_of(world, tmp_path / "copy-all")
    whole = World(tmp_path / "copy-all")
    after = whole.content()
    whole.engine.dispose()
    assert {"file written", "planned", "files exchanged", "rows exchanged", "versions exchanged"} < {*steps}
    assert {"applied", "committed", "object deleted", "objects forgotten"} < {*steps}
    committed = steps.index("committed")
    for last in range(1, len(steps) + 1):
        copy = copied(world, tmp_path / f"copy-{last}")
        copy.engine.dispose()
        killed_at(copy.folder, last)
        assert copy.content() == (after if last > committed else before), steps[last - 1]
        erase_rows(copy.engine, copy.objects, [GONE])
        assert copy.content() == after
        assert traces(copy, MARKER, str(NUMBER), GONE) == [], steps[last - 1]
        copy.engine.dispose()


def test_an_erasure_that_ends_at_any_statement_leaves_the_old_state(world: World, tmp_path: Path) -> None:
    before = world.content()
    ran, last, armed = 0, 0, True

    def crash(*_given: object) -> None:
        nonlocal ran
        ran += 1
        if armed and ran == last:
            raise InterruptedError

    event.listen(world.engine, "before_cursor_execute", crash)
    while True:
        last, ran, armed = last + 1, 0, True
        try:
            with write(world.engine) as connection:
                pass
            erase_rows(world.engine, world.objects, [GONE])
        except InterruptedError:
            armed = False
            with world.engine.connect() as connection:
                waits = connection.execute(select(table_of(ErasedObject))).first() is not None
            if not waits:
                assert world.content() == before
                continue
            assert delete_unneeded(world.engine, world.objects) > 0
        break
    event.remove(world.engine, "before_cursor_execute", crash)
    assert last > 30
    assert traces(world, MARKER, GONE) == []
