"""Expectations of a model's new answer.

An expectation of rows is a function of ``before`` (the cases; for INV and DIR with the answers to the
unchanged inputs) and ``after`` (the same records with the answers under test). It returns one value per row:
a bool (True = met), or a float severity (0.0 = met, > 0 = violated, larger is worse, NaN = not applicable).
Any such function is an expectation; those defined here are :class:`Rule` objects, which combine with ``&``
and ``|``, can be narrowed with :meth:`Rule.where`, and can be written into a suite file.

Missing answers (None or NaN): if the original answer, or the label, is missing, there is nothing to compare
with, and the row is not applicable; if only the answer under test is missing, it failed (severity 1.0). All
expectations defined here follow that rule.

A field such as ``"probs[1]"`` picks one element of a vector, ``"probs[label]"`` the one that belongs to the
class of the original answer. Where ``probs`` is one number, the confidence in the predicted class,
``"probs[label]"`` is that, negated if the predicted class differs from the original's, as in CheckList.
"""

from .cases import agree, ordered, spread
from .fairness import group_gap
from .reading import severities
from .rows import changed, equal, in_set, invariant, monotone, not_equal, same, shift, within
from .rule import (
    Expectation,
    Rule,
    Scope,
    all_of,
    any_of,
    case,
    from_spec,
    pairwise,
    single,
    spec_of,
    suite,
    where,
)
from .texts import contains, length, matches, not_contains, similar, valid_json

__all__ = [
    "Expectation",
    "Rule",
    "Scope",
    "agree",
    "all_of",
    "any_of",
    "case",
    "changed",
    "contains",
    "equal",
    "from_spec",
    "group_gap",
    "in_set",
    "invariant",
    "length",
    "matches",
    "monotone",
    "not_contains",
    "not_equal",
    "ordered",
    "pairwise",
    "same",
    "severities",
    "shift",
    "similar",
    "single",
    "spec_of",
    "spread",
    "suite",
    "valid_json",
    "where",
    "within",
]
