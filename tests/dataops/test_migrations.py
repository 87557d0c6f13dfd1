import json
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

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
            manifest = json.dumps({"files": [{"added": number}], "labels": {"rows": 2}})
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
                "files": [{"added": number}],
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
