"""Expectations that see more than one answer.

All examples of a case, or all examples of a test.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .rule import Rule


def case(judge: Callable[[Batch, NDArray[np.intp]], NDArray[Any]]) -> Rule:
    """Expectation of whole cases.

    Parameters
    ----------
    judge
        Function of (examples with their answers, case number of each). Examples of a case stand together, the
        original first; cases are numbered from 0. It returns one value per case: a bool (True = met), or a
        severity.

    Examples
    --------
    >>> def one_answer(examples, case):
    ...     labels = examples.column("outputs.label")
    ...     first = labels[np.searchsorted(case, case)]  # of the case's first example
    ...     return np.bincount(case, weights=labels != first) == 0
    >>> rule = case(one_answer)
    >>> rule.scope
    'case'
    """
    return Rule(judge, "case")


def suite(judge: Callable[[Batch], Any]) -> Rule:
    """Expectation of all examples of a test together.

    Such as a rate or a gap between groups.

    Parameters
    ----------
    judge
        Function of the examples with their answers. It returns one bool (True = met), a severity, or a
        :class:`~outrider.behavioral_tests.outcome.Measured` with the figures behind it.
    """
    return Rule(judge, "suite")
