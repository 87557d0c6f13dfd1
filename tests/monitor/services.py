"""Services over stores of a test, and applications of their views."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import FastAPI
from sqlalchemy import Engine

from outrider.dataops.payloads.objects import ObjectStore
from outrider.monitor.http.routes import ScopedRouter
from outrider.monitor.server.app import build_app
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service


def service_over(
    engine: Engine,
    journal: Any = None,
    settings: Settings | None = None,
    *,
    models: tuple[str, ...] = (),
    folder: Path = Path("nowhere"),
    health: Mapping[str, bool] | None = None,
    objects: ObjectStore | None = None,
    readers: Mapping[Any, Any] | None = None,
) -> Service:
    """Service over open stores; models of a name alone have no settings of their own."""
    settings = settings or Settings(base=folder, models=dict.fromkeys(models, ModelSettings()))
    keyring: Any = None
    service = Service(engine, journal, settings, keyring, lambda: health or {})
    if objects is not None:
        service.__dict__["objects"] = objects
    service._readers.update(readers or {})
    return service


def app_of(service: Service, *modules: ModuleType) -> FastAPI:
    """Application of the views in some modules."""
    return build_app(fault=lambda: None, routers=[ScopedRouter(service, *modules)])


def every_app(engine: Engine, journal: Any = None, settings: Settings | None = None, **more: Any) -> FastAPI:
    """Application of every view of :func:`service_over`."""
    router = every_router(service_over(engine, journal, settings, **more))
    return build_app(fault=lambda: None, routers=[router])
