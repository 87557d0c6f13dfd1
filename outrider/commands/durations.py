"""Durations on command lines."""

import re

from outrider.errors import OutriderError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(text: str) -> float:
    """Seconds in ``90``, ``90s``, ``30m``, ``2h`` or ``1d``.

    Examples
    --------
    >>> seconds("90"), seconds("1.5h"), seconds("1d")
    (90.0, 5400.0, 86400.0)

    Raises
    ------
    OutriderError
        If it is none of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None or float(found[1]) == 0:
        raise OutriderError(f"a span such as 90s, 30m, 2h or 1d expected, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]
