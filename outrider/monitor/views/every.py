"""Routes of all views.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from importlib import import_module
from pathlib import Path

from fastapi import APIRouter

from outrider.dataops.comparisons import Comparisons
from outrider.monitor.api.comparisons import comparison_routes
from outrider.monitor.api.retrains import add_retrains
from outrider.monitor.http.route_table import UNDECLARED
from outrider.monitor.http.routes import ScopedRouter

from .comparison_pages import comparison_pages
from .service import Service

EARLY = "columns"
"""View that is there with the first record, as it reads from intake itself."""
VIEWS = [
    import_module(f"{__package__}.{file.parent.name}.{file.stem}")
    for file in sorted(Path(__file__).parent.glob("*/[!_]*.py"))
    if file.parent.name != EARLY
]


def every_router(service: Service) -> ScopedRouter:
    """Router of every view."""
    every = ScopedRouter(service, *VIEWS)
    comparisons = Comparisons(service.settings.data_folder, most=service.settings.storage.keep_comparisons)
    retrains = APIRouter(prefix="/v1")
    add_retrains(retrains, service.engine, service.settings)
    every.include_router(comparison_routes(comparisons))
    every.include_router(retrains)
    every.include_router(comparison_pages(comparisons, service.frame), include_in_schema=False)
    every.scoped += UNDECLARED
    return every
