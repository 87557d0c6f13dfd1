import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from outrider.monitor.migrate import migrate
from outrider.monitor.settings.config import load_settings
from tests.databases import place_database


def test_creates_the_database_once(tmp_path: Path) -> None:
    config = tmp_path / "outrider.toml"
    config.write_text("")
    subprocess.run([sys.executable, "-m", "outrider.monitor.migrate", "--config", str(config)], check=True)
    folder = tmp_path / "outrider-data"
    assert folder.stat().st_mode & 0o777 == 0o700
    connection = sqlite3.connect(folder / "state.db")
    assert connection.execute("SELECT count(*) FROM flag").fetchone() == (0,)
    connection.close()
    assert migrate(load_settings(config)) is False


def test_service_refuses_a_folder_of_another_layout_in_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "outrider.toml"
    config.write_text("[models.m]\n")
    folder = tmp_path / "outrider-data"
    folder.mkdir()
    place_database(folder / "state.db")
    with closing(sqlite3.connect(folder / "state.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0037'")
    command = [sys.executable, "-m", "outrider", "serve", "--config", str(config), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    [said] = done.stderr.strip().splitlines()
    assert "has tables of another layout" in said
    assert f"move {folder} away" in said
