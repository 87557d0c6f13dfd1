"""Library of assertions, one family per file.

docs/assertion-catalogue.md lists them. Each docstring says what the assertion finds, its cost, and how it was
measured: by ``python -m benchmarks.assertions.library`` unless another command is named.
"""

from .calculations import arithmetic
from .confidence import (
    contradicts_neighbours,
    high_entropy,
    low_margin,
    low_score,
    overconfident,
    reliability,
)
from .detection import class_size, duplicate_boxes, fit_class_sizes, multibox
from .disagreement import ensemble_disagrees, label_differs, noise_floor, score_differs
from .fairness import selection_gap
from .groundedness import ungrounded
from .json_answers import json_schema
from .languages import language
from .llm import empty_answer, final_line
from .out_of_distribution import (
    Mahalanobis,
    Neighbours,
    energy,
    far_from_neighbours,
    fit_energy,
    fit_mahalanobis,
    fit_neighbours,
    high_energy,
    mahalanobis,
)
from .personal import personal_data
from .physics import adds_up, bounds, monotone, multiple_of, unit_mixup
from .ranking import blocked_items, duplicate_items, empty_slate, order_disagrees
from .refusals import refusal
from .schema import categories, finite, required, text_pattern, unknown_columns
from .skew import served_differs
from .tabular import determines, implies, never_together, ordered, swapped
from .text import length, repetition
from .time_series import stuck_value, time_gap, unseen_transition, value_jump, value_spike
from .tracking import appear, flicker, jump

__all__ = [
    "Mahalanobis",
    "Neighbours",
    "adds_up",
    "appear",
    "arithmetic",
    "blocked_items",
    "bounds",
    "categories",
    "class_size",
    "contradicts_neighbours",
    "determines",
    "duplicate_boxes",
    "duplicate_items",
    "empty_answer",
    "empty_slate",
    "energy",
    "ensemble_disagrees",
    "far_from_neighbours",
    "final_line",
    "finite",
    "fit_class_sizes",
    "fit_energy",
    "fit_mahalanobis",
    "fit_neighbours",
    "flicker",
    "high_energy",
    "high_entropy",
    "implies",
    "json_schema",
    "jump",
    "label_differs",
    "language",
    "length",
    "low_margin",
    "low_score",
    "mahalanobis",
    "monotone",
    "multibox",
    "multiple_of",
    "never_together",
    "noise_floor",
    "order_disagrees",
    "ordered",
    "overconfident",
    "personal_data",
    "refusal",
    "reliability",
    "repetition",
    "required",
    "score_differs",
    "selection_gap",
    "served_differs",
    "stuck_value",
    "swapped",
    "text_pattern",
    "time_gap",
    "ungrounded",
    "unit_mixup",
    "unknown_columns",
    "unseen_transition",
    "value_jump",
    "value_spike",
]
