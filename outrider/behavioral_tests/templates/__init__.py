"""Templates: columnar cases from a slotted sentence or nested structure.

``{key}`` takes each value of the list ``key``; ``{key1}`` another pick from the same list; ``{a:key}`` adds
the article; ``{x.attr}`` and ``{x[0]}`` reach into a value; ``{{`` is a brace. A list that is not given is
looked up among the :mod:`lexicons`. Nothing is expanded before it is asked for.
"""

from .expansion import Template, template
from .filled import Filled, input_columns

__all__ = ["Filled", "Template", "input_columns", "template"]
