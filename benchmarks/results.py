"""Run a benchmark and keep what README and docs quote of it.

``python -m benchmarks.results assertions.video [its arguments]`` writes
``benchmarks/results/assertions.video.json``: command, date, machine, figures and tables;
``python -m benchmarks.results --docs`` puts the tables into the docs.

A page quotes a figure as a link to that file whose title is the figure's name; the text shows its value, and
its n and interval where it has them::

    right [76 % of 34 (60 to 87)](../benchmarks/results/assertions.video.json "flicker.precision") of the time

and a table between two comments, written by ``--docs``::

    <!-- results: assertions.video sequences -->
    <!-- /results -->
"""

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = re.compile(r"(<!-- results: (\S+) (\S+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def pages() -> list[Path]:
    """README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(benchmark: str, arguments: list[str]) -> dict[str, Any]:
    """Run one benchmark in a process of its own; its output passes through.

    Raises
    ------
    SystemExit
        With the benchmark's own status, if that is not 0.
    """
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments]
    figures: list[dict[str, Any]] = []
    tables: dict[str, str] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("{"):
                found = json.loads(line)
                if "table" in found:
                    tables[found["table"]] = found["markdown"]
                else:
                    figures.append(found)
    if process.returncode:
        raise SystemExit(process.returncode)
    return {
        "command": " ".join(["python", *command[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "figures": figures,
        "tables": tables,
    }


def with_tables(text: str) -> str:
    """A page with the tables that the result files hold today."""

    def table(found: re.Match[str]) -> str:
        held = json.loads((RESULTS / f"{found[2]}.json").read_text(encoding="utf-8"))
        return f"{found[1]}{held['tables'][found[3]]}\n{found[4]}"

    return TABLE.sub(table, text)


def main(arguments: list[str]) -> None:
    """Run the named benchmark and write its file, or write the tables of the docs."""
    if not arguments:
        raise SystemExit("usage: python -m benchmarks.results (AREA.NAME [ARGUMENT ...] | --docs)")
    if arguments != ["--docs"]:
        RESULTS.mkdir(exist_ok=True)
        result = json.dumps(run(arguments[0], arguments[1:]), indent=1, ensure_ascii=False)
        (RESULTS / f"{arguments[0]}.json").write_text(f"{result}\n", encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (written := with_tables(text)) != text:
            page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
