"""Changes of texts; the first argument names the input field."""

from .case import case
from .contractions import contractions
from .punctuation import punctuation
from .typos import typos

__all__ = ["case", "contractions", "punctuation", "typos"]
