import sqlite3
import subprocess
import sys
from pathlib import Path

from outrider.monitor.migrate import migrate
from outrider.monitor.settings.config import load_settings


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
