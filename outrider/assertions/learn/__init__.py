"""Assertions proposed from reference data, each with its expected fire rate.

Rules are fitted on the earlier part of the reference and tested on the later. A proposal is a library call
with its parameters: :meth:`Proposal.to_python` gives source code to keep, read and change.
"""

from .proposal import FACTORIES, MARK, Kind, Proposal
from .proposing import learn
from .source_text import merged

__all__ = ["FACTORIES", "MARK", "Kind", "Proposal", "learn", "merged"]
