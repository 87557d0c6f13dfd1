"""Forms of pages: their fields, and the way back."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias
from urllib.parse import parse_qs, quote

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from outrider.dataops.state.database import now_us
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.problem import ProblemError, problem

FORM_BYTES = 65_536
NOTE_LETTERS = 500


async def _form(request: Request) -> dict[str, str]:
    """Fields of a small form; its CSRF token was checked before."""
    body = await request.body()
    if len(body) > FORM_BYTES:
        raise ProblemError(problem(413, f"a form of at most {FORM_BYTES} bytes expected"))
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=100)
    return {name: values[0] for name, values in fields.items()}


Fields: TypeAlias = Annotated[dict[str, str], Depends(_form)]
"""Read in the event loop, used in a thread: writing waits for the database."""


def until_us(form: Mapping[str, str]) -> int | None:
    try:
        seconds = float(form.get("for_s", "0"))
    except ValueError:
        raise ProblemError(problem(422, "for_s: seconds expected", field="for_s")) from None
    return now_us() + int(seconds * 1e6) if 0 < seconds < 1e9 else None


def back(form: Mapping[str, str]) -> Response:
    return RedirectResponse(after_form(form), status_code=303, headers=HEADERS)


def after_form(form: Mapping[str, str]) -> str:
    """Address of the page that a form came from, on no other host."""
    there = form.get("next", "/")
    is_ours = there.startswith("/") and not there.startswith(("//", "/\\")) and "\n" not in there
    at = f"#flag-{quote(form['flag'], safe='')}" if "flag" in form else ""
    return there + at if is_ours else "/"
