"""Rows of erased records are gone from every version, report, table and object; everything else stays."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, select

from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.erased import erasable_rows, erase_rows, rows_of_entities
from outrider.dataops.datasets.scan import scan
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.models import lineage
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Job
from outrider.dataops.state.tables import table_of
from outrider.dataops.upkeep.compaction import compact
from outrider.dataset_reference import load_dataset, open_dataset
from outrider.errors import ConfigError, Erased, NotFound

from .erased_world import GONE, MARKER, NUMBER, World, table_of_rows, traces, world

__all__ = ["world"]


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
        with pytest.raises(Erased, match=r"erased"):
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


def test_a_scan_from_before_says_what_was_erased_and_what_stands_there_now(world: World) -> None:
    with world.engine.connect() as connection:
        before, untouched = (
            scan(connection, world.objects, datasets.get(connection, "d", number)) for number in (2, 5)
        )
    ((_, _, old, now),) = [
        each for each in erase_rows(world.engine, world.objects, [GONE]).versions if each[:2] == ("d", 2)
    ]
    with pytest.raises(
        Erased, match=rf"d@2 had digest {old} until 1 of its rows were erased at 20.* now {now}"
    ):
        next(iter(before))
    assert [batch.column("id").to_pylist() for batch in untouched] == [["f"]]
    with world.engine.connect() as connection:
        (file,) = files_of(world.engine, datasets.get(connection, "d", 5))
    world.objects.remove(file)
    with pytest.raises(NotFound, match=rf"d@5: no object {file} .*open it again: its file was written anew"):
        next(iter(untouched))


def test_loaders_of_a_folder_say_what_was_erased(world: World, tmp_path: Path) -> None:
    with world.engine.connect() as connection:
        old = datasets.get(connection, "d", 2).digest
    (tmp_path / "outrider.toml").write_text('[storage]\nfolder = "."\n')
    rows = open_dataset(f"d@{old}", folder=tmp_path)
    assert len(rows) == 6
    erase_rows(world.engine, world.objects, [GONE])
    for load in (load_dataset, open_dataset):
        with pytest.raises(ConfigError, match=r"d@2 had digest .* until 1 of its rows were erased at 20"):
            load(f"d@{old}", folder=tmp_path)
        assert len(load("d@2", folder=tmp_path)) == 5
