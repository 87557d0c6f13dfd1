"""Changes of numbers, categories and whole fields of tables.

The first argument names the field.
"""

from .categories import flip, swap
from .numbers import clip, decimal_shift, jitter, out_of_range, repeat_digit, unit_error
from .records import missing, shuffle, swap_columns

__all__ = [
    "clip",
    "decimal_shift",
    "flip",
    "jitter",
    "missing",
    "out_of_range",
    "repeat_digit",
    "shuffle",
    "swap",
    "swap_columns",
    "unit_error",
]
