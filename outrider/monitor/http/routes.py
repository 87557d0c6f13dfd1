"""Routes, declared with scopes on functions, and found by requests."""

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType, NoneType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_type_hints

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from outrider.dataops.access.scopes import Right

from .declared import declared

Place: TypeAlias = Literal["closed", "none", "path", "query", "body", "records", "route"]
"""Where a request names its model: ``closed`` to keys of some models, as none can be told; nowhere, as it
asks for nothing of one; in the path; as ``?model=``; as the member ``model`` of a JSON body; in each record;
in what the route looks up, which then asks itself."""
JobToken: TypeAlias = Literal["", "waiting", "ended"]
"""Whether the token of a job opens a route: never, while the job waits for its version, or afterwards too."""
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
_DECLARED = "__routes__"
_LOAD_S = 30.0
"""How long a request waits for queries and pages, which are there within seconds of the first record."""


class Intake(Protocol):
    """Test for requests, as `outrider.monitor.intake.protocols` have one."""

    name: str

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Test for this intake's requests."""


@dataclass(frozen=True, slots=True)
class ScopedRoute:
    """Route with its scopes.

    Attributes
    ----------
    needs
        Of each, any one is enough; without one everybody may.
    is_intake
        Whether records, labels or telemetry come by it.
    parts
        All routes of the path, where it is of several.
    """

    action: str
    needs: tuple[frozenset[Right], ...]
    is_intake: bool = False
    place: Place = "closed"
    jobs: JobToken = ""
    parts: tuple["ScopedRoute", ...] = ()

    @classmethod
    def of(
        cls, action: str, scope: str, *, place: Place = "closed", jobs: JobToken = "", is_intake: bool = False
    ) -> "ScopedRoute":
        """Route by its name and scopes.

        Of several any one is enough, without one everybody may.
        """
        named: frozenset[Right] = frozenset(scope.split())  # type: ignore[arg-type]  # a test compares them
        return cls(action, (named,) if named else (), is_intake, place, jobs)

    def missing(self, rights: frozenset[Right]) -> frozenset[Right] | None:
        """Scopes of which these rights lack one, else None."""
        return next((scopes for scopes in self.needs if not scopes & rights), None)


@dataclass(frozen=True, slots=True)
class _Declaration:
    scoped: ScopedRoute
    options: Mapping[str, Any]


def view(
    path: str, *, scope: str, models: Place | None = None, tag: str = "read", **options: Any
) -> Callable[[F], F]:
    """Declare a function as answer to ``GET path``.

    Its first parameter is what it reads from, the others are those of the request. See :func:`change`.
    """
    return change(f"GET {path}", scope=scope, models=models, tag=tag, **options)


def change(
    action: str,
    *,
    scope: str,
    tag: str,
    models: Place | None = None,
    jobs: JobToken = "",
    **options: Any,
) -> Callable[[F], F]:
    """Declare a function as a route, described by types and docstring.

    Parameters
    ----------
    action
        ``POST /v1/pauses``.
    scope
        What a key needs, any one of several; an empty one is for everybody.
    models
        Where a request names its model; by default in the path or query that has a ``model``.
    options
        Of FastAPI's routes.
    """
    method, _, path = action.partition(" ")

    def declare(function: F) -> F:
        parameters = inspect.signature(function).parameters
        place: Place = "query" if method == "GET" and "model" in parameters else "closed"
        place = "path" if "{model}" in path else place
        scoped = ScopedRoute.of(action, scope, place=models or place, jobs=jobs)
        return _declared(function, scoped, {"tags": [tag], **options})

    return declare


def page(path: str, *, scope: str, models: Place = "closed") -> Callable[[F], F]:
    """Declare a function as answer to ``GET path`` of a browser."""
    return form(f"GET {path}", scope=scope, models=models)


def form(action: str, *, scope: str, models: Place = "closed") -> Callable[[F], F]:
    """Declare a function as answer to a browser, by ``POST`` to a form."""
    scoped = ScopedRoute.of(action, scope, place=models)
    return lambda function: _declared(function, scoped, {"include_in_schema": False})


def _declared(function: F, scoped: ScopedRoute, options: Mapping[str, Any]) -> F:
    vars(function).setdefault(_DECLARED, []).append(_Declaration(scoped, options))
    return function


class ScopedRouter(APIRouter):
    """Router of declared functions.

    Parameters
    ----------
    source
        First argument of each.
    modules
        Where the functions are.
    """

    def __init__(self, source: object, *modules: ModuleType) -> None:
        async def note_source(request: Request) -> None:
            request.state.source = source

        super().__init__(dependencies=[Depends(note_source)])
        self.scoped = scopes_of(*modules)
        # A fixed path comes before one with a parameter in its place: the first that fits answers.
        for function, declaration in sorted(
            _declarations(modules), key=lambda one: one[1].scoped.action.count("{")
        ):
            method, _, path = declaration.scoped.action.partition(" ")
            options: dict[str, Any] = {"name": function.__name__, "description": inspect.getdoc(function)}
            body: Any = get_type_hints(function, include_extras=True).get("return")
            if not (inspect.isclass(body) and issubclass(body, Response | NoneType)):
                options["response_model"] = declared(body)
            options |= declaration.options
            self.add_api_route(path, partial(function, source), methods=[method], **options)


