"""Models that requests name, for keys of some models.

A route that cannot tell its model is closed to such keys.
"""

import json
from collections.abc import Collection
from urllib.parse import parse_qs

from .routes import ScopedRoute


def models_fault(route: ScopedRoute, models: Collection[str], *, path: str, query: bytes, body: bytes) -> str:
    """Reason against a request by a key of some models, or empty.

    Examples
    --------
    >>> route = ScopedRoute.of("GET /v1/flags", "read", place="query")
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"model=churn", body=b"")
    ''
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"model=churn&model=other", body=b"")
    'is for model churn alone, not other'
    >>> models_fault(route, ["churn"], path="/v1/flags", query=b"", body=b"")
    'is for model churn alone: name one with ?model='
    """
    known = f"is for model {', '.join(sorted(models))} alone"
    for part in route.parts or (route,):
        if part.place == "closed":
            return f"{known}, and {part.action} is of all models"
        named, how = _named(part, path, query, body)
        if named is None:
            return f"{known}: name one {how}"
        if others := [model for model in named if model not in models]:
            return f"{known}, not {others[0][:200]}"
    return ""


def _named(route: ScopedRoute, path: str, query: bytes, body: bytes) -> tuple[list[str] | None, str]:
    """Models that a request names, None where it must, and how it would."""
    place = route.place
    if place == "path":
        before = route.action.partition(" ")[2].partition("{model}")[0]
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
    return any(part.place == "body" for part in route.parts or (route,))
