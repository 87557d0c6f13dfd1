"""Routes of a whole service with their scopes."""

from outrider.monitor.http.routes import RouteScopes, ScopedRoute, scopes_of
from outrider.monitor.server.app import DOCUMENT, FIRST
from outrider.monitor.views.columns import routes as columns
from outrider.monitor.views.every import VIEWS
from outrider.monitor.views.open_inference import routes as open_inference


def every_route() -> list[ScopedRoute]:
    """Every route."""
    return [*FIRST, DOCUMENT, *scopes_of(open_inference, columns, *VIEWS)]


def every_scope() -> RouteScopes:
    """Scopes of every route."""
    return RouteScopes(routes=every_route())
