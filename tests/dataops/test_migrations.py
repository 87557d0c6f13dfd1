import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write


def test_migrated_database_equals_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, SQLModel.metadata) == []


def test_head_is_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    assert ScriptDirectory.from_config(config).get_current_head() == migrations.HEAD


def test_upgrade_of_a_current_database_changes_nothing(engine: Engine) -> None:
    assert migrations.is_current(str(engine.url))
    migrations.upgrade(engine)
    assert migrations.is_current(str(engine.url))


def test_a_failed_upgrade_leaves_no_tables(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    with write(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE strike (clash INTEGER)")
    with pytest.raises(OperationalError, match="strike"):
        migrations.upgrade(engine)
    assert inspect(engine).get_table_names() == ["strike"]
    engine.dispose()


def test_versions_from_before_rows_had_lives_are_read_compared_and_appended_to(tmp_path: Path) -> None:
    """Version 2 shares the file of version 1; version 3 wrote what is left of both anew, and adds one."""
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    objects = LocalObjects(tmp_path / "objects")
    migrations.upgrade(engine, "0011")
    with write(engine) as connection:
        files = {
            number: _old_file(objects, ids, number) for number, ids in {1: "ab", 2: "c", 3: "abcd"}.items()
        }
        for number, (ids, held) in {1: ("ab", [1]), 2: ("abc", [1, 2]), 3: ("abcd", [3])}.items():
            manifest = {"files": [files[file] for file in held], "columns": {}, "validation": {}}
            connection.exec_driver_sql(
                "INSERT INTO dataset_version VALUES ('d', ?, 'm', ?, ?, ?, ?, 1)",
                (number, number - 1 or None, f"old {number}", len(ids), json.dumps(manifest)),
            )
        for number, ids in {1: "ab", 2: "c", 3: "abcd"}.items():
            for position, key in enumerate(ids):
                connection.exec_driver_sql(
                    "INSERT INTO dataset_row VALUES ('d', ?, ?, ?, 'blurry', 'human', ?)",
                    (number, position, key, "held_out" if key == "b" else "train"),
                )
    migrations.upgrade(engine)
    with engine.connect() as connection:
        versions = [datasets.get(connection, "d", number) for number in (1, 2, 3)]
        assert [one.digest for one in versions] == ["old 1", "old 2", "old 3"]
        read = [datasets.read(connection, objects, one).keys.tolist() for one in versions]
        assert read == [["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]]
        held_out = [
            datasets.read(connection, objects, one, part="held_out").keys.tolist() for one in versions
        ]
        assert held_out == [["b"]] * 3
        origin = [[row.record_id for row in datasets.provenance(connection, one)] for one in versions]
        assert origin == read
        found = datasets.diff(connection, objects, versions[0], versions[2])
        # the file of version 3 has another value for b
        assert found == datasets.Diff(added=["c", "d"], removed=[], changed=["b"])
    batch = Batch.from_columns(
        {
            "id": ["a", "e"],
            "ts": np.full(2, np.datetime64("2026-01-05", "us")),
            "inputs.x": [1.0, 5.0],
            "label.label": [7, 8],
        },
        model="m",
    )
    with write(engine) as connection:
        origins = [Provenance("a", label_source="expert"), Provenance("e")]
        draft = changes.prepare(
            connection, objects, dataset="d", batch=batch, provenance=origins, append=True, removed=["c"]
        )
        fourth = changes.commit(connection, draft, validation={}, now_us=2)
        assert fourth.manifest["changes"] == {"added": 1, "relabelled": 1, "removed": 1}
        read_again = datasets.read(connection, objects, fourth)
        assert read_again.keys.tolist() == ["a", "b", "d", "e"]
        assert read_again.column("label.label").tolist() == [7, 2, 4, 8]
        found = datasets.diff(connection, objects, versions[2], fourth)
        assert found == datasets.Diff(added=["e"], removed=["c"], changed=["a"])
        origins = [Provenance(str(key)) for key in read_again.keys]
        draft = changes.prepare(
            connection, objects, dataset="whole", batch=read_again, provenance=origins, append=False
        )
        assert changes.commit(connection, draft, validation={}, now_us=3).digest == fourth.digest
    engine.dispose()


def _old_file(objects: LocalObjects, ids: str, number: int) -> dict[str, object]:
    values = [9.0 if (key, number) == ("b", 3) else 1.0 + "abcd".index(key) for key in ids]
    batch = Batch.from_columns(
        {
            "id": list(ids),
            "ts": np.full(len(ids), np.datetime64("2026-01-05", "us")),
            "inputs.x": values,
            "label.label": ["abcd".index(key) + 1 for key in ids],
        },
        model="m",
    )
    buffer = io.BytesIO()
    pq.write_table(datasets.kept_columns(batch), buffer, compression="zstd", use_compliant_nested_type=False)
    data = buffer.getvalue()
    return {"sha256": objects.put(data), "rows": len(ids), "bytes": len(data), "added": number}
