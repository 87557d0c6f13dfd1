"""Expectations of groups: bounded differences of a metric."""

from collections.abc import Sequence

from outrider.assertions import Batch
from outrider.behavioral_tests.fairness import LEAST_ROWS, METRICS, GroupGap, GroupRate, Metric, group_metrics
from outrider.behavioral_tests.outcome import Measure, Measured

from .rule import Rule, named


@named
def group_gap(
    metric: Metric = "selection_rate",
    *,
    by: str | Sequence[str],
    at_most: float | None = None,
    min_ratio: float | None = None,
    prediction: str = "label",
    positive: object = 1,
    label: str = "label",
    score: str | None = None,
    least_rows: int = LEAST_ROWS,
    sure: bool = False,
) -> Rule:
    """Expect groups to differ in a metric by at most ``at_most``.

    With ``min_ratio``, the lowest metric must be at least that share of the highest. A test with this
    expectation is one case: all its examples together. Its outcome contains the metric of each group and the
    gap, each with a 95 % interval. With fewer than two groups of sufficient size it is not applicable, and
    the test is skipped: it does not pass.

    Parameters
    ----------
    metric
        One of :data:`~outrider.behavioral_tests.fairness.METRICS`; all but ``selection_rate`` need labels.
    by, prediction, positive, label, score
        As for :func:`~outrider.behavioral_tests.fairness.group_metrics`.
    at_most, min_ratio
        Largest difference and smallest ratio that pass; at least one is required.
    least_rows
        Minimum number of records behind a group's metric; smaller groups do not count, and the outcome names
        them.
    sure
        False: the estimate decides, as the failure rate of any test does. True: the test fails only if the
        whole (simultaneous 95 %) interval is beyond the limit, so that a fair model fails at most one time in
        twenty for any number of groups. Use it with few records, or if a false alarm costs more than a late
        one.

    Examples
    --------
    >>> from outrider.behavioral_tests import MFT
    >>> test = MFT(cases="applications.parquet", capability="fairness", name="test_equal_selection",
    ...     expect=group_gap("selection_rate", by=["sex", "race"], at_most=0.1, min_ratio=0.8))
    >>> test.expect.scope
    'suite'
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}")
    if at_most is None and min_ratio is None:
        raise ValueError("at_most= or min_ratio= expected, got neither: every gap would pass")
    if min_ratio is not None and metric == "calibration":
        raise ValueError("calibration is a difference with either sign: it has no ratio; say at_most=")
    if metric == "calibration" and score is None:
        raise ValueError("calibration needs score=, the output that is the probability of the positive class")

    def judge(batch: Batch) -> Measured:
        found = group_metrics(
            batch, by=by, prediction=prediction, positive=positive, label=label, score=score
        )
        gap = found.gap(metric, least_rows=least_rows)
        return _measured(found.of(metric), gap, at_most=at_most, min_ratio=min_ratio, sure=sure)

    return Rule(judge, "suite")


def _measured(
    rates: Sequence[GroupRate],
    gap: GroupGap,
    *,
    at_most: float | None,
    min_ratio: float | None,
    sure: bool,
) -> Measured:
    measures = [
        Measure(
            rate.metric, rate.value, rate.low, rate.high, rate.rows,
            f"{rate.group} (too few)" if rate.group in gap.left_out else rate.group,
        )
        for rate in rates
    ]  # fmt: skip
    rows = sum(rate.rows for rate in rates if rate.group not in gap.left_out)
    if not gap.highest:
        return Measured(float("nan"), tuple(measures))
    severity = 0.0
    pair = f"{gap.highest} - {gap.lowest}"
    measures.append(Measure("gap", gap.value, gap.low, gap.high, rows, pair))
    if at_most is not None:
        severity = max(severity, (gap.low if sure else gap.value) - at_most)
    if min_ratio is not None:
        measures.append(
            Measure("ratio", gap.ratio, gap.ratio_low, gap.ratio_high, rows, f"{gap.lowest} / {gap.highest}")
        )
        # Without a selection in any group there is no ratio, and no difference in treatment.
        ratio = gap.ratio_high if sure else gap.ratio
        severity = max(severity, min_ratio - ratio if ratio == ratio else 0.0)
    return Measured(severity, tuple(measures))
