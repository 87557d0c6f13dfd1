"""All operations on a dataset against a dictionary of rows: versions, parts, digests and differences."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.aggregates import Aggregates, aggregates
from outrider.dataops.datasets.changes import row_counts
from outrider.dataops.datasets.erased import erasable_rows, erase_rows
from outrider.dataops.datasets.frames import numbers_of
from outrider.dataops.datasets.references import open_version, set_tag
from outrider.dataops.datasets.scan import scan
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.upkeep.compaction import compact
from outrider.dataops.upkeep.garbage import collect_garbage, named_objects
from outrider.errors import NotFound
from tests.databases import migrated
from tests.soak import examples

IDS = st.sampled_from([f"r{number:02}" for number in range(12)])
ROW = st.tuples(
    st.floats(-2, 2, width=32),
    st.sampled_from([None, "", "one", "zwölf"]),
    st.integers(0, 3),
    st.sampled_from(["human", "expert"]),
)
"""Input, input, label and label source."""
Rows = dict[str, tuple[float, str | None, int, str]]


def part_of(key: str) -> str:
    return "held_out" if int(key[1:]) % 3 == 0 else "train"


def batch_of(rows: Rows) -> tuple[Batch, list[Provenance]]:
    columns = {
        "id": list(rows),
        "ts": np.full(len(rows), np.datetime64("2026-01-05", "us")),
        "inputs.value": np.array([row[0] for row in rows.values()], dtype=np.float64),
        "inputs.text": pa.array([row[1] for row in rows.values()], pa.string()),
        "label.label": np.array([row[2] for row in rows.values()], dtype=np.int64),
    }
    origin = [Provenance(key, "assertion", row[3], part_of(key)) for key, row in rows.items()]
    return Batch.from_columns(columns, model="m"), origin


def aggregates_of(rows: Rows) -> Aggregates:
    batch, _ = batch_of(rows)
    return aggregates(batch.rows, numbers_of(batch, []), [("label.label", [0, 1, 2])])


def content_of(rows: Rows) -> frozenset[object]:
    """Content of a version: -0.0 equals 0.0, and where a row comes from is none."""
    return frozenset((key, row[0] + 0.0, *row[1:3]) for key, row in rows.items())


class Dataset(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.engine = migrated(self.folder / "state.db")
        self.objects = LocalObjects(self.folder / "objects")
        self.truth: list[Rows] = []
        self.is_whole: list[bool] = []
        self.digests: dict[frozenset[object], str] = {}
        self.tags: dict[str, int] = {}

    def teardown(self) -> None:
        self.engine.dispose()
        shutil.rmtree(self.folder)

    @property
    def now(self) -> Rows:
        return self.truth[-1] if self.truth else {}

    def change(self, rows: Rows, *, append: bool = True, removed: list[str] | None = None) -> None:
        batch, origin = batch_of(rows) if rows else (batch_of({"r00": (0.0, "", 0, "")})[0].slice(0, 0), [])
        wanted = {key: row for key, row in self.now.items() if append and key not in (removed or [])} | rows
        with write(self.engine) as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset="d",
                batch=batch,
                provenance=origin,
                append=append,
                removed=removed or [],
            )
            validation = {"aggregates": aggregates_of(wanted)} if wanted else {}
            version = changes.commit(connection, draft, validation=validation, now_us=1)
        if version.number > len(self.truth):
            self.truth.append(wanted)
            self.is_whole.append(not append or version.number == 1)
        elif append:
            assert wanted == self.now, "nothing changed, so nothing is committed"
        assert version.rows == len(wanted)
        self.check_digest(version, wanted)

    def check_digest(self, version: Version, wanted: Rows) -> None:
        assert self.digests.setdefault(content_of(wanted), version.digest) == version.digest
        assert len(set(self.digests.values())) == len(self.digests)

    @initialize(rows=st.dictionaries(IDS, ROW, min_size=1, max_size=6))
    def begin(self, rows: Rows) -> None:
        self.change(rows)

    @rule(rows=st.dictionaries(IDS, ROW, min_size=1, max_size=6))
    def append(self, rows: Rows) -> None:
        self.change(rows)

    @rule(rows=st.dictionaries(IDS, ROW, min_size=1, max_size=6))
    def replace(self, rows: Rows) -> None:
        self.change(rows, append=False)

    @precondition(lambda self: len(self.now) > 1)
    @rule(data=st.data())
    def relabel(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.now)), min_size=1, unique=True))
        label, source = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(["human", "expert"]))
        self.change({key: (*self.now[key][:2], label, source) for key in keys})

    @precondition(lambda self: len(self.now) > 1)
    @rule(data=st.data(), rows=st.dictionaries(IDS, ROW, max_size=2))
    def remove(self, data: st.DataObject, rows: Rows) -> None:
        some = sorted(set(self.now) - set(rows))
        keys = data.draw(st.lists(st.sampled_from(some), unique=True)) if some else []
        if keys or rows:
            self.change(rows, removed=keys)

    @rule(ids=st.lists(IDS, min_size=1, max_size=3, unique=True))
    def erase(self, ids: list[str]) -> None:
        with self.engine.connect() as connection:
            before = {version.number: version.digest for version in datasets.all_versions(connection)}
        held = [number for number, rows in enumerate(self.truth, 1) if rows.keys() & set(ids)]
        counted = erasable_rows(self.engine, ids)
        erased = erase_rows(self.engine, self.objects, ids)
        assert [version for _, version in counted.versions] == held
        self.truth = [{key: row for key, row in rows.items() if key not in ids} for rows in self.truth]
        with self.engine.connect() as connection:
            versions = datasets.all_versions(connection)
            assert erased.versions == [
                ("d", version.number, before[version.number], version.digest)
                for version in versions
                if version.number in held
            ]
        for version, wanted in zip(versions, self.truth, strict=True):
            self.check_digest(version, wanted)
            self.check_manifest(version, wanted)
        assert erase_rows(self.engine, self.objects, ids).versions == []

    def check_manifest(self, version: Version, wanted: Rows) -> None:
        number, manifest = version.number, version.manifest
        assert version.rows == len(wanted)
        assert manifest["counts"] == row_counts(batch_of(wanted)[1] if wanted else [])
        before = {} if self.is_whole[number - 1] else self.truth[number - 2]
        new = [key for key, row in wanted.items() if key not in before or before[key][:2] != row[:2]]
        relabelled = [key for key in wanted if key not in new and before[key] != wanted[key]]
        gone = [key for key in before if key not in wanted or key in new]
        changed = {"added": len(new), "relabelled": len(relabelled), "removed": len(gone)}
        assert manifest["changes"] == changed
        kept = manifest["validation"].get("aggregates")
        if kept is None or not wanted:
            return
        assert kept["rows"] == len(wanted)
        for name, column in aggregates_of(wanted)["columns"].items():
            found = dict(kept["columns"][name])
            assert found.pop("of", None) == column.pop("of", None)
            assert found == pytest.approx(column, rel=1e-9, abs=1e-9)

    @rule()
    def compact(self) -> None:
        digests = self.lives_and_digests()
        compact(self.engine, self.objects, "d")
        assert self.lives_and_digests() == digests

    def lives_and_digests(self) -> list[object]:
        with self.engine.connect() as connection:
            versions = [datasets.get(connection, "d", number) for number in range(1, len(self.truth) + 1)]
            return [(version, datasets.lives(connection, version)) for version in versions]

    @rule()
    def gc(self) -> None:
        """Whatever its age, nothing that a version needs goes: each is opened by other rules."""
        with self.engine.connect() as connection:
            named = named_objects(connection)
        collect_garbage(self.engine, self.objects, older_than_s=-1.0)
        left = {path.name for path in self.objects.folder.glob("??/*")}
        assert left == named

    @rule(data=st.data(), tag=st.sampled_from(["a", "b"]))
    def tag(self, data: st.DataObject, tag: str) -> None:
        number = data.draw(st.integers(1, len(self.truth)))
        with write(self.engine) as connection:
            set_tag(connection, "d", tag, str(number), moves=True, now_us=1)
        self.tags[tag] = number

    @rule()
    def open_by_tag(self) -> None:
        with self.engine.connect() as connection:
            for tag, number in self.tags.items():
                assert open_version(connection, f"d@{tag}").number == number

    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.truth)))
        part = data.draw(st.sampled_from([None, "train", "held_out"]))
        columns = data.draw(st.sampled_from([None, ["id"], ["label.label", "id"]]))
        size = data.draw(st.sampled_from([1, 2, 100]))
        with self.engine.connect() as connection:
            version = datasets.get(connection, "d", number)
            found = scan(connection, self.objects, version, part=part, columns=columns, batch_rows=size)
            wanted = datasets.read_table(
                connection, self.objects, version, part=part, columns=columns and list(columns)
            )
        batches = list(found)
        assert all(0 < batch.num_rows <= size for batch in batches)
        assert pa.Table.from_batches(batches, found.schema).equals(wanted)
        assert found.rows == wanted.num_rows

    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.truth)))
        wanted = self.truth[number - 1]
        with self.engine.connect() as connection:
            version = datasets.get(connection, "d", number)
            for part in (None, "train", "held_out"):
                batch = datasets.read(connection, self.objects, version, part=part)
                keys = [key for key in wanted if part in (None, part_of(key))]
                table = batch.to_arrow()
                found = {
                    key: tuple(row.values())
                    for key, row in zip(
                        table.column("id").to_pylist(),
                        table.select(["inputs.value", "inputs.text", "label.label"]).to_pylist(),
                        strict=True,
                    )
                }
                assert found == {key: wanted[key][:3] for key in keys}
            some = data.draw(st.lists(st.sampled_from(sorted(wanted)), unique=True)) if wanted else []
            taken = datasets.take(connection, self.objects, version, some)
            shown = taken.select(["id", "inputs.value", "inputs.text", "label.label"]).to_pylist()
            assert [tuple(row.values()) for row in shown] == [(key, *wanted[key][:3]) for key in some]
            with pytest.raises(NotFound, match="has no row 'nobody'"):
                datasets.take(connection, self.objects, version, [*some, "nobody"])
            origin = datasets.provenance(connection, version)
            read = datasets.read(connection, self.objects, version).keys.tolist()
        assert [one.record_id for one in origin] == read
        assert {one.record_id: one.label_source for one in origin} == {
            key: row[3] for key, row in wanted.items()
        }

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        """Some rows in any order, without reading the others."""
        number = data.draw(st.integers(1, len(self.truth)))
        wanted = self.truth[number - 1]
        with self.engine.connect() as connection:
            version = datasets.get(connection, "d", number)
            keys = data.draw(st.lists(st.sampled_from(sorted(wanted)), unique=True)) if wanted else []
            names = ["inputs.value", "inputs.text", "label.label"]
            found = datasets.take(connection, self.objects, version, keys, columns=names)
        assert [tuple(row.values()) for row in found.to_pylist()] == [wanted[key][:3] for key in keys]

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        old, new = (data.draw(st.integers(1, len(self.truth))) for _ in range(2))
        before, after = self.truth[old - 1], self.truth[new - 1]
        with self.engine.connect() as connection:
            versions = [datasets.get(connection, "d", number) for number in (old, new)]
            found = datasets.diff(connection, self.objects, *versions, limit=100)
        assert found.added == sorted(after.keys() - before.keys())
        assert found.removed == sorted(before.keys() - after.keys())
        both = before.keys() & after.keys()
        assert found.changed == sorted(key for key in both if before[key][:3] != after[key][:3])
        for row in found.rows:
            for labels, side in ((row.labels_before, before), (row.labels_after, after)):
                known = {"label.label": side[row.id][2]} if row.id in side else None
                assert labels == known


TestDataset = Dataset.TestCase
TestDataset.settings = settings(
    max_examples=examples(30),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
