"""Expectations: what the new answer must look like.

An expectation of rows is a function of ``before`` (the cases; for INV and DIR with the answers to the
unchanged inputs) and ``after`` (the same records with the answers under test). It returns one value per row:
a bool (True = met), or a float severity (0.0 = met, above = violated by so much, NaN = not applicable). Any
function of that shape is an expectation; those made here are :class:`Rule` objects, which combine with ``&``
and ``|``, can be narrowed with :meth:`Rule.where`, and can be written into a suite file.

A field such as ``"probs[1]"`` picks one element of a vector, ``"probs[label]"`` the one that belongs to the
class of the original answer.
"""

from .fairness import group_gap
from .groups import case, suite
from .reading import severities
from .rows import changed, equal, in_set, invariant, monotone, not_equal, same, shift, within
from .rule import Expectation, Rule, Scope, all_of, any_of, from_spec, single, spec_of, where

__all__ = [
    "Expectation",
    "Rule",
    "Scope",
    "all_of",
    "any_of",
    "case",
    "changed",
    "equal",
    "from_spec",
    "group_gap",
    "in_set",
    "invariant",
    "monotone",
    "not_equal",
    "same",
    "severities",
    "shift",
    "single",
    "spec_of",
    "suite",
    "where",
    "within",
]
