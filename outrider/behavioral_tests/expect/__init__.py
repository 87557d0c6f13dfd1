"""Expectations of a model's new answer.

An expectation of rows is a function of ``before`` (the cases; for INV and DIR with the answers to the
unchanged inputs) and ``after`` (the same records with the answers under test). It returns one value per row:
a bool (True = met), or a float severity (0.0 = met, above = violated by so much, NaN = not applicable). Any
function of that shape is an expectation; those made here are :class:`Rule` objects, which combine with ``&``
and ``|``, can be narrowed with :meth:`Rule.where`, and can be written into a suite file.

Answers that are missing (None or NaN): where the original, or the label, is missing there is nothing to hold
the answer against, and the row is not applicable; where only the answer under test is missing, it failed
(severity 1.0). Every expectation made here keeps to that.

A field such as ``"probs[1]"`` picks one element of a vector, ``"probs[label]"`` the one that belongs to the
class of the original answer. Where ``probs`` is one number, the confidence in the predicted class,
``"probs[label]"`` is that, and minus that where the class is another one than the original's: CheckList's
reading of models that tell no more.
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
