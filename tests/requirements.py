"""Real programs and data that some tests use: skipped with the reason where absent, demanded in CI."""

import importlib
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from benchmarks.data import data_folder


def require_program(name: str, install_line: str) -> str:
    """Path of a program; skips the test when it is absent, fails it under ``OUTRIDER_REQUIRE_ALL=1``."""
    # Debian keeps servers such as nginx where users do not look.
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")
    if found is None:
        _absent(f"{name} is not installed: {install_line}")
    return found


def require_package(name: str, install_line: str) -> ModuleType:
    """A package of an extra; skips the test where it is absent, fails it as above."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        _absent(f"{name} is not installed: {install_line}")


def require_data(name: str) -> Path:
    """Folder of a shared data set; skips the test where it is absent, fails it as above."""
    try:
        return data_folder(name)
    except FileNotFoundError as error:
        _absent(str(error))


def _absent(message: str) -> NoReturn:
    if os.environ.get("OUTRIDER_REQUIRE_ALL") == "1":
        pytest.fail(message)
    pytest.skip(message)
