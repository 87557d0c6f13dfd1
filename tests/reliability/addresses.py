"""Requests to every route of a service, from its own table, its document and what it answers."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, quote_plus

from .mutations import HOSTILE, Request, mutated

_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
_PARTS = [
    "", "x", "x" * 3000, "é", "%F0%9F%98%80", "%00", "%2f", "..", "%2e%2e%2f", ".", "%ff", "%", "%zz",
    "a%0Ab", "-1", "9" * 40, "NaN", "newest", "champion", "<script>", "'; DROP TABLE flag; --",
    "%25", "%5C", "a//b", "*", "~", " ",
]  # fmt: skip
_QUERIES = [
    "", "x", "0", "-1", "1", "1.5", "NaN", "inf", "-inf", "1e400", "9" * 30, str(2**63), str(-(2**63) - 1),
    str(2**31), "true", "null", "[]", "{}", "%00", "%ff", "é", "%ED%A0%80", "x" * 3000,
    "2026-01-05T10:00:00Z", "9999-99-99",
    "0001-01-01", "99999-01-01T00:00:00Z",
    "1:2", "1:x", ":", "a,b", "../..", "%25", "+", "\\", "'", "*", "_",
]  # fmt: skip
_HEADERS = {
    "accept": ["", "*/*", "text/html", "application/json", "text/html;q=x", "application/openmetrics-text",
        "é", "," * 500],
    "accept-encoding": ["gzip", "", "zstd", "identity;q=0", "x"],
    "host": ["", "x", "localhost:99999", "[::1", "é", "a" * 400, "127.0.0.1:x", ":"],
    "cookie": ["", "outrider=", "outrider=x", 'outrider="', "é=é", "=;=;", "a=b; " * 200,
        "outrider=" + "x" * 4000],
    "range": ["bytes=0-", "bytes=-1", "bytes=9-1", "bytes=x", "bytes=0-1,2-3", "lines=1",
        "bytes=" + "0-0," * 500],
    "if-none-match": ["*", "x", '"', "W/"],
    "if-modified-since": ["x", "Mon, 05 Jan 2026 10:00:00 GMT", "99999"],
    "authorization": ["", "Bearer", "Bearer é", "Basic eA==", "Bearer " + "x" * 4000],
    "x-forwarded-for": ["", "x", "1.2.3.4, é", "::1"],
    "x-forwarded-proto": ["https", "x"],
    "hx-request": ["true", ""],
    "x-csrf-token": ["", "x"],
    "origin": ["null", "http://x"],
    "referer": ["", "http://[", "é"],
    "expect": ["100-continue"],
}  # fmt: skip
_MOST_VALUES = 40
_TRIES = 200
_NUMBERS: dict[str, list[Any]] = {
    "integer": [0, 1, 2, 5, 60, 10**6], "number": [0, 0.5, 1.0, 60.0, 1e9], "boolean": [True, False],
}  # fmt: skip
_METHODS = ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "GET", "POST", "TRACE", "x"]


@dataclass
class Known:
    """Values that a service showed, by the name of their field, and the names of its forms' fields."""

    values: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    fields: dict[str, None] = field(default_factory=dict)

    def learn(self, body: bytes) -> None:
        """Take up the values of a JSON body, or the fields and links of a page."""
        try:
            self._walk(json.loads(body), "")
        except ValueError:
            page = body.decode("utf-8", "replace")
            self.fields.update(dict.fromkeys(re.findall(r'\bname="(\w+)"', page)))
            for name, value in re.findall(r'\bname="(\w+)" value="([^"]*)"', page):
                self._walk(value, name)

    def _walk(self, value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self._walk(each, key)
                if key in ("id", "name", "number") and name.endswith("s"):
                    self._walk(each, f"{name[:-1]}_id")
        elif isinstance(value, list):
            for each in value[:20]:
                self._walk(each, name)
        elif value is not None and len(found := self.values[name]) < _MOST_VALUES:
            found[str(value)[:200]] = None

    def one(self, name: str, rng: random.Random, of: str = "") -> str:
        """A value of a field, or of an object of that name, or of what it is a part of; else any."""
        named = [key for key in (f"{of}_id", of, f"{name}_id", name) if key in self.values]
        if named and rng.random() < 0.95:
            return rng.choice(list(self.values[rng.choice(named)]))
        return rng.choice(list(self.values[rng.choice(sorted(self.values))]) or ["x"])


@dataclass(frozen=True)
class Route:
    """One route: its queries' names, and the schema of a JSON body."""

    method: str
    path: str
    queries: tuple[str, ...] = ()
    needed: frozenset[str] = frozenset()
    schema: Mapping[str, Any] | None = None


def routes_of(actions: Sequence[str], document: Mapping[str, Any]) -> list[Route]:
    """Routes with what the document says about each."""
    return [_route(action, document) for action in actions]


def _route(action: str, document: Mapping[str, Any]) -> Route:
    method, _, path = action.partition(" ")
    plain = path.replace(":path}", "}")
    said = document["paths"].get(plain, {}).get(method.lower(), {})
    queries = [one for one in said.get("parameters", []) if one["in"] == "query"]
    body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    needed = frozenset(one["name"] for one in queries if one.get("required"))
    return Route(method, path, tuple(one["name"] for one in queries), needed, body)


class Sender:
    """Requests to all routes, drawn by one generator.

    Parameters
    ----------
    routes, document
        Where to, and of what types.
    known
        Values that exist; it may learn while requests are drawn.
    credentials
        Headers of the owner first, then of others.
    seeds
        Valid requests of the intakes.
    worked
        Valid requests of other routes, in an order in which each has success.
    """

    def __init__(
        self,
        routes: list[Route],
        document: Mapping[str, Any],
        known: Known,
        credentials: Callable[[], list[dict[str, str]]],
        seeds: list[Request],
        rng: random.Random,
        worked: Sequence[Request] = (),
    ) -> None:
        self._routes, self._document, self._known, self._worked = routes, document, known, worked
        self._credentials, self._seeds, self._rng = credentials, seeds, rng
        self._names = sorted({name for route in routes for name in route.queries})

    def valid(self) -> Iterator[Request]:
        """Each route once, as it is meant, with the owner's key."""
        for request in self._worked:
            yield self._signed(request, is_owner=True)
        for route in self._routes:
            yield self._plain(route)

    def until(self, answered: Container[str]) -> Iterator[Request]:
        """Plain requests to each route until it is among the answered: their values are drawn."""
        for route in self._routes:
            for _ in range(_TRIES):
                if f"{route.method} {route.path}" not in answered:
                    yield self._plain(route)

    def _plain(self, route: Route) -> Request:
        return self._signed(self._meant(route, asked_more=0.0), is_owner=True)

    def draw(self) -> Request:
        """A request with some things wrong."""
        rng = self._rng
        if rng.random() < 0.1:
            return self._signed(mutated(rng.choice(self._seeds), rng))
        if self._worked and rng.random() < 0.2:
            request = rng.choice(self._worked)
            return self._signed(mutated(request, rng) if rng.random() < 0.8 else request)
        route = rng.choice(self._routes)
        request = self._meant(route)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            act = rng.choice(["path", "query", "query", "header", "body", "body", "method"])
            if act == "path":
                request = replace(request, path=self._address(route, odd=0.5))
            elif act == "query":
                request = replace(request, path=request.path + self._query(request.path, route))
            elif act == "header":
                name = rng.choice(list(_HEADERS))
                request = replace(request, headers=request.headers | {name: rng.choice(_HEADERS[name])})
            elif act == "body":
                request = mutated(request, rng)
            elif rng.random() < 0.3:
                request = replace(request, method=rng.choice(_METHODS))
        return self._signed(request)

    def _signed(self, request: Request, *, is_owner: bool = False) -> Request:
        of_owner, *others = self._credentials()
        chosen = of_owner if is_owner or self._rng.random() < 0.75 else self._rng.choice([*others, {}])
        return replace(request, headers={**chosen, **request.headers})

    def _meant(self, route: Route, *, asked_more: float = 0.3) -> Request:
        path = self._address(route, odd=0.0)
        asked = [name for name in route.queries if name in route.needed or self._rng.random() < asked_more]
        pairs = [f"{name}={quote_plus(self._known.one(name, self._rng))}" for name in asked]
        if pairs:
            path += "?" + "&".join(pairs)
        if route.method == "GET":
            return Request(path, {}, b"", "GET")
        if route.path.startswith(("/v1/", "/v2/")):
            body = json.dumps(self._example(route.schema or {"type": "object"}, "")).encode()
            return Request(path, {"content-type": "application/json"}, body, route.method)
        form = {
            name: self._known.one(name, self._rng) for name in self._known.fields if self._rng.random() < 0.4
        }
        text = "&".join(f"{name}={quote_plus(value)}" for name, value in form.items())
        return Request(
            path, {"content-type": "application/x-www-form-urlencoded"}, text.encode(), route.method
        )

    def _address(self, route: Route, *, odd: float) -> str:
        def fill(place: re.Match[str]) -> str:
            if self._rng.random() < odd:
                return self._rng.choice(_PARTS)
            of = route.path[: place.start()].rpartition("/")[0].rpartition("/")[2].removesuffix("s")
            named = place[1] in ("name", "number")
            return quote(self._known.one(place[1], self._rng, of if named else ""), safe="/")

        return _PLACE.sub(fill, route.path)

    def _query(self, path: str, route: Route) -> str:
        rng = self._rng
        names = (
            route.queries if route.queries and rng.random() < 0.8 else (*self._names, "unknown", "", "%00")
        )
        name = rng.choice(names)
        value = rng.choice(_QUERIES)
        pair = rng.choice(
            [f"{name}={value}"] * 6 + [name, f"{name}={value}&{name}=x", f"{name}={value}&" * 60]
        )
        return ("&" if "?" in path else "?") + pair

    def _example(self, schema: Mapping[str, Any], name: str, depth: int = 0) -> Any:
        """A value of a schema."""
        rng = self._rng
        if "$ref" in schema:
            return self._example(
                self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name, depth
            )
        if "const" in schema or "enum" in schema:
            return rng.choice(schema.get("enum") or [schema["const"]])
        if union := schema.get("anyOf") or schema.get("oneOf"):
            return self._example(rng.choice(union), name, depth)
        if rng.random() < 0.03:
            return rng.choice(HOSTILE)
        kind = schema.get("type")
        if kind == "object" and depth < 6:
            needed = schema.get("required", [])
            given = {
                key: self._example(each, key, depth + 1)
                for key, each in schema.get("properties", {}).items()
                if key in needed or rng.random() < 0.6
            }
            return given or {self._known.one("name", rng): self._known.one("value", rng)}
        if kind == "array":
            return [self._example(schema.get("items", {}), name, depth + 1) for _ in range(rng.randrange(4))]
        if kind in _NUMBERS:
            return rng.choice(_NUMBERS[kind])
        return None if kind == "null" else self._known.one(name, rng)
