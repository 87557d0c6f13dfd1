"""Matching of calls to models: by the service of the call, then by the model's name in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from outrider.monitor.intake.protocols.request_models import RequestModels

from .call import Call

_SHORT = 512
"""Longer names are not cached: they come from strangers."""


@dataclass(frozen=True, slots=True)
class Named:
    service: str | None = None
    names: Sequence[str] = ()


class Matcher:
    """Finds the model of a call.

    A model with ``otel_service`` gets calls of that service alone: those that name it or one of its
    ``request_models``, or all others of the service when it has none of these. Calls of other services go by
    the name of the model that was requested, then of the one that answered; a single model without service
    and names gets them all.
    """

    def __init__(self, models: Mapping[str, Named]) -> None:
        self._models = dict(models)
        self._services: dict[str | None, dict[str, Sequence[str]]] = {None: {}}
        for model, said in models.items():
            self._services.setdefault(said.service, {})[model] = said.names
        self._names = {service: RequestModels(named) for service, named in self._services.items()}
        # Names come from strangers: the cache is bounded, and so are the names in it.
        self._find_short = lru_cache(1024)(self._find)

    def find(self, service: str, request_model: str | None, response_model: str | None) -> str | None:
        length = len(service) + len(request_model or "") + len(response_model or "")
        find = self._find_short if length <= _SHORT else self._find
        return find(service, request_model, response_model)

    def model_of(self, call: Call) -> str | None:
        return self.find(call.service, call.attrs.get("request_model"), call.attrs.get("response_model"))

    def reason(self, service: str, request_model: str | None, response_model: str | None) -> str:
        named = request_model or response_model
        calls = f"calls of {named[:256]!r}" if named else "calls that name no model"
        return (
            f"no model under watch for {calls} by service {service[:256]!r} (there are "
            f"{', '.join(list(self._models)[:20])}); name them in request_models or otel_service of "
            "[models.NAME.intake]"
        )

    def _find(self, service: str, request_model: str | None, response_model: str | None) -> str | None:
        own = service if service in self._services and service else None
        for name in (request_model, response_model):
            found = None if name is None else self._names[own].find(name)
            if found is not None:
                return found
        rest = [model for model, names in self._services[own].items() if not names]
        if own is None and len(self._models) > 1:
            return None
        return rest[0] if len(rest) == 1 else None
