"""Verdicts on failures whose truth is known: false ones at any look, and records until one is found.

Production and candidate fail independently of each other. One candidate is looked at after sixteen records,
then whenever there are a tenth more, up to 10,000. The margin is 2 %.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure
from outrider.assertions.comparison.paired_outcomes import DirectedOutcomes, OutcomeVerdict
from outrider.assertions.comparison.verdict import ERROR

RUNS, ROWS, MARGIN = 200, 10_000, 0.02
PRODUCTION = (0.0, 0.02)
"""Shares of questions that production fails on."""
WITHIN = (0.0, 0.01, 0.0143, 0.02)
BEYOND = (0.03, 0.05, 0.1)
"""Further shares that the candidate fails on: within the margin, and beyond it."""
DATA = f"{RUNS} runs of {ROWS:,} records, margin 2 %"


def verdicts(production: float, more: float, seed: int) -> Iterator[OutcomeVerdict]:
    """Verdict at each look."""
    rng = np.random.default_rng([seed, int(1e4 * production), int(1e4 * more)])
    one, two = rng.random(ROWS) < production, rng.random(ROWS) < production + more
    seen, rows = DirectedOutcomes(), 0
    while rows < ROWS:
        upto = min(max(16, int(1.1 * rows) + 1), ROWS)
        seen += DirectedOutcomes.of("no answer", one[rows:upto], two[rows:upto])
        rows = upto
        yield seen.verdicts(kinds=2, margin=MARGIN)["no answer"]


Seen = list[dict[str, int]]
"""Words said in each run, with the records at which each was said first."""


def words(production: float, more: float) -> Seen:
    """Words of all runs."""
    seen: Seen = [{} for _ in range(RUNS)]
    for seed, said in enumerate(seen):
        for each in verdicts(production, more, seed):
            said.setdefault(each.word, each.rows)
    return seen


def never(name: str, seen: Seen, *false: str) -> None:
    """Show the share of runs in which no false word was said."""
    right = sum(not said.keys() & set(false) for said in seen)
    Figure.of_share(
        f"statistics.failures.{name}", right, RUNS, "share of runs", base=1 - ERROR, target=1.0, data=DATA
    ).show()


def found(name: str, seen: Seen, word: str) -> None:
    """Show in how many runs a word was said, and the records until then in the middle one."""
    hits = sum(word in said for said in seen)
    Figure.of_share(f"statistics.failures.{name}.found", hits, RUNS, "share of runs", data=DATA).show()
    rows = float(np.quantile([said.get(word, ROWS) for said in seen], 0.5))
    Figure(f"statistics.failures.{name}.records", rows, "records", f"{ROWS}", rows / ROWS, data=DATA).show()


def main() -> None:
    """Run everything."""
    for share in PRODUCTION:
        own = f"production_{100 * share:g}"
        for more in WITHIN:
            seen, name = words(share, more), f"{own}.more_{100 * more:g}"
            never(f"{name}.never_worse", seen, "worse", "better")
            if more == 0.0:
                found(f"{name}.same", seen, "same")
        for more in BEYOND:
            seen, name = words(share, more), f"{own}.more_{100 * more:g}"
            never(f"{name}.never_same", seen, "same", "close", "better")
            found(f"{name}.worse", seen, "worse")


if __name__ == "__main__":
    main()
