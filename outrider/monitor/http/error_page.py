from collections.abc import Mapping
from html import escape

from .limits import Scope, Send
from .problem import Problem
from .responses import send_bytes, send_problem

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_OF_PROGRAMS = ("/v1", "/v2", "/healthz", "/readyz", "/metrics", "/openapi.json", "/static")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Outrider</title>
<link rel="icon" href="/static/logo.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/outrider.css">
</head>
<body>
<div class="top"><div><a class="name" href="/"><img src="/static/logo.svg" alt="">Outrider</a></div></div>
<main><div class="head"><h1>{title}</h1></div>
<section class="card"><p class="empty"><br>{detail}</p>
<p class="body"><a class="button" href="/">To the first page</a></p></section></main>
</body>
</html>
"""


def is_browser(headers: Mapping[bytes, bytes]) -> bool:
    """True where a browser opens an address, not a fragment."""
    return b"text/html" in headers.get(b"accept", b"") and b"hx-request" not in headers


def wants_page(scope: Scope) -> bool:
    path = scope["path"]
    is_page = not any(path == one or path.startswith(f"{one}/") for one in _OF_PROGRAMS)
    return is_page and is_browser(dict(scope["headers"]))


async def send_error(scope: Scope, send: Send, problem: Problem) -> None:
    if wants_page(scope):
        headers = HEADERS | dict(problem.headers)
        await send_bytes(
            send, problem.status, error_page(problem).encode(), b"text/html; charset=utf-8", headers
        )
    else:
        await send_problem(send, problem)


def error_page(problem: Problem) -> str:
    """Page of a problem, as HTML.

    Examples
    --------
    >>> from .problem import problem
    >>> "no record &lt;b&gt;" in error_page(problem(404, "no record <b>"))
    True
    """
    return _PAGE.format(title=escape(problem.title), detail=escape(problem.detail))
