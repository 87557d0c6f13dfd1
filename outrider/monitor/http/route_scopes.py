"""Scope of every route; a route without one is closed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.dataops.access.scopes import Right

INTAKES: Mapping[str, str] = {
    "records": "ingest",
    "labels": "ingest label",
    "infer": "ingest",
    "chat": "ingest",
    "cloudevents": "ingest",
    "traces": "ingest",
    "logs": "ingest",
}
"""Of the intakes by name, whose requests are told by more than a path. Any one of several scopes is
enough."""
ROUTES: Mapping[str, str] = {
    # everybody
    "GET /healthz": "",
    "GET /readyz": "",
    "GET /v2/health/live": "",
    "GET /v2/health/ready": "",
    "GET /login": "",
    "POST /login": "",
    # senders, and what they ask before they send
    "POST /v1/records": "ingest",
    "POST /v1/labels": "ingest label",
    "GET /v2": "ingest read",
    "GET /v2/models/{name:path}": "ingest read",
    "GET /v2/models/{name:path}/ready": "ingest read",
    # readers
    "GET /metrics": "read",
    "GET /openapi.json": "read",
    "GET /v1/agreement": "read",
    "GET /v1/assertions": "read",
    "GET /v1/assertions/{model}/{name:path}": "read",
    "GET /v1/columns": "read",
    "GET /v1/comparisons": "read",
    "GET /v1/comparisons/{comparison}": "read",
    "GET /v1/datasets": "read",
    "GET /v1/datasets/{name}/diff": "read",
    "GET /v1/datasets/{name}/tags": "read",
    "GET /v1/datasets/{name}/versions/{number}": "read",
    "GET /v1/datasets/{name}/versions/{number}/provenance": "read",
    "GET /v1/datasets/{name}/versions/{number}/rows": "read",
    "GET /v1/fairness": "read",
    "GET /v1/models/{model}/alarms": "read",
    "GET /v1/models/{model}/slices": "read",
    "GET /v1/models/{model}/drift": "read",
    "GET /v1/flags": "read",
    "GET /v1/flags/{model}/{flag_id}": "read",
    "GET /v1/gates": "read",
    "GET /v1/incidents": "read",
    "GET /v1/jobs": "read",
    "GET /v1/jobs/{job}": "read",
    "GET /v1/judges": "read",
    "GET /v1/label-requests": "read",
    "GET /v1/lineage/{model}": "read",
    "GET /v1/models": "read",
    "GET /v1/models/{model}/profile": "read",
    "GET /v1/models/{model}/estimates": "read",
    "GET /v1/models/{model}/history": "read",
    "GET /v1/models/{model}/performance": "read",
    "GET /v1/models/{model}/series": "read",
    "GET /v1/models/{model}/versions/champion": "read",
    "GET /v1/models/{model}/versions/{version}": "read",
    "GET /v1/models/{model}/triggers": "read",
    "GET /v1/models/{model}/watch": "read",
    "GET /v1/models/{model}/versions/{version}/weights": "read",
    "GET /v1/overlaps": "read",
    "GET /v1/fleet": "read",
    "GET /v1/overview": "read",
    "GET /v1/pauses": "read",
    "GET /v1/proposals": "read",
    "GET /v1/quarantine": "read",
    "GET /v1/records": "read",
    "GET /v1/records/{model}/{record_id:path}": "read",
    "GET /v1/rejected": "read",
    "GET /v1/report": "read",
    "GET /v1/retrains": "read",
    "GET /v1/retrains/{job}": "read",
    "GET /v1/reviews": "read",
    "GET /v1/suites": "read",
    "GET /v1/suites/{model}/matrix": "read",
    "GET /v1/suites/{model}/outcomes/{version}/{suite}/{test:path}": "read",
    "GET /v1/weak-labels": "read",
    "GET /": "read",
    "GET /incidents": "read",
    "GET /incidents/{incident}": "read",
    "GET /compare": "read",
    "GET /compare/{comparison}": "read",
    "GET /docs": "read",
    "GET /static/{name:path}": "read",
    "GET /m/{model}": "read",
    "GET /m/{model}/agreement": "read",
    "GET /m/{model}/behavior": "read",
    "GET /m/{model}/behavior/{version}/{suite}/{test:path}": "read",
    "GET /m/{model}/datasets": "read",
    "GET /m/{model}/datasets/{name}": "read",
    "GET /m/{model}/datasets/{name}/{number}": "read",
    "GET /m/{model}/datasets/{name}/diff": "read",
    "GET /m/{model}/datasets/{name}/{number}/data-docs": "read",
    "GET /m/{model}/fairness": "read",
    "GET /m/{model}/alarms": "read",
    "GET /m/{model}/slices": "read",
    "GET /m/{model}/drift": "read",
    "GET /m/{model}/flags": "read",
    "GET /m/{model}/images/behavior/{version}/{suite}/{test:path}": "read",
    "GET /m/{model}/images/flags/{flag_id}/{name:path}": "read",
    "GET /m/{model}/images/records/{column}/{record_id:path}": "read",
    "GET /m/{model}/lineage": "read",
    "GET /m/{model}/proposals": "read",
    "GET /m/{model}/records/{record_id:path}": "read",
    "GET /m/{model}/retrains": "read",
    "GET /models/{model}/agreement": "read",
    "GET /assertions/{model}/{name:path}": "read",
    # a reader's own links and sessions; those of others need admin, which the routes ask for
    "POST /v1/logins": "read",
    "GET /v1/sessions": "read",
    "POST /v1/sessions/{session}/end": "read",
    "GET /sessions": "read",
    "POST /sessions/{session}/end": "read",
    "POST /logout": "read",
    # labels
    "POST /v1/label-requests": "label",
    "POST /m/{model}/labels": "label",
    "POST /compare/{comparison}/labels": "label",
    # reviews, incidents, suspended assertions, test cases
    "POST /v1/reviews": "review",
    "POST /v1/incidents/{incident}": "review",
    "POST /v1/assertions/{model}/{name:path}/suspend": "review",
    "POST /v1/assertions/{model}/{name:path}/resume": "review",
    "POST /v1/suites/{model}/cases": "review",
    "POST /reviews": "review",
    "POST /incidents/{incident}": "review",
    "POST /assertions/{model}/{name:path}/suspend": "review",
    "POST /assertions/{model}/{name:path}/resume": "review",
    "POST /m/{model}/cases": "review",
    # what is judged, trained and in production
    "POST /v1/alerts": "promote",
    "POST /v1/columns/forget": "promote",
    "POST /v1/comparisons": "promote",
    "POST /v1/datasets/{name}/tags": "promote",
    "POST /v1/datasets/{name}/tags/{tag}/remove": "promote",
    "PUT /v1/comparisons/{comparison}": "promote",
    "DELETE /v1/comparisons/{comparison}": "promote",
    "POST /compare/{comparison}/remove": "promote",
    "POST /v1/datasets/{name}/versions": "promote",
    "POST /v1/models/{model}/promote": "promote",
    "POST /v1/models/{model}/rollback": "promote",
    "POST /v1/models/{model}/versions/{version}/retire": "promote",
    "POST /v1/pauses": "promote",
    "POST /v1/pauses/resume": "promote",
    "POST /v1/proposals": "promote",
    "POST /v1/proposals/accept": "promote",
    "POST /v1/quarantine/{action}": "promote",
    "POST /v1/jobs/{job}/cancel": "promote",
    "POST /v1/jobs/{job}/retry": "promote",
    "POST /v1/retrains": "promote",
    # versions that were trained elsewhere, and jobs that wait for one
    "GET /v1/retrains/{job}/task": "read",
    "GET /v1/retrains/{job}/datasets/{which}": "read",
    "GET /v1/retrains/{job}/champion/{name:path}": "read",
    "POST /v1/retrains/{job}/progress": "promote",
    "POST /v1/retrains/{job}/failure": "promote",
    "POST /v1/models/{model}/versions": "promote",
    "GET /v1/uploads/{upload}": "promote",
    "PUT /v1/uploads/{upload}/files/{name:path}": "promote",
    "POST /v1/uploads/{upload}/complete": "promote",
    "DELETE /v1/uploads/{upload}": "promote",
    "POST /v1/suites/{model}/outcomes": "promote",
    "POST /m/{model}/jobs": "promote",
    "POST /m/{model}/rollback": "promote",
    "POST /m/{model}/quarantine": "promote",
    "POST /m/{model}/proposals/learn": "promote",
    "POST /m/{model}/proposals/accept": "promote",
    # keys, the log and erasures
    "GET /v1/erasures": "admin",
    "GET /v1/erasures/{erasure}": "admin",
    "POST /v1/erasures": "admin",
    "GET /v1/keys": "admin",
    "POST /v1/keys": "admin",
    "POST /v1/keys/{name}/limits": "admin",
    "POST /v1/keys/{name}/revoke": "admin",
    "GET /v1/log": "admin",
}

AFTER_VERSION = frozenset({"GET /v1/uploads/{upload}", "POST /v1/uploads/{upload}/complete"})
"""Routes for the token of a job whose version is there: its sender may have missed the answer."""
FOR_JOBS = AFTER_VERSION | {
    "GET /v1/retrains/{job}/task",
    "GET /v1/retrains/{job}/datasets/{which}",
    "GET /v1/retrains/{job}/champion/{name:path}",
    "POST /v1/retrains/{job}/progress",
    "POST /v1/retrains/{job}/failure",
    "POST /v1/models/{model}/versions",
    "PUT /v1/uploads/{upload}/files/{name:path}",
    "DELETE /v1/uploads/{upload}",
}
"""Routes for the token of a job that is trained outside, for its own job alone."""


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
    actions
        Names of all routes of the path, where it is of several.
    """

    action: str
    needs: tuple[frozenset[Right], ...]
    is_intake: bool = False
    actions: tuple[str, ...] = ()

    def missing(self, rights: frozenset[Right]) -> frozenset[Right] | None:
        """Scopes of which these rights lack one, else None."""
        return next((scopes for scopes in self.needs if not scopes & rights), None)


