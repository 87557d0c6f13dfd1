"""Real programs that some tests use: skipped with the install line where absent, demanded in CI."""

import os
import shutil

import pytest


def require_program(name: str, install_line: str) -> str:
    """Path of a program; skips the test when it is absent, fails it under ``OUTRIDER_REQUIRE_ALL=1``."""
    found = shutil.which(name)
    if found is not None:
        return found
    message = f"{name} is not installed: {install_line}"
    if os.environ.get("OUTRIDER_REQUIRE_ALL") == "1":
        pytest.fail(message)
    pytest.skip(message)
