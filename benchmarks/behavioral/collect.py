"""Collecting 10,000 behavioral tests, against as many parametrised pytest nodes in the same run.

``python -m benchmarks.behavioral.collect``: whole processes of ``pytest --collect-only -q``, median of five
of each kind in turn, in CPU seconds, which other work on the machine lengthens less. ``collection`` is from
the start of the session to its last node, import of the suite and of what it needs included.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figure import Figure

NODES = 10_000
TARGET_S = 2.0
ROUNDS = 5
BEHAVIORAL = f"""
from outrider.behavioral_tests import MFT
for i in range({NODES}):
    globals()[f"test_{{i}}"] = MFT(cases=["a"], labels=1, capability=f"capability {{i % 10}}")
"""
PLAIN = f"""
import pytest
@pytest.mark.parametrize("i", range({NODES}))
def test_x(i): pass
"""
CLOCK = """
import time

def pytest_sessionstart(session):
    session.config.began = time.process_time()

def pytest_collection_finish(session):
    print(f"collected in {time.process_time() - session.config.began} s of {len(session.items)}")
"""
PLUGINS = ("-p", "outrider.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


def seconds(file: Path) -> tuple[float, float]:
    """CPU seconds of the collection, and of the whole process."""
    root = str(Path(__file__).parents[2])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "--collect-only", "-q", file.name],
        cwd=file.parent,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = re.search(rf"collected in ([\d.]+) s of {NODES}", done.stdout)
    assert told is not None, done.stdout[-500:]
    return float(told[1]), after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure and print; a ratio of at least 1.0 is below two seconds."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "conftest.py").write_text(CLOCK, encoding="utf-8")
        files = [Path(folder) / name for name in ("test_behavioral.py", "test_plain.py")]
        for file, text in zip(files, (BEHAVIORAL, PLAIN), strict=True):
            file.write_text(text, encoding="utf-8")
        rounds = [[seconds(file) for file in files] for _ in range(ROUNDS)]
    for at, what in enumerate(("collection", "process")):
        ours, plain = (statistics.median(each[kind][at] for each in rounds) for kind in (0, 1))
        Figure(f"behavioral.collect.{what}", ours, "CPU s", f"{TARGET_S:g} s", TARGET_S / ours, 1.0).show()
        Figure(
            f"behavioral.collect.{what}.over_plain",
            ours,
            "CPU s",
            f"{plain:.2f} s of plain nodes",
            ours / plain,
        ).show()


if __name__ == "__main__":
    main()
