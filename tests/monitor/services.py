"""Services over stores of a test, and applications of some of their views."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import FastAPI
from sqlalchemy import Engine

from outrider.monitor.http.routes import ScopedRouter
from outrider.monitor.server.app import build_app
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.service import Service


def service_over(
    engine: Engine,
    journal: Any = None,
    settings: Settings | None = None,
    *,
    models: tuple[str, ...] = (),
    folder: Path = Path("nowhere"),
    keyring: Any = None,
    health: Mapping[str, bool] | None = None,
    **more: Any,
) -> Service:
    """Service over open stores, with models of no settings of their own."""
    settings = settings or Settings(base=folder, models=dict.fromkeys(models, ModelSettings()))
    return Service(engine, journal, settings, keyring, lambda: health or {}, **more)


def app_of(service: Service, *modules: ModuleType) -> FastAPI:
    """Application of the views in some modules."""
    return build_app(fault=lambda: None, routers=[ScopedRouter(service, *modules)])
