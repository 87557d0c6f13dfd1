"""A real sentiment model meets CheckList's whole suite through pytest; the matrix is that of the docs.

``python -m benchmarks.behavioral.sentiment`` trains examples/sentiment on SST-2, imports CheckList's suite,
and runs pytest on it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table

ROOT = Path(__file__).parents[2]
SENTENCES = 872
"""Whole sentences that the accuracy is of."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What the commands gave: pytest's JSON, the accuracy on whole sentences, and seconds of each step."""

    report: dict[str, Any]
    accuracy: float
    seconds: dict[str, float]
    summary: str


def main() -> None:
    """Run, print figures and the matrix."""
    with tempfile.TemporaryDirectory() as folder:
        ran = run(Path(folder))
    right = round(SENTENCES * ran.accuracy)
    data = "sst2, whole sentences that nobody trained on"
    Figure.of_share("behavioral.sentiment.accuracy", right, SENTENCES, "right", data=data).show()
    for kind, failed, cases in totals(ran):
        name, data = f"behavioral.sentiment.failed.{kind}", f"CheckList's sentiment suite, {kind}"
        Figure.of_share(name, failed, cases, "of cases failed", data=data).show()
    for step, seconds in ran.seconds.items():
        name, data = f"behavioral.sentiment.seconds.{step}", "one run, by the clock"
        Figure(name, seconds, "s", "1", seconds, n=1, data=data).show()
    show_table("matrix", block(ran))


def totals(ran: Ran) -> list[tuple[str, int, int]]:
    """Failed and asked cases by capability."""
    found: dict[str, list[int]] = {}
    for test in ran.report["tests"]:
        counts = found.setdefault(test["capability"], [0, 0])
        counts[0] += test["failures"]
        counts[1] += test["cases"]
    return [(kind.lower(), failed, cases) for kind, (failed, cases) in found.items()]


def run(folder: Path) -> Ran:
    """Train, import and test in ``folder``, by the commands that the page shows."""
    sst2, checklist = data_folder("sst2"), data_folder("checklist")
    project = folder / "sentiment"
    shutil.copytree(ROOT / "examples" / "sentiment", project, ignore=shutil.ignore_patterns("__pycache__"))
    suite = project / "behavior" / "sentiment.suite.json"
    suite.parent.mkdir()
    seconds: dict[str, float] = {}
    outrider = [sys.executable, "-m", "outrider"]
    trained = _timed(seconds, "train", [sys.executable, "train.py", str(sst2)], project)
    source = str(checklist / "sentiment_suite.jsonl.gz")
    _timed(seconds, "import", [*outrider, "test", "import", source, "--output", str(suite)], project)
    pytest = [
        sys.executable, "-m", "pytest", "-p", "outrider.pytest_plugin", "-p", "no:cacheprovider",
        "-q", "--tb=no", "behavior", "--outrider-model", "model.py:predict", "--outrider-json", "report.json",
    ]  # fmt: skip
    summary = _timed(seconds, "pytest", pytest, project, failing=True)
    report = json.loads((project / "report.json").read_text(encoding="utf-8"))
    return Ran(report, float(trained.split()[-1]), seconds, summary)


def block(ran: Ran) -> str:
    """What stands between the marks of the page."""
    tests, asked = ran.report["tests"], sum(test["asked"] for test in ran.report["tests"])
    cases = sum(test["cases"] for test in tests)
    lines = [
        f"{len(tests)} tests, {asked:,} examples, {cases:,} cases that applied; accuracy on whole sentences "
        f"{ran.accuracy:.3f}.",
        "",
        "```text",
        *_matrix(ran.summary),
        "```",
        "",
        "| capability | test | type | failed / cases | rate | 95 % interval |",
        "|---|---|---|---:|---:|---|",
        *(_row(test) for test in tests),
        "",
    ]
    return "\n".join(lines)


def _matrix(summary: str) -> list[str]:
    """The matrix as pytest prints it."""
    lines = summary.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("capability"))
    stop = next(at for at in range(start, len(lines)) if not lines[at].strip() or lines[at].startswith("="))
    return [line.rstrip() for line in lines[start:stop]]


def _row(test: dict[str, Any]) -> str:
    name = test["name"].replace("|", r"\|")
    counts = f"{test['failures']:,} / {test['cases']:,}"
    interval = f"{test['low']:.1%} to {test['high']:.1%}"
    return f"| {test['capability']} | {name} | {test['kind']} | {counts} | {test['rate']:.1%} | {interval} |"


def _timed(
    seconds: dict[str, float], step: str, command: list[str], folder: Path, *, failing: bool = False
) -> str:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": paths, "NO_COLOR": "1", "COLUMNS": "120"}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds[step] = time.perf_counter() - start
    if done.returncode not in ((0, 1) if failing else (0,)):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
