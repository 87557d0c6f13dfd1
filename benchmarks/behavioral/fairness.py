"""The suite of examples/fairness on two models of adult_census: one fails it, a mitigated one passes.

``python -m benchmarks.behavioral.fairness`` prints rates, gaps and what passing costs; the table is that of
docs/fairness.md.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.behavioral_tests import Outcome, load_suite
from outrider.behavioral_tests.statistics import paired_difference
from outrider.model_reference import load_predictor

EXAMPLE = Path(__file__).parents[2] / "examples" / "fairness"
MODELS = ("reference", "mitigated")
RIGHT = "test_it_is_still_right"


def run(model: str) -> dict[str, Outcome]:
    """Outcomes of the suite by name; the environment says where the data are (``ADULT_CENSUS``)."""
    suite = load_suite(EXAMPLE / "behavior" / "test_fairness.py")
    outcomes = suite.run(load_predictor(f"model.py:{model}", folder=EXAMPLE))
    return {outcome.name: outcome for outcome in outcomes}


def table(models: Mapping[str, Mapping[str, Outcome]]) -> str:
    """What every test says of every model."""
    lines = [f"| | {' | '.join(models)} |", f"|---|{'---|' * len(models)}"]
    for name in next(iter(models.values())):
        cells = [f"**{outcomes[name].status}** {_shown(outcomes[name])}" for outcomes in models.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(outcome: Outcome) -> str:
    if not outcome.measures:
        return f"{outcome.rate:.1%} [{outcome.low:.1%}, {outcome.high:.1%}] of {outcome.cases:,}"
    return "<br>".join(
        f"{each.group if each.name != 'gap' else 'gap'} {each.value:.3f} [{each.low:.3f}, {each.high:.3f}]"
        for each in outcome.measures
    )


def cost(before: Outcome, after: Outcome, data: str) -> Figure:
    """Accuracy that the second model gives up, on the same rows."""
    assert before.ran is not None
    assert after.ran is not None
    wrong, still = set(before.ran.failed.tolist()), set(after.ran.failed.tolist())
    low, high = paired_difference(len(wrong - still), len(still - wrong), before.cases)
    lost = 100 * (after.rate - before.rate)
    name, unit = "behavioral.fairness.cost", "points of accuracy"
    return Figure(name, lost, unit, "0", lost, n=before.cases, low=100 * low, high=100 * high, data=data)


def main() -> None:
    """Print the figures and the table."""
    os.environ["ADULT_CENSUS"] = str(data_folder("adult_census") / "adult.parquet")
    models = {model: run(model) for model in MODELS}
    data = "adult_census, the last 8,561 rows"
    for model, outcomes in models.items():
        for name, outcome in outcomes.items():
            for each in outcome.measures:
                kind = f"{name.removeprefix('test_')}.{'gap' if each.name == 'gap' else each.group}"
                stem, rows = f"behavioral.fairness.{model}.{kind}", each.rows
                low, high = each.low, each.high
                Figure(
                    stem, each.value, each.name, "1", each.value, n=rows, low=low, high=high, data=data
                ).show()
            if not outcome.measures:
                stem = f"behavioral.fairness.{model}.{name.removeprefix('test_')}"
                failed = outcome.failures
                Figure.of_share(stem, failed, outcome.cases, "of rows failed", data=data).show()
    cost(models["reference"][RIGHT], models["mitigated"][RIGHT], data).show()
    show_table("adult", table(models))


if __name__ == "__main__":
    main()
