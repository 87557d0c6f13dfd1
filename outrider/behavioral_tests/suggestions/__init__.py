"""Words for template slots, from masked language models or WordNet.

Suggestions are proposals: review the list before using it in a suite.
"""

from .fill_mask import FillMask, Suggestion
from .wordnet import WordNet

__all__ = ["FillMask", "Suggestion", "WordNet"]
