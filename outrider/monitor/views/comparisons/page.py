import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from outrider.monitor.compare.labelled import Right
from outrider.monitor.http.limits import BodyBounds, ClientGone, Receive, Scope, Send, read_body
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.responses import send_problem
from outrider.monitor.web.rendering import HERE, Pages

from .report_view import views_of

SCRIPT = (HERE / "static" / "compare.js").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; "
    f"form-action 'self'; frame-ancestors 'none'; img-src data:; script-src 'sha256-{_DIGEST}'",
}
_FORM = BodyBounds(16_384, 100, "a label")


def compare_page(report: Mapping[str, Any]) -> str:
    return _page(report, here="")


class ComparePage:
    """ASGI application: the page of a running comparison, and its labels.

    The address holds a secret: whoever knows it sees the page and may label.
    """

    def __init__(
        self, report: Callable[[], Mapping[str, Any]], label: Callable[[str, str, Right], bool]
    ) -> None:
        self.path = f"/compare/{secrets.token_urlsafe(16)}"
        self._report = report
        self._label = label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if method == "GET" and path == self.path:
            page = await run_in_threadpool(lambda: _page(self._report(), here=self.path))
            await HTMLResponse(page, headers=_HEADERS)(scope, receive, send)
        elif method == "POST" and path == f"{self.path}/labels":
            try:
                body = await read_body(receive, dict(scope["headers"]), _FORM)
            except ClientGone:
                return
            except ProblemError as error:
                await send_problem(send, error.problem)
                return
            form = dict(parse_qsl(body.decode(errors="replace")))
            right = form.get("right")
            is_known = right in get_args(Right) and self._label(
                form.get("candidate", ""), form.get("id", ""), cast("Right", right)
            )
            answer = RedirectResponse(self.path, 303) if is_known else Response(status_code=422)
            await answer(scope, receive, send)
        else:
            await Response("Not found", status_code=404)(scope, receive, send)


def _page(report: Mapping[str, Any], *, here: str) -> str:
    shown = {"r": report, "views": views_of(report, takes_labels=bool(here)), "here": here}
    return Pages().standalone(
        "compare.html", shown | {"csrf": "", "records": "", "script": SCRIPT if here else ""}
    )
