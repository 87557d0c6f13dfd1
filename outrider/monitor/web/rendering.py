"""Templates, their filters, static files, and the headers that every page carries."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from outrider.assertions.statistics.performance import number_text
from outrider.assertions.times import utc, utc_text
from outrider.dataops.datasets.label_account import account_words
from outrider.dataops.datasets.leak_moves import report_words
from outrider.dataops.ledger.stated_values import slice_words, version_words
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.queries.payload_views import flatten

HERE = Path(__file__).parent
TEMPLATES = (HERE / "templates", *sorted(HERE.parent.glob("views/*/")))
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
API_HEADERS = HEADERS | {
    "content-security-policy": HEADERS["content-security-policy"].replace(
        "img-src 'self'", "img-src 'self' data:"
    )
}
"""Of the page whose styles carry their own pictures."""


class Pages:
    def __init__(self) -> None:
        folder = HERE / "static"
        self._static = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.suffix in KINDS
        }
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["static"] = self._static_url
        self._environment.filters |= {
            "clock": clock,
            "account": account_words,
            "leaks": report_words,
            "count": count,
            "flat": lambda value: list(flatten(value)),
            "iso": iso,
            "lasting": lasting,
            "number": number_text,
            "path": segment,
            "second": second,
            "percent": percent,
            "segment": segment,
            "slice_words": slice_words,
            "span": span,
            "version_words": version_words,
        }

    def render(
        self,
        template: str,
        context: Mapping[str, Any],
        *,
        fragment: bool = False,
        status: int = 200,
        headers: Mapping[str, str] = HEADERS,
    ) -> HTMLResponse:
        layout = "fragment.html" if fragment else "page.html"
        html = self._environment.get_template(template).render({**context, "layout": layout})
        return HTMLResponse(html, status_code=status, headers=headers)

    def standalone(self, template: str, context: Mapping[str, Any]) -> str:
        css = self._static["outrider.css"].decode()
        return self._environment.get_template(template).render({**context, "css": css})

    def static(self, name: str) -> Response | None:
        """Static file under its digest, which browsers may keep."""
        if name not in self._static:
            return None
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "x-content-type-options": "nosniff",
        }
        return Response(self._static[name], media_type=KINDS[Path(name).suffix], headers=headers)

    def _static_url(self, name: str) -> str:
        return f"/static/{name}?{hashlib.sha256(self._static[name]).hexdigest()[:10]}"


def segment(text: str) -> str:
    """A text as one segment of an address.

    Examples
    --------
    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    return quote(text, safe="")


def iso(us: int) -> str:
    at = utc(us)
    return utc_text(us) if at is None else at.isoformat(timespec="milliseconds")


def second(at: str) -> str:
    """An ISO 8601 time without its fractions.

    Examples
    --------
    >>> second("2026-01-05T10:00:00.123456Z")
    '2026-01-05 10:00:00'
    """
    return at[:19].replace("T", " ")


def clock(us: int) -> str:
    """UTC time of day, date where over 20 hours away."""
    at = utc(us)
    if at is None:
        return utc_text(us)[: -len(":00.000000Z")].replace("T", " ")
    near = abs((datetime.now(UTC) - at).total_seconds()) < 20 * 3600
    return at.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M")


def count(value: int) -> str:
    """A number with its thousands apart.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return f"{value:,}"


def percent(share: float) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.8312)
    '83.1\u202f%'
    """
    return f"{100 * share:.1f}\u202f%"


def span(seconds: int) -> str:
    """A duration in its largest whole unit.

    Examples
    --------
    >>> span(10), span(120), span(7200)
    ('10 s', '2 min', '2 h')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def lasting(seconds: float) -> str:
    """Duration in the fitting unit.

    Examples
    --------
    >>> lasting(45.2), lasting(-150.0), lasting(7300.0), lasting(200_000.0)
    ('45 s', '-2.5 min', '2 h', '2.3 d')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
