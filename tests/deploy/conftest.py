"""A release of the last commit, built once for the tests of a process."""

from pathlib import Path

import pytest

from deploy import release
from tests.requirements import require_program


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of everything that ``make release`` builds."""
    require_program("git", "apt-get install -y git")
    folder = tmp_path_factory.mktemp("dist")
    release.build(folder)
    return folder
