"""The wheel, installed outside of the repository: starts a project, serves it, judges a record, stops."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.service import Service, wait_until
from tests.soak import PATIENCE_S

RECORD = {
    "model": "tumours",
    "id": "a1",
    "inputs": {"radius": 21.0, "texture": 18.0, "smoothness": 0.11, "concavity": 0.02},
    "outputs": {"label": "benign", "score": 0.6, "margin": 0.2},
}


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the wheel's files, which are imported instead of the repository's."""
    folder = tmp_path_factory.mktemp("installed")
    [wheel] = built.glob("outrider-*.whl")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Output of ``outrider`` as its entry point runs it."""
    done = subprocess.run(
        [sys.executable, str(installed / "bin" / "outrider"), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.costly("the wheel is built, installed and run")
def test_the_installed_wheel_takes_a_newcomer_from_nothing_to_a_flag(installed: Path, tmp_path: Path) -> None:
    where = "import outrider; print(outrider.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)
    assert run(installed, tmp_path, "--version") == f"outrider {release_version()}\n"
    run(installed, tmp_path, "init", "--modality", "tabular")
    assert "ok" in run(installed, tmp_path, "check-config")
    config = tmp_path / "outrider.toml"
    with Service(config, is_new=True, env={"PYTHONPATH": str(installed)}) as service:
        assert service.client.post("/v1/records", json=RECORD).status_code == 202
        wait_until(
            lambda: bool(service.client.get("/v1/flags", params={"model": "tumours"}).json()["flags"]),
            "a flag",
            service,
        )
        for path in ("/m/tumours", "/static/app.js", "/openapi.json", "/m/tumours/flags"):
            assert service.client.get(path).status_code == 200, path
        assert service.stop() == 0


def test_the_installed_wheel_writes_dashboards(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "export", "dashboards", "--to", str(tmp_path / "out"))
    assert len(list((tmp_path / "out").iterdir())) >= 2


def release_version() -> str:
    """Version that the project states."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    return text.partition('\nversion = "')[2].partition('"')[0]
