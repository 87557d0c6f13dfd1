"""Types and missing values of pandas, without its import.

Where nobody has imported pandas there are none.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    import pandas as pd

_ABSENT = object()


def is_pandas_null(value: object) -> bool:
    """Test for ``pd.NA`` and ``pd.NaT``."""
    return value is _named("NA") or value is _named("NaT")


def is_frame(value: object) -> "TypeGuard[pd.DataFrame]":
    """Test for a data frame."""
    return _is_a(value, "DataFrame")


def is_series(value: object) -> "TypeGuard[pd.Series]":
    """Test for a series."""
    return _is_a(value, "Series")


def _is_a(value: object, name: str) -> bool:
    kind = _named(name)
    return isinstance(kind, type) and isinstance(value, kind)


def _named(name: str) -> object:
    return getattr(sys.modules.get("pandas"), name, _ABSENT)
