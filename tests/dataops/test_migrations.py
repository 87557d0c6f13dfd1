from pathlib import Path

import pytest
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
