"""What users can call stands in the documentation."""

import re
from pathlib import Path

import pytest
from fastapi import FastAPI

from outrider.cli import COMMANDS
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.state.database import open_database
from outrider.monitor.server.app import build_app
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service
from tests.keyrings import keyring_in

ROOT = Path(__file__).parents[1]


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    settings = Settings(
        base=tmp_path, storage=StorageSettings(folder="data"), models={"m": ModelSettings(predictor="m.py:f")}
    )
    settings.data_folder.mkdir()
    SqliteJournal(settings.journal_path).close()
    open_database(settings.database_url).dispose()
    return build_app(
        fault=lambda: None, routers=[every_router(Service.open(settings, keyring_in(settings.data_folder)))]
    )


def test_every_route_of_the_api_is_described(app: FastAPI) -> None:
    text = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    routes = [
        f"{method.upper()} {path.replace(':path', '')}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    ]
    assert len(routes) > 20
    assert [route for route in routes if f"`{route}`" not in text] == []


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []


def test_gpu_settings_without_figures_are_called_experimental() -> None:
    if "GPU figures are not measured" not in (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8"):
        return
    lines = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and re.search("gpu|cuda", line, re.IGNORECASE)]
    assert len(rows) >= 5
    assert [row for row in rows if "experimental" not in row] == []


def test_every_block_of_the_readme_runs_behind_the_one_before() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "test_equal_shares" in names
