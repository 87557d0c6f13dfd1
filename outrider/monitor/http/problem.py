"""Problem details (RFC 9457): the fault, its place, the remedy."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from outrider.errors import OutriderError

CONTENT_TYPE = b"application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """Body and headers of an error response.

    Parameters
    ----------
    status
        HTTP status.
    title
        Short name of the kind of problem, the same at each occurrence.
    detail
        What was expected, what came, and what to do.
    extra
        Further members of the JSON object, such as ``rejected``.
    headers
        Further response headers, such as ``retry-after``.
    """

    status: int
    title: str
    detail: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """JSON of the response."""
        members = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        return json.dumps(members | dict(self.extra), ensure_ascii=False).encode("utf-8", "replace")


class ProblemError(OutriderError):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def problem(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, **extra: object
) -> Problem:
    """Problem whose title is the status' own name.

    Examples
    --------
    >>> json.loads(problem(400, "not UTF-8", position=3).body())
    {'type': 'about:blank', 'title': 'Bad Request', 'status': 400, 'detail': 'not UTF-8', 'position': 3}
    """
    return Problem(status, HTTPStatus(status).phrase, detail, extra, headers or {})
