"""Ids of records, from their sender's data.

Every copy of one request gets the same.
"""

import re
from collections.abc import Mapping

from outrider.monitor.http.problem import ProblemError, problem

_MOST = 240
"""Characters of an id: with the number of its row it stays within the 256 of the column."""
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


def request_id(headers: Mapping[str, str], body_id: object = None) -> str | None:
    """Id of a request.

    ``x-request-id``, else ``ce-id``, else that of the body, else of its trace.

    What is empty, longer than 240 characters, or no valid ``traceparent`` does not count.

    Parameters
    ----------
    headers
        Names in lower case.
    body_id
        What the body gives as its id: text or a whole number; anything else does not count.

    Returns
    -------
    str or None
        None when nobody named the request: its record gets a new UUID.

    Examples
    --------
    >>> request_id({"x-request-id": "r1", "ce-id": "e1"}, "b1"), request_id({"ce-id": "e1"}, "b1")
    ('r1', 'e1')
    >>> request_id({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
    '4bf92f3577b34da6a3ce929d0e0e4736'
    >>> request_id({}, 42), request_id({})
    ('42', None)
    """
    for candidate in (headers.get("x-request-id"), headers.get("ce-id"), body_id):
        if isinstance(candidate, int) and not isinstance(candidate, bool):
            candidate = str(candidate) if abs(candidate) < 1 << 64 else None
        if isinstance(candidate, str) and _is_usable(candidate.strip()):
            return candidate.strip()
    trace = _TRACE.fullmatch(headers.get("traceparent", "").strip().lower())
    return trace[1] if trace and trace[1] != _NO_TRACE else None


def row_ids(id_: str | None, rows: int) -> list[str] | None:
    """Ids of the records of one request.

    Its own for one, ``<id>:0`` … for several; None without an id.

    Examples
    --------
    >>> row_ids("r1", 1), row_ids("r1", 2), row_ids(None, 2)
    (['r1'], ['r1:0', 'r1:1'], None)
    """
    if id_ is None:
        return None
    return [id_] if rows == 1 else [f"{id_}:{row}" for row in range(rows)]


def check_short(name: str, value: str | None) -> None:
    """Refuse a value that is longer than a system column takes.

    Raises
    ------
    ProblemError
        422.
    """
    if value is not None and not 0 < len(value) <= 256:
        raise ProblemError(problem(422, f"{name}: 1 to 256 characters expected, got {len(value)}"))


def _is_usable(text: str) -> bool:
    return 0 < len(text) <= _MOST
