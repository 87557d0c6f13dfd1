"""Routes of a whole service with their scopes."""

from outrider.monitor.http.route_table import FIRST, ROUTES, undeclared
from outrider.monitor.http.routes import RouteScopes, ScopedRoute, scopes_of
from outrider.monitor.views.every import VIEWS


def every_route() -> list[ScopedRoute]:
    """Every route."""
    return [*undeclared(FIRST), *undeclared(ROUTES), *scopes_of(*VIEWS)]


def every_scope() -> RouteScopes:
    """Scopes of every route."""
    return RouteScopes(routes=every_route())
