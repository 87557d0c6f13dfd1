"""The demo over seeds: does the loop close, and what do chosen labels gain over random ones.

``python -m benchmarks.loop.demo --seeds 10 --controls 3`` runs ``outrider demo --once`` one seed behind the
other, the first ones with ``--control``. Cards, selections and training follow from the seed; seconds are by
the clock. Intervals are t intervals over seeds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, show_table
from outrider.demo.cards import FAULTS

TRAFFIC = ("healthy", "faulty", *FAULTS)
REPAIR = {
    "flagged": "faulty traffic",
    "labelled": "labels",
    "trained_and_judged": "retrain and gate",
    "in_production": "promotion reaches production",
}
"""Stages from the onset of the fault to the champion that knows it, by the names of their figures."""
Run = dict[str, Any]
PATIENT = """
import outrider.demo.loop as loop
loop.STAGE_TIMEOUT_S = 1800.0  # what else runs on the machine is nobody's failure
from outrider.cli import main
main()
"""


def demo(seed: int, *, control: bool) -> Run:
    """What one run says as JSON; a loop that does not close says so too."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PATIENT, "demo", "--once", "--json", "--seed", str(seed)]
        command += ["--folder", str(Path(folder) / "demo"), *(["--control"] if control else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if not done.stdout:
            raise RuntimeError(f"the demo with seed {seed} ended with {done.returncode}")
        found: Run = json.loads(done.stdout)
    return found


def over_seeds(name: str, values: Sequence[float], unit: str, data: str) -> Figure:
    """Mean with its t interval; of one seed without."""
    from scipy.stats import t

    value, n = statistics.fmean(values), len(values)
    if n < 2:
        return Figure(f"loop.demo.{name}", value, unit, "1", value, n=n, data=data)
    reach = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / n**0.5
    low, high = value - reach, value + reach
    return Figure(f"loop.demo.{name}", value, unit, "1", value, n=n, low=low, high=high, data=data)


def gains(runs: Sequence[Run], traffic: str) -> list[float]:
    """Points of accuracy that version 2 has over version 1 on the same frames."""
    return [100 * run["accuracy"][traffic]["gain"] for run in runs]


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Means over seeds."""
    data = f"outrider demo, seeds {runs[0]['seed']} to {runs[-1]['seed']}"
    made = [
        Figure.of_share(
            "loop.demo.closed", sum(r["closed"] for r in runs), len(runs), "of loops", target=1.0, data=data
        )
    ]
    for traffic in TRAFFIC:
        made.append(over_seeds(f"{traffic}.gain", gains(runs, traffic), "points", data))
        for version, when in (("version_1", "before"), ("version_2", "after")):
            shares = [100 * run["accuracy"][traffic][when] for run in runs]
            made.append(over_seeds(f"{traffic}.{version}", shares, "% right", data))
    made.append(over_seeds("fires_down", [100 * run["fires_down"] for run in runs], "%", data))
    controls = [run for run in runs if "control" in run]
    if controls:
        random, both = (
            [run["control"] for run in controls],
            f"{data}; the first {len(controls)}, the same cards",
        )
        for name, of in (("chosen", controls), ("at_random", random)):
            made.append(over_seeds(f"faulty.gain.{name}", gains(of, "faulty"), "points", both))
        more = [a - b for a, b in zip(gains(controls, "faulty"), gains(random, "faulty"), strict=True)]
        made.append(over_seeds("faulty.gain.over_random", more, "points", both))
    for name, seconds in (
        ("seconds", [run["seconds"]["in all"] for run in runs]),
        ("first_flag", [run["first_flag_s"] for run in runs]),
        ("repair", [sum(run["seconds"][stage] for stage in REPAIR.values()) for run in runs]),
        *((f"repair.{name}", [run["seconds"][stage] for run in runs]) for name, stage in REPAIR.items()),
    ):
        value = statistics.median(seconds)
        clock = f"{data}, by the clock, other work beside them; median, least and most"
        low, high = min(seconds), max(seconds)
        made.append(
            Figure(f"loop.demo.{name}", value, "s", "1", value, n=len(runs), low=low, high=high, data=clock)
        )
    return made


def table(runs: Sequence[Run]) -> str:
    """A row per seed."""
    lines = [f"| seed | {' | '.join(TRAFFIC)} | fires |", f"|---|{'---|' * len(TRAFFIC)}---|"]
    for run in runs:
        pairs = [run["accuracy"][traffic] for traffic in TRAFFIC]
        cells = [f"{100 * pair['before']:.1f} > {100 * pair['after']:.1f}" for pair in pairs]
        fires = f"\N{MINUS SIGN}{100 * run['fires_down']:.0f} %"
        lines.append(f"| {run['seed']} | {' | '.join(cells)} | {fires} |")
    return "\n".join(lines)


def main() -> None:
    """Run the seeds, print figures and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--controls", type=int, default=3)
    options, _ = parser.parse_known_args()
    runs = []
    for number in range(options.seeds):
        runs.append(demo(options.first + number, control=number < options.controls))
        print(f"seed {runs[-1]['seed']}: closed {runs[-1]['closed']}", file=sys.stderr, flush=True)
    for figure in figures(runs):
        figure.show()
    show_table("seeds", table(runs))


if __name__ == "__main__":
    main()
