import hashlib
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write
from outrider.errors import ConfigError

TABLES = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name != 'alembic_version' ORDER BY name"


def test_migrated_database_equals_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, SQLModel.metadata) == []


def test_head_is_the_digest_of_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        tables = "\n".join(connection.exec_driver_sql(TABLES).scalars())
    assert hashlib.sha256(tables.encode()).hexdigest()[:16] == migrations.HEAD, (
        "write it into migrations.HEAD"
    )


def test_upgrade_of_a_current_database_changes_nothing(engine: Engine) -> None:
    assert migrations.is_current(str(engine.url))
    migrations.upgrade(engine)
    assert migrations.is_current(str(engine.url))


@pytest.mark.parametrize("revision", ["0037", "f" * 16])
def test_database_of_another_layout_is_refused_and_left_as_it_is(engine: Engine, revision: str) -> None:
    with write(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = ?", (revision,))
    path = Path(str(engine.url.database))
    with pytest.raises(ConfigError, match=rf"{path} has tables of another layout.* move {path.parent} away"):
        migrations.is_current(str(engine.url))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == revision


def test_a_failed_upgrade_leaves_no_tables(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    with write(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE strike (clash INTEGER)")
    with pytest.raises(OperationalError, match="strike"):
        migrations.upgrade(engine)
    assert inspect(engine).get_table_names() == ["strike"]
    engine.dispose()
