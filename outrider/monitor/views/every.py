"""Routes of all views.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from outrider.monitor.http.routes import ScopedRouter

from .drift import routes as drift
from .service import Service

VIEWS = (drift,)


def every_view(service: Service) -> ScopedRouter:
    """Router of every view."""
    return ScopedRouter(service, *VIEWS)
