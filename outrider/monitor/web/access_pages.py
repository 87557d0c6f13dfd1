"""Pages of access: log in, log out, sessions."""

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from outrider.monitor.http.attempts import LoginAttempts
from outrider.monitor.http.auth import LOGIN, session_cookie
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.keyring import Holder, Keyring
from outrider.monitor.http.limits import BodyBounds, read_body
from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.http.visitors import Visitor, end_session_for, sessions_for, visitor_of

from .forms import Fields
from .frame import PageFrame

_LOGIN_BYTES = 8192
_LOGIN_FIELDS = 10
_TOKEN = 200
"""Characters of a link's token that are shown again, at most."""
_UNKNOWN = "This key is not known, or it was revoked."
_DEAD_LINK = "This link was used already, or it is older than 15 minutes. `outrider login` prints another."


async def _login_form(request: Request) -> dict[str, str]:
    """Fields of the login form, which strangers send."""
    headers = dict(request.scope["headers"])
    body = await read_body(request.receive, headers, BodyBounds(_LOGIN_BYTES, 2, "a form"))
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_LOGIN_FIELDS)
    except ValueError:
        detail = f"the form has more than {_LOGIN_FIELDS} fields: load the page again and repeat"
        raise ProblemError(problem(422, detail)) from None
    return {name: values[0] for name, values in fields.items()}


LoginFields: TypeAlias = Annotated[dict[str, str], Depends(_login_form)]


@dataclass(frozen=True, slots=True)
class AccessPages:
    """Answers of the pages of access; one method per page or form."""

    _keyring: Keyring
    _frame: PageFrame
    _attempts: LoginAttempts = field(default_factory=LoginAttempts)

    def show_login(self, request: Request, token: str = "") -> Response:
        """Page of the login, or of a link.

        A link is used by the button of its page: previews and scanners only GET. The gate has strangers see
        the page in the place of any other.
        """
        refusal: Problem | None = getattr(request.state, "refusal", None)
        visitor = visitor_of(request)
        if refusal is not None and refusal.status != 401:
            heading = "Not allowed"
            return self._frame.message(heading, f"{refusal.detail}.", status=refusal.status, back="/")
        if token and refusal is None:
            return self._page("", wanted="/", status=200, token=token)
        if refusal is None and visitor.session is not None:
            return RedirectResponse("/", status_code=303, headers=HEADERS)
        wanted = getattr(request.state, "wanted", "/")
        return self._page("", wanted=wanted, status=200 if refusal is None else refusal.status)

    def log_in(self, request: Request, form: LoginFields) -> Response:
        """Open a session for a key or a one-time link."""
        visitor, wanted = visitor_of(request), form.get("next", "/")
        if not _is_own_form(request):
            return self._page("The form came from another site.", wanted="/", status=403)
        if wait_s := self._attempts.wait_s(visitor.address):
            return self._too_many(wait_s, wanted)
        token = form.get("token", "")
        by_key, by_link = self._keyring.by_key, self._keyring.use_link
        holder = by_link(token) if token else by_key(form.get("key", "").strip())
        if holder is None:
            self._attempts.failed(visitor.address)
            return self._page(_DEAD_LINK if token else _UNKNOWN, wanted=wanted, status=401)
        return self._open(request, visitor, holder, wanted)

    def log_out(self, request: Request) -> Response:
        """End the session of this browser."""
        session = visitor_of(request).session
        if session is not None:
            self._keyring.end_session(session.row.id)
        return self._redirect(request, LOGIN, "")

    def sessions(self, request: Request) -> Response:
        """Sessions that this visitor may end."""
        visitor = visitor_of(request)
        context = {
            "rows": sessions_for(self._keyring, visitor),
            "own": visitor.session.row.id if visitor.session else "",
            "who": visitor.name,
            "rights": sorted(visitor.holder.rights) if visitor.holder else [],
        }
        return self._frame.plain(request, "sessions.html", "/sessions", context)

    def end_session(self, request: Request, session: str, form: Fields) -> Response:  # noqa: ARG002 - read whole
        """End one of them."""
        end_session_for(self._keyring, visitor_of(request), session)
        return RedirectResponse("/sessions", status_code=303, headers=HEADERS)

    def _open(self, request: Request, visitor: Visitor, holder: Holder, wanted: str) -> Response:
        if "read" not in holder.rights:
            return self._page(f"Key {holder.name!r} may send, not read.", wanted=wanted, status=403)
        if holder.models is not None:
            text = f"Key {holder.name!r} is for some models alone; pages show all of them."
            return self._page(text, wanted=wanted, status=403)
        if visitor.session is not None:
            self._keyring.end_session(visitor.session.row.id)
        agent = request.headers.get("user-agent", "")
        cookie = self._keyring.open_session(holder, address=visitor.address, agent=agent)
        self._keyring.note_write(holder.name, "POST /login", LOGIN, status=303, address=visitor.address)
        return self._redirect(request, _own_path(wanted), cookie)

    def _redirect(self, request: Request, to: str, cookie: str) -> Response:
        answer = RedirectResponse(to, status_code=303, headers=HEADERS)
        answer.headers["set-cookie"] = session_cookie(cookie, secure=request.scope["scheme"] == "https")
        return answer

    def _too_many(self, wait_s: int, wanted: str) -> Response:
        text = f"Too many attempts: try again in {wait_s} s."
        return self._page(text, wanted=wanted, status=429, headers={"retry-after": str(wait_s)})

    def _page(
        self, text: str, *, wanted: str, status: int, headers: dict[str, str] | None = None, token: str = ""
    ) -> Response:
        context = {"text": text, "wanted": _own_path(wanted), "token": token[:_TOKEN]}
        found = self._frame.pages.render(
            "login.html", context, status=status, headers=HEADERS | (headers or {})
        )
        if status == 401:
            found.headers["www-authenticate"] = 'Bearer realm="outrider"'
        return found


def access_pages(keyring: Keyring, frame: PageFrame) -> APIRouter:
    """Routes of the pages of access."""
    pages = AccessPages(keyring, frame)
    router = APIRouter(include_in_schema=False)
    for method, path, answer in (
        ("GET", LOGIN, pages.show_login),
        ("POST", LOGIN, pages.log_in),
        ("POST", "/logout", pages.log_out),
        ("GET", "/sessions", pages.sessions),
        ("POST", "/sessions/{session}/end", pages.end_session),
    ):
        router.add_api_route(path, answer, methods=[method])
    return router


def _is_own_form(request: Request) -> bool:
    """False where a browser says that another site sent the form."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    if site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def _own_path(wanted: str) -> str:
    """A path of ours, and nothing that a browser would take for another site."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_ours and wanted.isprintable() else "/"
