"""Routes of all views.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from importlib import import_module
from pathlib import Path

from outrider.monitor.http.routes import ScopedRouter

from .service import Service

EARLY = ("columns", "open_inference")
"""Views that are there with the first record, as they read from intake itself."""
VIEWS = [
    import_module(f"{__package__}.{file.parent.name}.{file.stem}")
    for file in sorted(Path(__file__).parent.glob("*/[!_]*.py"))
    if file.parent.name not in EARLY
]


def every_router(service: Service) -> ScopedRouter:
    return ScopedRouter(service, *VIEWS)
