"""Run a benchmark and keep what README and docs quote of it.

``python -m benchmarks.results assertions.video [its arguments]`` writes
``benchmarks/results/assertions.video.json``: command, date, machine and its load, figures and tables;
``python -m benchmarks.results --docs`` puts the tables into the docs.

A page quotes a figure as a link to that file whose title is the figure's name; the text shows its value, and
its n and interval where it has them::

    right [76 % of 34 (60 to 87)](../benchmarks/results/assertions.video.json "flicker.precision") of the time

and a table between two comments, written by ``--docs``::

    <!-- results: assertions.video sequences -->
    <!-- /results -->

``<!-- results: * targets -->`` is a row for every result file: which of its figures meet their targets.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from outrider.behavioral_tests.statistics import wilson_interval

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = re.compile(r"(<!-- results: (\S+) (\S+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def pages() -> list[Path]:
    """README, that of the benchmarks, and every page of the docs."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(benchmark: str, arguments: list[str]) -> None:
    """Run one benchmark in a process of its own and keep what it prints, which passes through.

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
    _keep(benchmark, command[1:], figures, tables)


def _keep(
    benchmark: str,
    command: Sequence[str],
    figures: Sequence[Mapping[str, Any]],
    tables: Mapping[str, str],
) -> Path:
    RESULTS.mkdir(exist_ok=True)
    held = {
        "command": " ".join(["python", *command]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
        f"load of the last 15 minutes {os.getloadavg()[2]:.0f}",
        "figures": figures,
        "tables": tables,
    }
    path = RESULTS / f"{benchmark}.json"
    path.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def with_tables(text: str) -> str:
    """A page with the tables that the result files hold today."""

    def table(found: re.Match[str]) -> str:
        if found[2] == "*":
            return f"{found[1]}{targets()}\n{found[4]}"
        path = RESULTS / f"{found[2]}.json"
        if not path.exists():  # its benchmark has not run yet; tests refuse such a page
            return found[0]
        held = json.loads(path.read_text(encoding="utf-8"))
        return f"{found[1]}{held['tables'][found[3]]}\n{found[4]}"

    return TABLE.sub(table, text)


def targets() -> str:
    """A row for every result file: its figures, and which of them miss their targets."""
    lines = [
        "| results | date | figures | meet their target | miss it: ratio of target |",
        "|---|---|---:|---:|---|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        aimed = [figure for figure in held["figures"] if figure.get("meets") is not None]
        missed = [
            f"`{one['name'].removeprefix(path.stem + '.')}` {one['ratio']:.3g} of {one['target']:.3g}"
            for one in aimed
            if not one["meets"]
        ]
        met = f"{len(aimed) - len(missed)} of {len(aimed)}" if aimed else ""
        cells = (
            f"[{path.stem}](results/{path.name})",
            held["date"],
            len(held["figures"]),
            met,
            ", ".join(missed),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Result:
    """A measured value with its interval.

    Attributes
    ----------
    n
        How many observations it is of.
    low, high
        Ends of the interval; None where the value is a plain count or a description.
    data
        Data set and part that it was measured on.
    confidence
        Of the interval; None without one.
    """

    name: str
    value: float
    unit: str
    n: int
    data: str
    low: float | None = None
    high: float | None = None
    confidence: float | None = 0.95


def share(name: str, hits: int, n: int, data: str) -> Result:
    """Share with its Wilson interval; ``n`` at least 1."""
    low, high = wilson_interval(hits, n)
    return Result(name, hits / n, "share", n, data, low, high)


def plain(name: str, value: float, unit: str, n: int, data: str) -> Result:
    """Value without an interval."""
    return Result(name, value, unit, n, data, confidence=None)


def clustered_share(name: str, hits: Sequence[int], n: Sequence[int], data: str) -> Result:
    """Share over clusters whose members are alike: ratio estimate, t with one less than their number.

    References
    ----------
    Cochran, "Sampling Techniques", 3rd edition, §3.12.
    """
    from scipy.stats import t

    right, total = np.asarray(hits, dtype=float), np.asarray(n, dtype=float)
    many, rate = len(total), right.sum() / total.sum()
    spread = np.sqrt(many / (many - 1) * ((right - rate * total) ** 2).sum()) / total.sum()
    reach = t.ppf(0.975, many - 1) * spread
    low, high = float(max(0.0, rate - reach)), float(min(1.0, rate + reach))
    return Result(name, float(rate), "share", int(total.sum()), data, low, high)


def write(benchmark: str, results: Iterable[Result], tables: Mapping[str, str] | None = None) -> Path:
    """Write the file of a benchmark that holds all its values at once, to six digits, with its tables."""
    figures = [
        {
            k: float(f"{v:.6g}") if isinstance(v, float) else v
            for k, v in asdict(one).items()
            if v is not None or k == "confidence"
        }
        for one in results
    ]
    return _keep(benchmark, ["-m", f"benchmarks.{benchmark}", *sys.argv[1:]], figures, tables or {})


def read(benchmark: str) -> dict[str, Result]:
    """Results of a benchmark by name, as they were written."""
    held = json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))
    return {line["name"]: Result(**line) for line in held["figures"]}


def main(arguments: list[str]) -> None:
    """Run the named benchmark and write its file, or write the tables of the docs."""
    if not arguments:
        raise SystemExit("usage: python -m benchmarks.results (AREA.NAME [ARGUMENT ...] | --docs)")
    if arguments != ["--docs"]:
        run(arguments[0], arguments[1:])
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (written := with_tables(text)) != text:
            page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
