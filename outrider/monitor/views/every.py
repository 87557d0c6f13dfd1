"""Routes of all views.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from importlib import import_module
from pathlib import Path

from fastapi import APIRouter

from outrider.monitor.api.retrains import add_retrains
from outrider.monitor.http.routes import ScopedRoute, ScopedRouter

from .service import Service

EARLY = "columns"
"""View that is there with the first record, as it reads from intake itself."""
RETRAINS = (
    ScopedRoute.of("GET /v1/gates", "read", place="query"),
    ScopedRoute.of("GET /v1/retrains", "read", place="query"),
    ScopedRoute.of("GET /v1/retrains/{job}", "read"),
    ScopedRoute.of("POST /v1/retrains", "promote"),
)
VIEWS = [
    import_module(f"{__package__}.{file.parent.name}.{file.stem}")
    for file in sorted(Path(__file__).parent.glob("*/[!_]*.py"))
    if file.parent.name != EARLY
]


def every_router(service: Service) -> ScopedRouter:
    every = ScopedRouter(service, *VIEWS)
    retrains = APIRouter(prefix="/v1")
    add_retrains(retrains, service.engine, service.settings)
    every.include_router(retrains)
    every.scoped += RETRAINS
    return every
