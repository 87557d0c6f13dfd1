"""CPU seconds to choose 200 of 100,000 records under 20 assertions, per policy, against drawing at random."""

import statistics
import time

import numpy as np

from benchmarks.figure import Figure
from outrider.assertions.selection import POLICIES, SelectionState, select

RECORDS, ASSERTIONS, BUDGET, RUNS = 100_000, 20, 200, 3
EMBEDDING, CLASSES = 64, 10


def main() -> None:
    """Measure every policy on the same matrix."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.001, 0.1, ASSERTIONS)
    severities = np.where(rng.random((RECORDS, ASSERTIONS)) < rates, rng.random((RECORDS, ASSERTIONS)), 0.0)
    groups = (np.arange(RECORDS) // 5).astype(object)
    state = SelectionState().observe(severities).bought(severities[:100], rng.random(100) < 0.3)
    state = state.count(RECORDS, ((severities > 0).sum(axis=0) * 0.9).astype(int).tolist())
    embeddings = rng.normal(size=(RECORDS, EMBEDDING)).astype(np.float32)
    probabilities = rng.dirichlet(np.ones(CLASSES), RECORDS)

    def seconds(policy: str) -> float:
        taken = []
        for seed in range(RUNS):
            start = time.process_time()
            found = select(
                severities,
                budget=BUDGET,
                policy=policy,  # type: ignore[arg-type]  # one of POLICIES
                seed=seed,
                state=state,
                groups=groups,
                uncertainty=probabilities[:, 0],
                embeddings=embeddings if policy in ("badge", "adaptive") else None,
                probabilities=probabilities,
            )
            taken.append(time.process_time() - start)
            assert len(found.rows) == BUDGET
        return statistics.median(taken)

    floor = seconds("random")
    data = (
        f"{RECORDS:,} simulated records x {ASSERTIONS} assertions, {BUDGET} picks, one per group of 5; "
        "CPU seconds of the process, median"
    )
    for policy in POLICIES:
        value = seconds(policy)
        against = f"policy random, {floor:.3f} s"
        Figure(f"assertions.selection.{policy}", value, "s", against, value / floor, n=RUNS, data=data).show()


if __name__ == "__main__":
    main()
