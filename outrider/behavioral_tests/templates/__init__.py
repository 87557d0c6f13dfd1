"""Templates: columnar cases from a slotted sentence or nested structure.

``{key}`` takes each value of the list ``key``; ``{key1}`` another value from the same list; ``{a:key}`` adds
the article; ``{x.attr}`` and ``{x[0]}`` access parts of a value; ``{{`` is a literal brace. A missing list is
looked up in the :mod:`lexicons`. Expansion is lazy.
"""

from .expansion import Template, template
from .filled import Filled, input_columns

__all__ = ["Filled", "Template", "input_columns", "template"]
