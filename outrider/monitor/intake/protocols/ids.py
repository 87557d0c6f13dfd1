"""Ids of records from their sender's data: every copy of a request gets the same."""

import re
from collections.abc import Mapping

from outrider.monitor.http.problem import ProblemError, problem

_MOST = 240
"""With the number of a row an id stays within the 256 characters of the column."""
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


def request_id(headers: Mapping[str, str], body_id: object = None) -> str | None:
    """``x-request-id``, else ``ce-id``, else that of the body, else of its trace; else None.

    What is empty, longer than 240 characters, or no valid ``traceparent`` does not count.
    """
    for candidate in (headers.get("x-request-id"), headers.get("ce-id"), body_id):
        if isinstance(candidate, int) and not isinstance(candidate, bool):
            candidate = str(candidate) if abs(candidate) < 1 << 64 else None
        if isinstance(candidate, str) and _is_usable(candidate.strip()):
            return candidate.strip()
    trace = _TRACE.fullmatch(headers.get("traceparent", "").strip().lower())
    return trace[1] if trace and trace[1] != _NO_TRACE else None


def row_ids(id_: str | None, rows: int) -> list[str] | None:
    """The request's id for one record, ``<id>:0`` … for several."""
    if id_ is None:
        return None
    return [id_] if rows == 1 else [f"{id_}:{row}" for row in range(rows)]


def check_short(name: str, value: str | None) -> None:
    """Refuse a value that is longer than a system column takes."""
    if value is not None and not 0 < len(value) <= 256:
        raise ProblemError(problem(422, f"{name}: 1 to 256 characters expected, got {len(value)}"))


def _is_usable(text: str) -> bool:
    return 0 < len(text) <= _MOST
