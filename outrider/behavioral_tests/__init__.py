"""Behavioral tests: new questions to a model (minimum functionality, invariance, directional).

The matrix of capabilities and test types is CheckList's (Ribeiro et al., ACL 2020); the tests run in pytest,
by ``outrider test``, on candidates at the promotion gate and, sampled, on live traffic.
"""

from . import expect, lexicons, perturb, suggestions
from .fairness import GroupMetrics, group_metrics
from .metamorphic import DIR, INV, Judgement, Questions
from .mft import MFT
from .outcome import Example, Outcome
from .sampling import generator, sample_rows
from .statistics import wilson_interval
from .suite import Suite, load_suite
from .templates import Filled, Template, template

__all__ = [
    "DIR",
    "INV",
    "MFT",
    "Example",
    "Filled",
    "GroupMetrics",
    "Judgement",
    "Outcome",
    "Questions",
    "Suite",
    "Template",
    "expect",
    "generator",
    "group_metrics",
    "lexicons",
    "load_suite",
    "perturb",
    "sample_rows",
    "suggestions",
    "template",
    "wilson_interval",
]
