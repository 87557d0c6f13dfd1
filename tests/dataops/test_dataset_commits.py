"""Commits beside each other, and commits that end half way."""

import multiprocessing
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import Draft, StaleParent
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write

WRITERS, APPENDS = 4, 15


def batch_of(ids: list[str], label: int = 0) -> Batch:
    columns = {
        "id": ids,
        "ts": np.full(len(ids), np.datetime64("2026-01-05", "us")),
        "inputs.x": np.arange(len(ids), dtype=np.float64),
        "label.label": [label] * len(ids),
    }
    return Batch.from_columns(columns, model="m")


def drafted(
    engine: Engine, objects: LocalObjects, ids: list[str], *, label: int = 0, **more: object
) -> Draft:
    with engine.connect() as connection:
        return changes.prepare(
            connection,
            objects,
            dataset="d",
            batch=batch_of(ids, label),
            provenance=[Provenance(name) for name in ids],
            append=True,
            **more,  # type: ignore[arg-type]
        )


def commit(engine: Engine, draft: Draft) -> int:
    with write(engine) as connection:
        return changes.commit(connection, draft, validation={}, now_us=1).number


def append_some(folder: Path, writer: int) -> None:
    engine, objects = open_database(f"sqlite:///{folder / 'state.db'}"), LocalObjects(folder / "objects")
    for number in range(APPENDS):
        commit(engine, drafted(engine, objects, [f"{writer}-{number}-{row}" for row in range(3)]))
    engine.dispose()


def test_rows_with_tensors_of_any_order_are_removed_and_looked_up(
    engine: Engine, objects: LocalObjects
) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=[1, 0])
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12, dtype=np.float32)), 6)
    rows = {"id": pa.array(["a", "b"]), "inputs.x": pa.ExtensionArray.from_storage(kind, values)}
    batch = Batch.from_arrow(pa.table(rows), model="m")
    origins = [Provenance("a"), Provenance("b")]
    with engine.connect() as connection:
        draft = changes.prepare(
            connection, objects, dataset="d", batch=batch, provenance=origins, append=True
        )
    commit(engine, draft)
    with engine.connect() as connection:
        gone = changes.prepare(
            connection, objects, dataset="d", batch=None, provenance=[], append=True, removed=["a"]
        )
    commit(engine, gone)
    with engine.connect() as connection:
        version = datasets.get(connection, "d", 2)
        assert datasets.take(connection, objects, version, ["b"]).column("id").to_pylist() == ["b"]
        assert datasets.take(connection, objects, version, []).num_rows == 0
        left = datasets.read(connection, objects, version)
    assert np.array_equal(left.column("inputs.x"), batch.column("inputs.x")[1:])


def test_appends_of_four_processes_all_land(engine: Engine, objects: LocalObjects, tmp_path: Path) -> None:
    commit(engine, drafted(engine, objects, ["first"]))
    engine.dispose()
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=append_some, args=(tmp_path, writer)) for writer in range(WRITERS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        for process in writers:
            process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * WRITERS
    with engine.connect() as connection:
        versions = datasets.all_versions(connection)
        assert [version.number for version in versions] == list(range(1, 2 + WRITERS * APPENDS))
        assert [version.rows for version in versions] == [1 + 3 * at for at in range(len(versions))]
        last = datasets.read(connection, objects, versions[-1])
    wanted = {f"{w}-{n}-{row}" for w in range(WRITERS) for n in range(APPENDS) for row in range(3)} | {
        "first"
    }
    assert set(last.keys.tolist()) == wanted
    values = dict(zip(last.keys.tolist(), last.column("inputs.x").tolist(), strict=True))
    whole = Batch.from_arrow(last.to_arrow(), model="m")
    with write(engine) as connection:
        origins = [Provenance(name) for name in values]
        draft = changes.prepare(
            connection, objects, dataset="whole", batch=whole, provenance=origins, append=False
        )
        assert changes.commit(connection, draft, validation={}, now_us=1).digest == versions[-1].digest


def test_a_commit_that_ends_at_any_statement_is_the_old_version_or_the_new(
    engine: Engine, objects: LocalObjects
) -> None:
    commit(engine, drafted(engine, objects, ["a", "b", "c"]))
    draft = drafted(engine, objects, ["b", "d"], label=1, removed=["c"])
    ran: list[str] = []
    last, armed = 0, False

    def crash(_conn: object, _cursor: object, statement: str, *_more: object) -> None:
        ran.append(statement)
        if armed and len(ran) == last:
            raise InterruptedError

    event.listen(engine, "before_cursor_execute", crash)
    while True:
        last, ran, armed = last + 1, [], True
        try:
            number = commit(engine, draft)
        except InterruptedError:
            armed = False
            with engine.connect() as connection:
                version = datasets.newest(connection, "d")
                assert version is not None
                assert version.number == 1
                assert datasets.read(connection, objects, version).keys.tolist() == ["a", "b", "c"]
                assert datasets.provenance(connection, version) == [Provenance(name) for name in "abc"]
            continue
        break
    event.remove(engine, "before_cursor_execute", crash)
    assert (number, last > 6) == (2, True)
    with engine.connect() as connection:
        found = datasets.read(connection, objects, datasets.get(connection, "d", 2))
    assert dict(zip(found.keys.tolist(), found.column("label.label").tolist(), strict=True)) == {
        "a": 0,
        "b": 1,
        "d": 1,
    }


def test_a_change_of_a_row_that_is_gone_meanwhile_is_refused(engine: Engine, objects: LocalObjects) -> None:
    commit(engine, drafted(engine, objects, ["a", "b"]))
    relabelled, removed = (
        drafted(engine, objects, ["a"], label=1),
        drafted(engine, objects, [], removed=["a"]),
    )
    assert commit(engine, removed) == 2
    with pytest.raises(StaleParent, match="both change row 'a'"):
        commit(engine, relabelled)
