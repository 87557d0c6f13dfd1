"""A release of the last commit, built once for the tests of a process."""

import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest

from deploy import release
from tests.requirements import require_program

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of everything that ``make release`` builds."""
    require_program("git", "apt-get install -y git")
    folder = tmp_path_factory.mktemp("dist")
    release.build(folder)
    return folder


@pytest.fixture(scope="session")
def base_packages() -> list[str]:
    """Packages that ``pip install outrider`` brings, without any part."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(release.required(project["dependencies"]))


@pytest.fixture(scope="session")
def base_python(built: Path, base_packages: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel and what it requires, and nothing else.

    The packages are linked from the environment of the tests: no index is asked.
    """
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python3.*/site-packages")
    for name in base_packages:
        for file in metadata.files(name) or ():
            source = Path(str(file.locate()))
            target = site / file.parts[0]
            if file.parts[0] in ("..", "__pycache__") or target.exists():
                continue
            target.symlink_to(Path(*source.parts[: len(source.parts) - len(file.parts) + 1]))
    [wheel] = built.glob("outrider-*.whl")
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-index"]
    subprocess.run([*command, "--no-deps", str(wheel)], check=True, capture_output=True)
    return folder / "bin" / "python"
