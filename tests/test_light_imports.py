"""What must start fast does not import what takes seconds."""

import json
import os
import subprocess
import sys

import pytest

SLOW = ["torch", "great_expectations", "transformers", "peft", "sklearn"]
OUTSIDE = [*SLOW, "pandas", "numpy", "pyarrow", "pydantic", "fastapi", "sqlmodel", "httpx", "rich"]


def modules_after(code: str) -> set[str]:
    """Modules in a fresh process after running ``code``."""
    script = f"{code}\nimport json, sys\nsys.stderr.write('\\n' + json.dumps(sorted(sys.modules)))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_VERSION"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(json.loads(done.stderr.splitlines()[-1]))


HELP = """
import runpy, sys
sys.argv = ["outrider", "--help"]
try:
    runpy.run_module("outrider", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import outrider.assertions", SLOW),
        ("import outrider.behavioral_tests", [*SLOW, "scipy"]),
        (HELP, [*SLOW, "pandas", "pyarrow", "pydantic"]),
        ("import outrider.pytest_plugin", [*SLOW, "pandas", "numpy", "pyarrow"]),
        ("import outrider.monitor.client", OUTSIDE),
        ("import outrider.monitor.process.supervisor", OUTSIDE),
    ],
)
def test_importing_leaves_slow_libraries_out(code: str, absent: list[str]) -> None:
    assert sorted(modules_after(code) & set(absent)) == []
