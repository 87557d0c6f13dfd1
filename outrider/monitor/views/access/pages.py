"""Pages of access: log in, log out, sessions."""

from typing import Annotated, TypeAlias
from urllib.parse import parse_qs, urlsplit

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from outrider.monitor.http.attempts import LoginAttempts
from outrider.monitor.http.auth import LOGIN, session_cookie
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.keyring import Holder
from outrider.monitor.http.limits import BodyBounds, read_body
from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.http.routes import form, page
from outrider.monitor.http.visitors import Visitor, end_session_for, sessions_for, visitor_of
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields

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


def _attempts(_service: Service) -> LoginAttempts:
    return LoginAttempts()


@page(LOGIN, scope="")
def show_login(service: Service, request: Request, token: str = "") -> Response:
    """Page of the login, or of a link.

    A link is used by the button of its page: previews and scanners only GET. The gate has strangers see
    the page in the place of any other.
    """
    refusal: Problem | None = getattr(request.state, "refusal", None)
    visitor = visitor_of(request)
    if refusal is not None and refusal.status != 401:
        heading = "Not allowed"
        return service.frame.message(heading, f"{refusal.detail}.", status=refusal.status, back="/")
    if token and refusal is None:
        return _page(service, "", wanted="/", status=200, token=token)
    if refusal is None and visitor.session is not None:
        return RedirectResponse("/", status_code=303, headers=HEADERS)
    wanted = getattr(request.state, "wanted", "/")
    return _page(service, "", wanted=wanted, status=200 if refusal is None else refusal.status)


@form(f"POST {LOGIN}", scope="")
def log_in(service: Service, request: Request, form: LoginFields) -> Response:
    """Open a session for a key or a one-time link."""
    visitor, wanted = visitor_of(request), form.get("next", "/")
    if not _is_own_form(request):
        return _page(service, "The form came from another site.", wanted="/", status=403)
    if wait_s := service.one(_attempts).wait_s(visitor.address):
        return _too_many(service, wait_s, wanted)
    token = form.get("token", "")
    by_key, by_link = service.keyring.by_key, service.keyring.use_link
    holder = by_link(token) if token else by_key(form.get("key", "").strip())
    if holder is None:
        service.one(_attempts).failed(visitor.address)
        return _page(service, _DEAD_LINK if token else _UNKNOWN, wanted=wanted, status=401)
    return _open(service, request, visitor, holder, wanted)


@form("POST /logout", scope="read")
def log_out(service: Service, request: Request) -> Response:
    """End the session of this browser."""
    session = visitor_of(request).session
    if session is not None:
        service.keyring.end_session(session.row.id)
    return _redirect(request, LOGIN, "")


@page("/sessions", scope="read")
def sessions(service: Service, request: Request) -> Response:
    """Sessions that this visitor may end."""
    visitor = visitor_of(request)
    context = {
        "rows": sessions_for(service.keyring, visitor),
        "own": visitor.session.row.id if visitor.session else "",
        "who": visitor.name,
        "rights": sorted(visitor.holder.rights) if visitor.holder else [],
    }
    return service.frame.plain(request, "sessions.html", "/sessions", context)


@form("POST /sessions/{session}/end", scope="read")
def end_session(service: Service, request: Request, session: str, form: Fields) -> Response:  # noqa: ARG001 - read whole
    """End one of them."""
    end_session_for(service.keyring, visitor_of(request), session)
    return RedirectResponse("/sessions", status_code=303, headers=HEADERS)


def _open(service: Service, request: Request, visitor: Visitor, holder: Holder, wanted: str) -> Response:
    if "read" not in holder.rights:
        return _page(service, f"Key {holder.name!r} may send, not read.", wanted=wanted, status=403)
    if holder.models is not None:
        text = f"Key {holder.name!r} is for some models alone; pages show all of them."
        return _page(service, text, wanted=wanted, status=403)
    if visitor.session is not None:
        service.keyring.end_session(visitor.session.row.id)
    agent = request.headers.get("user-agent", "")
    cookie = service.keyring.open_session(holder, address=visitor.address, agent=agent)
    service.keyring.note_write(holder.name, "POST /login", LOGIN, status=303, address=visitor.address)
    return _redirect(request, _own_path(wanted), cookie)


def _redirect(request: Request, to: str, cookie: str) -> Response:
    answer = RedirectResponse(to, status_code=303, headers=HEADERS)
    answer.headers["set-cookie"] = session_cookie(cookie, secure=request.scope["scheme"] == "https")
    return answer


def _too_many(service: Service, wait_s: int, wanted: str) -> Response:
    text = f"Too many attempts: try again in {wait_s} s."
    return _page(service, text, wanted=wanted, status=429, headers={"retry-after": str(wait_s)})


def _page(
    service: Service,
    text: str,
    *,
    wanted: str,
    status: int,
    headers: dict[str, str] | None = None,
    token: str = "",
) -> Response:
    context = {"text": text, "wanted": _own_path(wanted), "token": token[:_TOKEN]}
    found = service.frame.pages.render(
        "login.html", context, status=status, headers=HEADERS | (headers or {})
    )
    if status == 401:
        found.headers["www-authenticate"] = 'Bearer realm="outrider"'
    return found
