"""Selection of records to label: policies over assertion severities."""

from .choosing import AUDIT, POLICIES, POLICY, Fallback, Policy, Sampler, Selection, select
from .state import Round, SelectionState

__all__ = [
    "AUDIT",
    "POLICIES",
    "POLICY",
    "Fallback",
    "Policy",
    "Round",
    "Sampler",
    "Selection",
    "SelectionState",
    "select",
]
