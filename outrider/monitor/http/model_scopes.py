"""Models that requests name, for keys of some models.

A route that cannot tell its model is closed to such keys.
"""

import json
from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias
from urllib.parse import parse_qs

from .route_scopes import ScopedRoute

Place: TypeAlias = Literal["none", "path", "query", "body", "records", "route"]
"""Where a request names its model: nowhere, as it asks for nothing of one; in the path; as ``?model=``; as
the member ``model`` of a JSON body; in each record; in what the route looks up, which then asks itself."""
PLACES: Mapping[str, Place] = {
    "GET /openapi.json": "none",
    "GET /static/{name:path}": "none",
    "GET /v2": "none",
    "records": "records",
    "labels": "records",
    "infer": "records",
    "chat": "records",
    "cloudevents": "records",
    "POST /v1/records": "records",
    "POST /v1/labels": "records",
    "GET /v1/assertions/{model}/{name:path}": "path",
    "POST /v1/assertions/{model}/{name:path}/suspend": "path",
    "POST /v1/assertions/{model}/{name:path}/resume": "path",
    "GET /v1/flags/{model}/{flag_id}": "path",
    "GET /v1/records/{model}/{record_id:path}": "path",
    "GET /v1/models/{model}/alarms": "path",
    "GET /v1/models/{model}/slices": "path",
    "GET /v1/models/{model}/drift": "path",
    "GET /v1/models/{model}/profile": "path",
    "GET /v1/models/{model}/estimates": "path",
    "GET /v1/models/{model}/history": "path",
    "GET /v1/models/{model}/performance": "path",
    "GET /v1/models/{model}/series": "path",
    "GET /v1/models/{model}/triggers": "path",
    "GET /v1/models/{model}/watch": "path",
    "GET /v1/models/{model}/versions/champion": "path",
    "GET /v1/models/{model}/versions/{version}": "path",
    "GET /v1/models/{model}/versions/{version}/weights": "path",
    "POST /v1/models/{model}/promote": "path",
    "POST /v1/models/{model}/rollback": "path",
    "POST /v1/models/{model}/versions": "path",
    "GET /v1/suites/{model}/matrix": "path",
    "GET /v1/suites/{model}/outcomes/{version}/{suite}/{test:path}": "path",
    "POST /v1/suites/{model}/outcomes": "path",
    "GET /v1/agreement": "query",
    "GET /v1/assertions": "query",
    "GET /v1/columns": "query",
    "GET /v1/datasets": "query",
    "GET /v1/fairness": "query",
    "GET /v1/flags": "query",
    "GET /v1/gates": "query",
    "GET /v1/incidents": "query",
    "GET /v1/jobs": "query",
    "GET /v1/judges": "query",
    "GET /v1/label-requests": "query",
    "GET /v1/models": "query",
    "GET /v1/overlaps": "query",
    "GET /v1/proposals": "query",
    "GET /v1/quarantine": "query",
    "GET /v1/records": "query",
    "GET /v1/rejected": "query",
    "GET /v1/report": "query",
    "GET /v1/retrains": "query",
    "GET /v1/reviews": "query",
    "GET /v1/suites": "query",
    "GET /v1/weak-labels": "query",
    "POST /v1/columns/forget": "body",
    "POST /v1/label-requests": "body",
    "POST /v1/pauses": "body",
    "POST /v1/pauses/resume": "body",
    "POST /v1/proposals": "body",
    "POST /v1/proposals/accept": "body",
    "GET /v1/uploads/{upload}": "route",
    "PUT /v1/uploads/{upload}/files/{name:path}": "route",
    "POST /v1/uploads/{upload}/complete": "route",
    "DELETE /v1/uploads/{upload}": "route",
}
"""Of routes that a key of some models may use, by name of the route or intake."""


def models_fault(route: ScopedRoute, models: Collection[str], *, path: str, query: bytes, body: bytes) -> str:
    """Reason against a request by a key of some models, or empty.

    Examples
    --------
    >>> route = ScopedRoute("GET /v1/flags", ())
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"model=churn", body=b"")
    ''
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"model=churn&model=other", body=b"")
    'is for model churn alone, not other'
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"", body=b"")
    'is for model churn alone: name one with ?model='
    """
    known = f"is for model {', '.join(sorted(models))} alone"
    for action in route.actions or (route.action,):
        place = PLACES.get(action)
        if place is None:
            return f"{known}, and {action} is of all models"
        named, how = _named(place, action, path, query, body)
        if named is None:
            return f"{known}: name one {how}"
        if others := [model for model in named if model not in models]:
            return f"{known}, not {others[0][:200]}"
    return ""


def _named(place: Place, action: str, path: str, query: bytes, body: bytes) -> tuple[list[str] | None, str]:
    """Models that a request names, None where it must, and how it would."""
    if place == "path":
        before = action.partition(" ")[2].partition("{model}")[0]
        return [path.removeprefix(before).partition("/")[0]], "in the path"
    if place == "query":
        values = parse_qs(query.decode("utf-8", "replace"), keep_blank_values=True).get("model")
        return values, "with ?model="
    if place == "body":
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        model = found.get("model") if isinstance(found, dict) else None
        return ([model] if isinstance(model, str) else None), 'with "model" in a JSON body'
    return [], ""


def reads_body(route: ScopedRoute) -> bool:
    """True where the body names the model."""
    return any(PLACES.get(action) == "body" for action in route.actions or (route.action,))
