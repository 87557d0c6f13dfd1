import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from alembic import command
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
from outrider.dataops.models.champion_history import list_changes
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


def file_of(number: int) -> dict[str, object]:
    return {"sha256": "ab" * 32, "rows": 4, "bytes": 1, "added": number}


def test_the_label_that_each_dataset_row_holds_is_found_when_it_is_first_asked_for(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0011")
        for seq, (name, value) in enumerate((("a", "1"), ("b", "1"), ("b", "0"), ("a", "2"), ("c", None)), 1):
            connection.exec_driver_sql(
                "INSERT INTO label (seq, row, model, record_id, source, value, label, ts_us, received_us)"
                " VALUES (?, 7, 'm', ?, 'human', ?, '{}', 0, 0)",
                (seq, name, value),
            )
        for number, upto in ((1, 3), (2, 5)):  # the second version has the rows of the first again
            manifest = json.dumps({"files": [file_of(number)], "labels": {"rows": 2}})
            connection.exec_driver_sql(
                "INSERT INTO dataset_version (dataset, number, model, digest, rows, manifest, created_us)"
                f" VALUES ('d', {number}, 'm', '', 2, ?, 0)",
                (manifest,),
            )
            connection.exec_driver_sql(
                "INSERT INTO job (id, model, kind, status, stage, params, result, attempts, created_us)"
                f""" VALUES ('j{number}', 'm', 'dataset', '', '', '{{"upto_seq": {upto}}}', '{{}}', 1, 0)"""
            )
            connection.exec_driver_sql(
                f"INSERT INTO lineage_edge VALUES ('dataset', 'd@{number}', 'job', 'j{number}', 'trigger', 0)"
            )
            rows = (("a", "human"), ("b", "human"), ("w", "weak:flip"), ("i", "file.csv"))
            for position, (name, source) in enumerate(rows):
                connection.exec_driver_sql(
                    "INSERT INTO dataset_row VALUES ('d', ?, ?, ?, 'dark,odd', ?, 'train')",
                    (number, position, name, source),
                )
        connection.exec_driver_sql(
            "INSERT INTO quarantine (dataset, record_id, reasons, at_us)"
            " VALUES ('d', 'q', 'label: one of 0, 1 expected, got ''Jane''; odd', 0)"
        )
    migrations.upgrade(engine)
    with engine.connect() as connection:
        query = "SELECT record_id, label_seq, label_row FROM dataset_row WHERE number = ? ORDER BY position"
        for number in (1, 2):
            found = connection.exec_driver_sql(query, (number,)).all()
            assert found == [("a", 1, 7), ("b", 3, 7), ("w", None, None), ("i", None, None)]
        stored = connection.exec_driver_sql("SELECT manifest FROM dataset_version").scalars().all()
        assert [json.loads(text) for text in stored] == [
            {
                "files": [file_of(number)],
                "labels": {"rows": 2},
                "counts": {
                    "parts": {"train": 4},
                    "label_sources": {"file.csv": 1, "human": 2, "weak:flip": 1},
                    "assertions": {"dark": 4, "odd": 4},
                },
            }
            for number in (1, 2)
        ]
        held = connection.exec_driver_sql("SELECT reasons, state, rules FROM quarantine").all()
        assert held == [("label: one of 0, 1 expected", "held", None)]
    engine.dispose()


def test_champions_of_earlier_releases_are_in_the_history(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    migrations.upgrade(engine, "0022")
    versions = [
        ("m", "1", "champion", "asked for", 1, 9),
        ("m", "2", "retired", "version 3 took over", 2, 5),
        ("m", "3", "retired", "version 1 took over", 3, 9),
        ("n", "a", "champion", "named in the configuration", 4, 4),
        ("n", "b", "challenger", "", 5, 5),
    ]
    with write(engine) as connection:
        for row in versions:
            connection.exec_driver_sql(
                "INSERT INTO model_version (model, version, status, note, created_us, changed_us, digest) "
                "VALUES (?, ?, ?, ?, ?, ?, '')",
                row,
            )
        for child, parent, at_us in (("m@2", "m@1", 4), ("m@3", "m@2", 5)):
            connection.exec_driver_sql(
                "INSERT INTO lineage_edge VALUES ('model', ?, 'model', ?, 'replaced', ?)",
                (child, parent, at_us),
            )
    migrations.upgrade(engine)
    with engine.connect() as connection:
        found = {
            model: [
                (row.version, row.replaced, row.action, row.reason, row.at_us)
                for row in list_changes(connection, model)
            ]
            for model in "mn"
        }
    assert found["m"] == [
        ("1", "3", "rolled_back", "asked for", 9),
        ("3", "2", "promoted", "", 5),
        ("2", "1", "promoted", "", 4),
        ("1", None, "registered", "", 1),
    ]
    assert found["n"] == [("a", None, "registered", "named in the configuration", 4)]
    engine.dispose()


def test_counts_of_a_used_database_come_whole_into_the_newest_schema(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    migrations.upgrade(engine, "0026")
    with write(engine) as connection:
        run = connection.exec_driver_sql
        key = "model, slice, minute_us, records"
        run(f"INSERT INTO record_count ({key}) VALUES ('m', 'a', 60, 7), ('m', '', 60, 5)")
        key = "model, slot, assertion, revision, slice, minute_us, flags, kept"
        run(f"INSERT INTO flag_count ({key}) VALUES ('m', 'champion', 'x', 'r', 'a', 60, 3, 2)")
        names = "model, slot, column, hour_us, rows, nulls, payload"
        run(f"INSERT INTO sketch ({names}) VALUES ('m', 'champion', 'inputs.x', 0, 1, 0, x'00')")
    migrations.upgrade(engine)
    with engine.connect() as connection:
        counted = connection.exec_driver_sql(
            "SELECT slice, minute_us, version, records, entities FROM record_count ORDER BY slice"
        )
        assert list(map(tuple, counted)) == [("", 60, "", 5, 5), ("a", 60, "", 7, 7)]
        flags = connection.exec_driver_sql("SELECT slice, version, flags, kept, entities FROM flag_count")
        assert list(map(tuple, flags)) == [("a", "", 3, 2, 3)]
        assert "sketch" not in inspect(engine).get_table_names()
    engine.dispose()