class RouteScopes:
    """Scopes of requests, by the one table of routes.

    Parameters
    ----------
    intakes
        Asked in order whether a request is theirs.
    routes, of_intakes
        The tables.

    Examples
    --------
    >>> routes = RouteScopes()
    >>> routes.find("POST", "/v1/models/churn/promote", {}).missing(frozenset(["ingest"]))
    frozenset({'promote'})
    >>> routes.find("POST", "/v1/unheard-of", {}), routes.methods("/v1/keys")
    (None, ['GET', 'HEAD', 'POST'])
    """

    def __init__(
        self,
        intakes: Sequence[Intake] = (),
        *,
        routes: Mapping[str, str] = ROUTES,
        of_intakes: Mapping[str, str] = INTAKES,
    ) -> None:
        self._intakes = [(one, _route(one.name, of_intakes[one.name], is_intake=True)) for one in intakes]
        self._exact: dict[tuple[str, str], ScopedRoute] = {}
        self._patterns: list[tuple[str, re.Pattern[str], ScopedRoute]] = []
        for action, scopes in routes.items():
            method, _, path = action.partition(" ")
            if "{" in path:
                self._patterns.append((method, _pattern(path), _route(action, scopes)))
            else:
                self._exact[method, path] = _route(action, scopes)

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
        return ScopedRoute(nearest.action, needs, actions=tuple(route.action for route in found))

    def methods(self, path: str) -> list[str]:
        """Methods that a path has a route for."""
        exact = {method for method, own in self._exact if own == path}
        found = exact | {method for method, pattern, _ in self._patterns if pattern.fullmatch(path)}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _route(action: str, scopes: str, *, is_intake: bool = False) -> ScopedRoute:
    named: frozenset[Right] = frozenset(scopes.split())  # type: ignore[arg-type]  # a test compares them
    return ScopedRoute(action, (named,) if named else (), is_intake)


def _pattern(path: str) -> re.Pattern[str]:
    """Pattern of a path as Starlette reads it."""
    parts = re.split(r"\{\w+(:path)?\}", path)
    texts, kinds = parts[::2], parts[1::2]
    pattern = re.escape(texts[0])
    for kind, text in zip(kinds, texts[1:], strict=True):
        pattern += (".*" if kind else "[^/]+") + re.escape(text)
    return re.compile(pattern, re.DOTALL)
