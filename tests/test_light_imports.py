"""What must start fast does not import what takes seconds."""

import json
import os
import subprocess
import sys

import pytest

SLOW = ["torch", "great_expectations", "transformers", "peft", "sklearn"]
OUTSIDE = [*SLOW, "pandas", "numpy", "pyarrow", "pydantic", "fastapi", "sqlmodel", "httpx", "rich"]
AT_REST = [*SLOW, "pandas", "scipy", "matplotlib", "alembic", "rich"]
"""Memory that each process of the service would hold for nothing (`benchmarks/live_path/rest.py`)."""
ARRAYS = [*SLOW, "pandas", "numpy", "pyarrow", "fastapi", "sqlalchemy"]


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
        ("import outrider.assertions", [*SLOW, "pandas"]),
        ("import outrider.behavioral_tests", [*SLOW, "pandas", "scipy"]),
        (HELP, [*SLOW, "pandas", "pyarrow", "pydantic"]),
        ("import outrider; outrider.open_dataset", [*SLOW, "pandas", "pyarrow"]),
        ("import outrider.dataops.loaders.mapped_rows", [*SLOW, "pandas"]),
        ("import outrider.commands.dataset", [*SLOW, "pandas", "pyarrow"]),
        ("import outrider.pytest_plugin", [*SLOW, "pandas", "numpy", "pyarrow"]),
        ("import outrider.monitor.client", OUTSIDE),
        ("import outrider.train", OUTSIDE),
        ("import outrider.monitor.process.supervisor", OUTSIDE),
        (
            "import outrider.commands.serve, outrider.monitor.http.keyring, outrider.monitor.http.hosts",
            ARRAYS,
        ),
        ("import outrider.monitor.settings.config", ARRAYS),
        ("import outrider.monitor.server.process, outrider.monitor.views.every", AT_REST),
        ("import outrider.monitor.worker.process", [*AT_REST, "fastapi", "jinja2"]),
        ("import outrider.monitor.trainer.process", [*AT_REST, "fastapi", "jinja2"]),
        ("import outrider.monitor.host.process", [*AT_REST, "fastapi", "jinja2", "sqlalchemy"]),
        ("import outrider.monitor.engine.process", [*AT_REST, "fastapi", "jinja2", "sqlalchemy", "pydantic"]),
    ],
)
def test_importing_leaves_slow_libraries_out(code: str, absent: list[str]) -> None:
    assert sorted(modules_after(code) & set(absent)) == []


ARROW = """
from outrider.monitor.process.late_pandas import keep_pandas_out
keep_pandas_out()
import pyarrow
pyarrow.array([1, None]).to_numpy(zero_copy_only=False)
"""


def test_arrays_leave_pandas_out_until_somebody_imports_it() -> None:
    assert "pandas" not in modules_after(ARROW)
    assert "pandas" in modules_after(f"{ARROW}assert pyarrow.array([1, None]).to_pandas().isna().sum() == 1")
    series = "import pandas; assert pyarrow.array(pandas.Series([0.5, float('nan')])).null_count == 1"
    assert "pandas" in modules_after(ARROW + series)
