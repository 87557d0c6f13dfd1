"""Frame around every page: navigation, pauses, configuration state and messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from sqlalchemy import Engine
from starlette.responses import Response

from outrider.dataops.state.pauses import EVERY_MODEL, list_pauses
from outrider.monitor.http.refused_copies import RefusedCopy
from outrider.monitor.queries.queries import list_models
from outrider.monitor.settings.reload import ConfigState

from .rendering import Pages


@dataclass(frozen=True, slots=True)
class PageFrame:
    """Rendering of pages within the navigation of their model."""

    engine: Engine
    configured: tuple[str, ...]
    """Names of models from the configuration."""
    config: Callable[[], ConfigState]
    refused: Callable[[], Sequence[RefusedCopy]]
    pages: Pages = field(default_factory=Pages)

    def models(self) -> list[str]:
        return list_models(self.engine, self.configured)

    def page(
        self,
        request: Request,
        template: str,
        model: str,
        page: str,
        context: Mapping[str, Any],
        *,
        refresh: bool = False,
    ) -> Response:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        shared = self._shared(model)
        if model not in shared["models"]:
            return self.message("Not found", f"There is no model {model!r}.")
        shared |= {
            "page": page,
            "refresh": address if refresh else None,
            "csrf": getattr(request.state, "csrf_token", ""),
            "here": address,
        }
        return self.pages.render(template, {**shared, **context}, fragment="hx-request" in request.headers)

    def plain(self, request: Request, template: str, page: str, context: Mapping[str, Any]) -> Response:
        """Page that belongs to no model."""
        csrf = getattr(request.state, "csrf_token", "")
        own = {"page": page, "refresh": None, "csrf": csrf, "here": request.url.path}
        return self.pages.render(template, {**self._shared(""), **own, **context})

    def message(
        self,
        heading: str,
        text: str,
        *,
        status: int = 404,
        model: str = "",
        back: str = "",
        asked: Mapping[str, str] | None = None,
    ) -> Response:
        """Page with one message; ``asked`` is the form of a case without its right answer."""
        context = {"page": None, "refresh": None, "heading": heading, "text": text, "back": back}
        return self.pages.render(
            "message.html", self._shared(model) | context | {"asked": asked}, status=status
        )

    def _shared(self, model: str) -> dict[str, Any]:
        with self.engine.connect() as connection:
            pauses = [row for row in list_pauses(connection) if row.model in (EVERY_MODEL, model)]
        return {
            "model": model,
            "models": self.models(),
            "pauses": pauses,
            "config": self.config(),
            "refused_copies": self.refused(),
        }


def address(path: str, query: Mapping[str, str | None]) -> str:
    pairs = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(pairs)}" if pairs else path
