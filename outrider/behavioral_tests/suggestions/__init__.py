"""Words for template slots, from masked language models or WordNet.

A suggestion is a proposal: look at the list before it becomes part of a suite.
"""

from .fill_mask import FillMask, Suggestion
from .wordnet import WordNet

__all__ = ["FillMask", "Suggestion", "WordNet"]
