"""Assertions proposed from reference data, each with its expected fire rate.

Rules are found on the earlier part of the reference and judged on the later. A proposal is a call of the
library with its parameters: :meth:`Proposal.to_python` is what a person keeps, reads and changes.
"""

from .proposal import FACTORIES, MARK, Kind, Proposal
from .proposing import learn
from .source_text import merged

__all__ = ["FACTORIES", "MARK", "Kind", "Proposal", "learn", "merged"]
