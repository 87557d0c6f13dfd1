import io
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import NotFound, SchemaMismatch


def rows(ids: Sequence[str], *, minute: int = 0) -> Batch:
    return Batch.from_columns(
        {
            "id": list(ids),
            "ts": _times(len(ids), minute),
            "inputs.image": np.array([[float(ord(key[0])), 0.5] for key in ids], dtype=np.float32),
            "inputs.name": [f"name {key}" for key in ids],
            "label.label": [ord(key[0]) % 10 for key in ids],
        },
        model="digits",
    )


def _times(count: int, minute: int) -> object:
    return np.full(count, np.datetime64(f"2026-01-05T10:{minute:02}:00", "us"))


def commit(
    engine: Engine,
    objects: LocalObjects,
    batch: Batch,
    *,
    append: bool = True,
    part: str = "train",
    dataset: str = "d",
    removed: Sequence[str] = (),
    source: str = "human",
) -> Version:
    with write(engine) as connection:
        draft = changes.prepare(
            connection,
            objects,
            dataset=dataset,
            batch=batch,
            provenance=[Provenance(str(key), "blurry", source, part) for key in batch.keys],
            append=append,
            removed=removed,
        )
        return changes.commit(
            connection, draft, validation={}, now_us=1, made_from=[("job", "job_1", "trigger")]
        )


def test_what_is_committed_is_read_back_in_order_of_ids(engine: Engine, objects: LocalObjects) -> None:
    version = commit(engine, objects, rows("cab"))
    with engine.connect() as connection:
        batch = datasets.read(connection, objects, datasets.get(connection, "d"))
        origin = datasets.provenance(connection, version)
    assert batch.keys.tolist() == ["a", "b", "c"] == [row.record_id for row in origin]
    assert batch.tensor("inputs.image")[1].tolist() == [98.0, 0.5]
    assert batch.column("label.label").tolist() == [7, 8, 9]
    assert batch.model == "digits"
    assert origin[0] == Provenance("a", "blurry", "human", "train")


def test_digest_depends_on_rows_only(engine: Engine, objects: LocalObjects) -> None:
    """Not on their order, on when they were recorded, or on how many commits brought them."""
    first = commit(engine, objects, rows("abc"), dataset="whole").digest
    assert commit(engine, objects, rows("cba", minute=7), dataset="turned").digest == first
    commit(engine, objects, rows("c"))
    assert commit(engine, objects, rows("ab")).digest == first
    assert commit(engine, objects, rows("abd"), dataset="other").digest != first


@pytest.mark.parametrize("change", ["inputs.image", "inputs.name", "label.label"])
def test_digest_sees_a_change_of_any_column(engine: Engine, objects: LocalObjects, change: str) -> None:
    values = {"inputs.image": np.zeros((2, 2), np.float32), "inputs.name": ["x", None], "label.label": [1, 2]}
    before = commit(engine, objects, rows("ab"), dataset="before")
    after = commit(engine, objects, rows("ab").with_columns({change: values[change]}), dataset="after")
    assert before.digest != after.digest


