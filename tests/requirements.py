"""Real programs and data that some tests use: skipped with the reason where absent, demanded in CI."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks.data import data_folder


def require_program(name: str, install_line: str) -> str:
    """Path of a program; skips the test when it is absent, fails it under ``OUTRIDER_REQUIRE_ALL=1``."""
    found = shutil.which(name)
    return found if found is not None else _absent(f"{name} is not installed: {install_line}")


def require_data(name: str) -> Path:
    """Folder of a shared data set; skips the test when it is absent, fails it under
    ``OUTRIDER_REQUIRE_ALL=1``."""
    try:
        return data_folder(name)
    except FileNotFoundError as error:
        return _absent(str(error))


def _absent(message: str) -> NoReturn:
    if os.environ.get("OUTRIDER_REQUIRE_ALL") == "1":
        pytest.fail(message)
    pytest.skip(message)
