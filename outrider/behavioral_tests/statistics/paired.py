"""Difference of two models, from verdicts on the same cases."""

import math
from collections.abc import Sequence
from statistics import NormalDist


def mcnemar_p(only_one: int, only_other: int) -> float:
    """McNemar's exact two-sided p value for equal failure rates.

    Cases on which both fail or both pass are uninformative; if the models are equally good, each of the
    others falls to either side with probability 1/2.

    The exact conditional test, not its mid-p variant: promotions are refused by this value, over a matrix of
    tests, so its level must hold for any counts, and Holm's correction needs valid levels. Mid-p is a little
    more powerful and nearly always keeps the level (Fagerland et al., "The McNemar test for binary
    matched-pairs data", BMC Medical Research Methodology 2013), but without guarantee.

    Parameters
    ----------
    only_one, only_other
        Number of cases that only one (only the other) model failed.

    References
    ----------
    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages",
    Psychometrika 1947.

    Examples
    --------
    >>> round(mcnemar_p(6, 16), 6), mcnemar_p(0, 0)
    (0.052479, 1.0)
    """
    if min(only_one, only_other) < 0:
        raise ValueError(f"counts >= 0 expected, got {only_one} and {only_other}")
    from scipy.special import bdtr  # half a second, which only comparisons need

    tail = float(bdtr(min(only_one, only_other), only_one + only_other, 0.5))
    return min(1.0, 2 * tail)


def paired_difference(
    only_one: int, only_other: int, cases: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of the difference of two models' failure rates.

    The other model's rate less the first one's, on the same cases. Wald's interval with one additional case
    in each count and two in total. Its coverage is better than that of the plain interval if models hardly
    differ, and its width is never 0.

    Parameters
    ----------
    only_one, only_other
        Number of cases that only one (only the other) model failed.

    Returns
    -------
    tuple of float
        Lower and upper bound in [-1, 1]; (-1.0, 1.0) without cases.

    References
    ----------
    Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data", Journal of Educational and Behavioral Statistics 2012.

    Examples
    --------
    >>> [round(bound, 4) for bound in paired_difference(16, 6, 161)]
    [-0.1195, -0.0032]
    """
    if min(only_one, only_other) < 0 or only_one + only_other > cases:
        raise ValueError(
            f"counts >= 0 and at most {cases} together expected, got {only_one} and {only_other}"
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if cases == 0:
        return -1.0, 1.0
    one, other = (only_one + 1) / (cases + 2), (only_other + 1) / (cases + 2)
    difference = other - one
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    half = z * math.sqrt((one + other - difference**2) / (cases + 2))
    return max(-1.0, difference - half), min(1.0, difference + half)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p values.

    Comparing them with ``alpha`` bounds the probability of any false alarm (step-down procedure). The
    procedure is valid under any dependence; tests of one suite share a model, and often cases. A refused
    promotion depends on any false alarm; Benjamini and Hochberg's procedure controls their share among the
    alarms, needs independence or positive dependence, and allows more false single verdicts.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