def test_appending_shares_the_files_of_the_parent(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"))
    second = commit(engine, objects, rows("dc"), part="held_out")
    assert (second.number, second.parent, second.rows) == (2, 1, 4)
    assert second.manifest["changes"] == {"added": 2, "relabelled": 0, "removed": 0}
    with engine.connect() as connection:
        assert [row.record_id for row in datasets.provenance(connection, second)] == ["a", "b", "c", "d"]
        assert datasets.read(connection, objects, second, part="held_out").keys.tolist() == ["c", "d"]
        assert datasets.read(connection, objects, first).rows == 2  # immutable
        difference = datasets.diff(connection, objects, first, second)
    assert (difference.added, difference.removed, difference.changed) == (["c", "d"], [], [])


def test_replacing_rows_is_a_version_of_its_own(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"), append=False)
    changed = rows("bc").with_columns({"inputs.name": ["other", "c"]})
    second = commit(engine, objects, changed, append=False)
    assert second.rows == 2
    with engine.connect() as connection:
        difference = datasets.diff(connection, objects, first, second)
    assert (difference.added, difference.removed, difference.changed) == (["c"], ["a"], ["b"])


def test_the_same_content_again_is_the_same_version(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"), append=False)
    assert commit(engine, objects, rows("ba", minute=9), append=False).number == first.number


def drafts_of(engine: Engine, objects: LocalObjects, *batches: Batch) -> list[changes.Draft]:
    """Drafts on the same newest version."""
    with engine.connect() as connection:
        return [
            changes.prepare(
                connection,
                objects,
                dataset="d",
                batch=batch,
                provenance=[Provenance(str(key)) for key in batch.keys],
                append=True,
            )
            for batch in batches
        ]


def commit_all(engine: Engine, drafts: Sequence[changes.Draft]) -> Version:
    for draft in drafts:
        with write(engine) as connection:
            version = changes.commit(connection, draft, validation={}, now_us=1)
    return version


def test_of_two_commits_on_one_parent_the_second_goes_onto_the_first(
    engine: Engine, objects: LocalObjects
) -> None:
    commit(engine, objects, rows("a"))
    last = commit_all(engine, drafts_of(engine, objects, rows("b"), rows("c")))
    assert (last.number, last.rows) == (3, 3)
    assert last.digest == commit(engine, objects, rows("abc"), dataset="whole").digest
    with engine.connect() as connection:
        assert datasets.read(connection, objects, last).keys.tolist() == ["a", "b", "c"]


def test_of_two_commits_that_change_the_same_row_the_second_is_refused(
    engine: Engine, objects: LocalObjects
) -> None:
    commit(engine, objects, rows("a"))
    other = rows("a").with_columns({"label.label": [3]})
    drafts = drafts_of(engine, objects, other, rows("ab").with_columns({"label.label": [4, 5]}))
    told = "prepared on version 1, but the newest is 2, and both change row 'a'"
    with pytest.raises(StaleParent, match=told):
        commit_all(engine, drafts)


def test_of_two_first_commits_the_second_is_refused(engine: Engine, objects: LocalObjects) -> None:
    drafts = drafts_of(engine, objects, rows("a"), rows("b"))
    with pytest.raises(StaleParent, match="prepared on version None, but the newest is 1"):
        commit_all(engine, drafts)


def test_commit_writes_all_or_nothing(engine: Engine, objects: LocalObjects) -> None:
    def crash() -> None:
        with write(engine) as connection:
            draft = changes.prepare(
                connection, objects, dataset="d", batch=rows("a"), provenance=[Provenance("a")], append=True
            )
            changes.commit(
                connection,
                draft,
                validation={},
                now_us=1,
                made_from=[("job", "j", "trigger")],
                targets=[WebhookTarget("http://receiver.example", ("dataset.committed",))],
            )
            counts = [connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables]
            assert counts == [1, 1, 1, 1, 1]
            raise KeyboardInterrupt

    tables = ("dataset_version", "dataset_file", "dataset_row", "lineage_edge", "outbox")
    with pytest.raises(KeyboardInterrupt):
        crash()
    with engine.connect() as connection:
        assert [connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables] == [
            0,
            0,
            0,
            0,
            0,
        ]


def test_appending_other_inputs_is_refused_other_attributes_are_not(
    engine: Engine, objects: LocalObjects
) -> None:
    commit(engine, objects, rows("a"))
    with pytest.raises(SchemaMismatch, match=r"label\.label"):
        commit(engine, objects, rows("b").with_columns({"label.label": ["7"]}))
    commit(engine, objects, rows("c").with_columns({"attrs.device": ["web"]}))


def test_an_id_may_stand_in_a_dataset_only_once(engine: Engine, objects: LocalObjects) -> None:
    with pytest.raises(ValueError, match=r"\['a'\] more than once"):
        commit(engine, objects, rows("aa"))


def test_an_id_that_comes_again_stands_in_the_place_of_the_old_row(
    engine: Engine, objects: LocalObjects
) -> None:
    first = commit(engine, objects, rows("ab"))
    second = commit(engine, objects, rows("bc"))
    with engine.connect() as connection:
        assert datasets.read(connection, objects, second).keys.tolist() == ["a", "b", "c"]
        assert [row.record_id for row in datasets.provenance(connection, second)] == ["a", "b", "c"]
        assert datasets.read(connection, objects, first).keys.tolist() == ["a", "b"]


def test_floats_are_not_dictionary_encoded_and_files_are_zstd(engine: Engine, objects: LocalObjects) -> None:
    version = commit(engine, objects, rows("ab"))
    with engine.connect() as connection:
        digest = connection.scalar(text("SELECT sha256 FROM dataset_file"))
    assert version.rows == 2
    metadata = pq.read_metadata(io.BytesIO(objects.get(str(digest))))
    group = metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    image = next(column for name, column in columns.items() if name.startswith("inputs.image"))
    assert image.compression == "ZSTD"
    assert "RLE_DICTIONARY" not in image.encodings


def test_unknown_versions_are_not_found(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(NotFound, match="no dataset 'd'"):
        datasets.get(connection, "d")


def test_other_labels_alone_write_no_file(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("abc"))
    second = commit(
        engine, objects, rows("bc").with_columns({"label.label": [3, 9]}), source="expert", removed=["a"]
    )
    assert second.manifest["changes"] == {"added": 0, "relabelled": 2, "removed": 1}
    assert second.bytes == first.bytes
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM dataset_file")) == 1
        found = datasets.read(connection, objects, second)
        assert (found.keys.tolist(), found.column("label.label").tolist()) == (["b", "c"], [3, 9])
        assert [row.label_source for row in datasets.provenance(connection, second)] == ["expert", "expert"]
        old = datasets.read(connection, objects, first)
        assert old.column("label.label").tolist() == [7, 8, 9]
        assert [row.label_source for row in datasets.provenance(connection, first)] == ["human"] * 3
        difference = datasets.diff(connection, objects, first, second)
        assert (difference.added, difference.removed, difference.changed) == (
            [],
            ["a"],
            ["b"],
        )  # c: 9 as before
        changed, removed = datasets.diff(connection, objects, first, second, limit=10).rows
        assert (changed.id, changed.change) == ("b", "changed")
        assert (changed.labels_before, changed.labels_after) == ({"label.label": 8}, {"label.label": 3})
        assert changed.before is not None
        assert changed.after is not None
        assert (changed.before.label_source, changed.after.label_source) == ("human", "expert")
        assert (removed.id, removed.change, removed.after, removed.labels_after) == (
            "a",
            "removed",
            None,
            None,
        )
        assert datasets.diff(connection, objects, first, second, limit=1).rows == [changed]
        back = datasets.diff(connection, objects, second, first)
        assert (back.added, back.removed, back.changed) == (["a"], [], ["b"])
    same = rows("bc").with_columns({"label.label": [3, 9]})
    assert commit(engine, objects, same, dataset="whole").digest == second.digest


def test_what_is_not_there_cannot_be_removed(engine: Engine, objects: LocalObjects) -> None:
    commit(engine, objects, rows("a"))
    with pytest.raises(ValueError, match=r"has no row 'x', 'y', 'z' and 1 more to remove"):
        commit(engine, objects, rows("b"), removed=["x", "y", "z", "zz"])


def test_wider_numbers_and_new_columns_are_a_new_schema(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("a"))
    wider = rows("b").with_columns({"label.label": [0.5], "inputs.age": [41]})
    second = commit(engine, objects, wider)
    with engine.connect() as connection:
        found = datasets.read(connection, objects, second)
        assert found.column("label.label").tolist() == [7.0, 0.5]
        assert found.to_arrow().column("inputs.age").to_pylist() == [None, 41]
        old = datasets.read(connection, objects, first)
        assert old.column("label.label").dtype == np.int64
        assert not old.has("inputs.age")
        # the row is the same by value: only the schema of the version is another
        assert datasets.diff(connection, objects, first, second).changed == []


def test_numbers_that_reals_cannot_hold_are_not_widened(engine: Engine, objects: LocalObjects) -> None:
    commit(engine, objects, rows("a").with_columns({"inputs.age": [2**53 + 1]}))
    with pytest.raises(SchemaMismatch, match=r"inputs\.age: whole numbers beyond 2\*\*53 in d@1"):
        commit(engine, objects, rows("b").with_columns({"inputs.age": [0.5]}))


def test_what_no_model_reads_refuses_no_row(engine: Engine, objects: LocalObjects) -> None:
    commit(engine, objects, rows("a").with_columns({"attrs.device": [3]}))
    second = commit(engine, objects, rows("b").with_columns({"attrs.device": ["web"]}))
    assert list(second.manifest["unfit"]) == ["attrs.device"]
    with engine.connect() as connection:
        found = datasets.read(connection, objects, second).to_arrow().column("attrs.device").to_pylist()
    assert found == [3, None]


def test_a_part_is_read_alone(engine: Engine, objects: LocalObjects) -> None:
    batch = rows("abcdef")
    origin = [Provenance(str(key), part="held_out" if key in "be" else "train") for key in batch.keys]
    with write(engine) as connection:
        draft = changes.prepare(connection, objects, dataset="d", batch=batch, provenance=origin, append=True)
        version = changes.commit(connection, draft, validation={}, now_us=1)
    with engine.connect() as connection:
        assert datasets.read(connection, objects, version, part="held_out").keys.tolist() == ["b", "e"]
        assert datasets.read(connection, objects, version, part="train").keys.tolist() == list("acdf")
        whole = datasets.read(connection, objects, version).keys.tolist()
        assert [row.record_id for row in datasets.provenance(connection, version)] == whole
        assert [row["id"] for row in datasets.some_rows(connection, objects, version, limit=4)] == whole[:4]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a@1", " a", "a\n", "a\0", "d" * 201])
def test_dataset_of_a_name_that_no_path_holds_is_refused(
    engine: Engine, objects: LocalObjects, name: str
) -> None:
    with pytest.raises(ValueError, match="a name expected"):
        commit(engine, objects, rows(["a"]), dataset=name)
