"""Types and missing values of pandas, without importing pandas."""

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    import pandas as pd

_ABSENT = object()


def is_pandas_null(value: object) -> bool:
    """True for ``pd.NA`` and ``pd.NaT``."""
    return value is _named("NA") or value is _named("NaT")


def is_frame(value: object) -> "TypeGuard[pd.DataFrame]":
    """True for a pandas data frame. False if pandas was never imported."""
    return _is_a(value, "DataFrame")


def is_series(value: object) -> "TypeGuard[pd.Series]":
    """True for a pandas series. False if pandas was never imported."""
    return _is_a(value, "Series")


def _is_a(value: object, name: str) -> bool:
    kind = _named(name)
    return isinstance(kind, type) and isinstance(value, kind)


def _named(name: str) -> object:
    return getattr(sys.modules.get("pandas"), name, _ABSENT)
