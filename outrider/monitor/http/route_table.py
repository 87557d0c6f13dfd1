"""Scopes of routes that do not declare theirs yet."""

from .routes import ScopedRoute

UNDECLARED = (
    ScopedRoute.of("GET /v1/comparisons", "read"),
    ScopedRoute.of("GET /v1/comparisons/{comparison}", "read"),
    ScopedRoute.of("POST /v1/comparisons", "promote"),
    ScopedRoute.of("PUT /v1/comparisons/{comparison}", "promote"),
    ScopedRoute.of("DELETE /v1/comparisons/{comparison}", "promote"),
    ScopedRoute.of("GET /compare", "read"),
    ScopedRoute.of("GET /compare/{comparison}", "read"),
    ScopedRoute.of("POST /compare/{comparison}/labels", "label"),
    ScopedRoute.of("POST /compare/{comparison}/remove", "promote"),
    ScopedRoute.of("GET /v1/gates", "read", place="query"),
    ScopedRoute.of("GET /v1/retrains", "read", place="query"),
    ScopedRoute.of("GET /v1/retrains/{job}", "read"),
    ScopedRoute.of("POST /v1/retrains", "promote"),
)
