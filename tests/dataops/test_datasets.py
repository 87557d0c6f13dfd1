import io
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.versions import Provenance, StaleParent, Version
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
    engine: Engine, objects: LocalObjects, batch: Batch, *, append: bool = True, part: str = "train"
) -> Version:
    with write(engine) as connection:
        draft = datasets.prepare(
            connection,
            objects,
            dataset="d",
            batch=batch,
            provenance=[Provenance(str(key), "blurry", "human", part) for key in batch.keys],
            append=append,
        )
        return datasets.commit(
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
    first = datasets.content_digest(datasets.canonical(rows("abc")))
    assert datasets.content_digest(datasets.canonical(rows("cba", minute=7))) == first
    commit(engine, objects, rows("c"))
    assert commit(engine, objects, rows("ab")).digest == first
    assert datasets.content_digest(datasets.canonical(rows("abd"))) != first


@pytest.mark.parametrize("change", ["inputs.image", "inputs.name", "label.label"])
def test_digest_sees_a_change_of_any_column(change: str) -> None:
    batch = rows("ab")
    values = {"inputs.image": np.zeros((2, 2), np.float32), "inputs.name": ["x", None], "label.label": [1, 2]}
    before, after = (
        datasets.content_digest(datasets.canonical(b))
        for b in (batch, batch.with_columns({change: values[change]}))
    )
    assert before != after


def test_appending_shares_the_files_of_the_parent(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"))
    second = commit(engine, objects, rows("dc"), part="held_out")
    assert (second.number, second.parent, second.rows) == (2, 1, 4)
    assert second.manifest["files"][0] == first.manifest["files"][0]
    with engine.connect() as connection:
        assert [row.record_id for row in datasets.provenance(connection, second)] == ["a", "b", "c", "d"]
        assert datasets.read(connection, objects, second, part="held_out").keys.tolist() == ["c", "d"]
        assert datasets.read(connection, objects, first).rows == 2  # immutable
    difference = datasets.diff(objects, first, second)
    assert (difference.added, difference.removed, difference.changed) == (["c", "d"], [], [])


def test_replacing_rows_is_a_version_of_its_own(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"), append=False)
    changed = rows("bc").with_columns({"inputs.name": ["other", "c"]})
    second = commit(engine, objects, changed, append=False)
    assert second.rows == 2
    difference = datasets.diff(objects, first, second)
    assert (difference.added, difference.removed, difference.changed) == (["c"], ["a"], ["b"])


def test_the_same_content_again_is_the_same_version(engine: Engine, objects: LocalObjects) -> None:
    first = commit(engine, objects, rows("ab"), append=False)
    assert commit(engine, objects, rows("ba", minute=9), append=False).number == first.number


def test_of_two_commits_on_one_parent_the_second_is_refused(engine: Engine, objects: LocalObjects) -> None:
    drafts = []
    for ids in ("a", "b"):
        with engine.connect() as connection:
            drafts.append(
                datasets.prepare(
                    connection,
                    objects,
                    dataset="d",
                    batch=rows(ids),
                    provenance=[Provenance(ids)],
                    append=True,
                )
            )
    with write(engine) as connection:
        datasets.commit(connection, drafts[0], validation={}, now_us=1)
    with (
        pytest.raises(StaleParent, match="prepared on version None, but the newest is 1"),
        write(engine) as connection,
    ):
        datasets.commit(connection, drafts[1], validation={}, now_us=1)


def test_commit_writes_all_or_nothing(engine: Engine, objects: LocalObjects) -> None:
    def crash() -> None:
        with write(engine) as connection:
            draft = datasets.prepare(
                connection, objects, dataset="d", batch=rows("a"), provenance=[Provenance("a")], append=True
            )
            datasets.commit(
                connection,
                draft,
                validation={},
                now_us=1,
                made_from=[("job", "j", "trigger")],
                targets=[WebhookTarget("http://receiver.example", ("dataset.committed",))],
            )
            counts = [connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables]
            assert counts == [1, 1, 1, 1]
            raise KeyboardInterrupt

    tables = ("dataset_version", "dataset_row", "lineage_edge", "outbox")
    with pytest.raises(KeyboardInterrupt):
        crash()
    with engine.connect() as connection:
        assert [connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables] == [0, 0, 0, 0]


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
    metadata = pq.read_metadata(io.BytesIO(objects.get(version.manifest["files"][0]["sha256"])))
    group = metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    image = next(column for name, column in columns.items() if name.startswith("inputs.image"))
    assert image.compression == "ZSTD"
    assert "RLE_DICTIONARY" not in image.encodings


def test_unknown_versions_are_not_found(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(NotFound, match="no dataset 'd'"):
        datasets.get(connection, "d")