def source_of(request: Request, _kind: type[S]) -> S:
    """First argument of the function that answers a request, for a dependency of it."""
    found: S = request.state.source
    return found


def scopes_of(*modules: ModuleType) -> list[ScopedRoute]:
    """Routes that functions of some modules declare."""
    return [declaration.scoped for _, declaration in _declarations(modules)]


def _declarations(modules: Sequence[ModuleType]) -> Iterator[tuple[Callable[..., Any], _Declaration]]:
    for module in modules:
        for function in vars(module).values():
            if getattr(function, "__module__", None) == module.__name__ and callable(function):
                yield from ((function, one) for one in getattr(function, _DECLARED, ()))


INTAKES: Mapping[str, ScopedRoute] = {
    route.action: route
    for route in (
        ScopedRoute.of("records", "ingest", place="records", is_intake=True),
        ScopedRoute.of("labels", "ingest label", place="records", is_intake=True),
        ScopedRoute.of("infer", "ingest", place="records", is_intake=True),
        ScopedRoute.of("chat", "ingest", place="records", is_intake=True),
        ScopedRoute.of("cloudevents", "ingest", place="records", is_intake=True),
        ScopedRoute.of("traces", "ingest", is_intake=True),
        ScopedRoute.of("logs", "ingest", is_intake=True),
    )
}
"""Of the intakes by name, whose requests are told by more than a path. Spans of one call may come by several
keys."""


class RouteScopes:
    """Scopes of requests, by the routes that are there.

    Parameters
    ----------
    intakes
        Asked in order whether a request is theirs.
    routes
        Those that are there from the begin.

    Examples
    --------
    >>> routes = RouteScopes(routes=[ScopedRoute.of("POST /v1/keys", "admin")])
    >>> routes.find("POST", "/v1/keys", {}).missing(frozenset(["ingest"]))
    frozenset({'admin'})
    >>> routes.find("POST", "/v1/unheard-of", {}), routes.methods("/v1/keys")
    (None, ['POST'])
    """

    def __init__(self, intakes: Sequence[Intake] = (), *, routes: Iterable[ScopedRoute] = ()) -> None:
        self._intakes = [(one, INTAKES[one.name]) for one in intakes]
        self._exact: dict[tuple[str, str], ScopedRoute] = {}
        self._patterns: list[tuple[str, re.Pattern[str], ScopedRoute]] = []
        self.is_loading = False
        """Whether routes are still to come; requests that may be theirs wait for them."""
        self.load_fault: str | None = None
        """Why they did not come the last time; nobody waits then."""
        self.add(routes)

    def add(self, routes: Iterable[ScopedRoute]) -> None:
        """Take up further routes."""
        exact, patterns = dict(self._exact), list(self._patterns)
        for route in routes:
            method, _, path = route.action.partition(" ")
            if "{" in path:
                patterns.append((method, _pattern(path), route))
            else:
                exact[method, path] = route
        self._exact, self._patterns = exact, patterns  # at once: requests are looked up meanwhile

    @property
    def routes(self) -> list[ScopedRoute]:
        """Routes that are there."""
        return [*self._exact.values(), *(route for _, _, route in self._patterns)]

    async def when_there(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> ScopedRoute | None:
        """Route of a request, once all routes are there; see :meth:`find`."""
        until = time.monotonic() + _LOAD_S
        # A thread ends the loading, so there is no event of this loop to await.
        while (found := self.find(method, path, headers)) is None and self._is_awaited(until):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found

    def _is_awaited(self, until: float) -> bool:
        return self.is_loading and self.load_fault is None and time.monotonic() < until

    def find(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> ScopedRoute | None:
        """Route of a request, None where there is none.

        A path of several has the name of the one that says most of it; the scopes of all are asked for.
        """
        for intake, route in self._intakes:
            if intake.matches(method, path, headers):
                return route
        wanted = "GET" if method == "HEAD" else method
        if (exact := self._exact.get((wanted, path))) is not None:
            return exact
        found = [route for its, pattern, route in self._patterns if its == wanted and pattern.fullmatch(path)]
        if len(found) <= 1:
            return found[0] if found else None
        nearest = max(found, key=lambda route: len(re.sub(r"\{.*?\}", "", route.action)))
        needs = tuple(needs for route in found for needs in route.needs)
        return ScopedRoute(nearest.action, needs, parts=tuple(found))

    def methods(self, path: str) -> list[str]:
        """Methods that a path has a route for."""
        exact = {method for method, own in self._exact if own == path}
        found = exact | {method for method, pattern, _ in self._patterns if pattern.fullmatch(path)}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _pattern(path: str) -> re.Pattern[str]:
    """Pattern of a path as Starlette reads it."""
    parts = re.split(r"\{\w+(:path)?\}", path)
    texts, kinds = parts[::2], parts[1::2]
    pattern = re.escape(texts[0])
    for kind, text in zip(kinds, texts[1:], strict=True):
        pattern += (".*" if kind else "[^/]+") + re.escape(text)
    return re.compile(pattern, re.DOTALL)
