"""Static files, and the page of the API."""

from fastapi import Request
from starlette.responses import Response

from outrider.monitor.http.routes import page
from outrider.monitor.views.service import Service
from outrider.monitor.web.rendering import API_HEADERS


@page("/static/{name:path}", scope="read", models="none")
def static_page(service: Service, name: str) -> Response:
    """A file of the page's own."""
    return service.frame.pages.static(name) or service.frame.message("Not found", f"There is no file {name}.")


@page("/docs", scope="read")
def api_page(service: Service, request: Request) -> Response:
    """The HTTP API, to read and to try."""
    token = getattr(request.state, "csrf_token", "")
    return service.frame.pages.render("api.html", {"csrf_token": token}, headers=API_HEADERS)
