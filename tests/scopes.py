"""Routes of a whole service with their scopes."""

from outrider.monitor.api import v2
from outrider.monitor.http.route_table import UNDECLARED
from outrider.monitor.http.routes import RouteScopes, ScopedRoute, scopes_of
from outrider.monitor.server.app import DOCUMENT, FIRST
from outrider.monitor.views.columns import routes as columns
from outrider.monitor.views.every import VIEWS


def every_route() -> list[ScopedRoute]:
    """Every route."""
    return [*FIRST, DOCUMENT, *scopes_of(v2, columns, *VIEWS), *UNDECLARED]


def every_scope() -> RouteScopes:
    """Scopes of every route."""
    return RouteScopes(routes=every_route())
