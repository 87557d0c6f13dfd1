"""Holds the bodies that the API answers with to the types that it declares."""

import json
from functools import cache
from typing import Any

import httpx
import jsonschema
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Match


def check_body(app: Any, answer: httpx.Response) -> None:
    """Assert that a JSON body has the fields and types that its route declares, and no others."""
    if not isinstance(app, FastAPI) or not answer.is_success or not _is_json(answer):
        return
    route = _route(app, answer.request)
    if route is None or not route.include_in_schema:
        return
    more: dict[int | str, dict[str, Any]] = route.responses
    declared = more.get(answer.status_code, {}).get("model", route.response_model)
    assert declared is not None, f"{route.methods} {route.path} declares no body"
    check(json.loads(answer.content), schema_of(declared), f"{route.methods} {route.path}")


def check(body: Any, schema: dict[str, Any], what: str) -> None:
    """Assert that a body is as a schema has it."""
    faults = [
        f"{what} at {'/'.join(map(str, fault.absolute_path))}: {fault.message}"
        for fault in jsonschema.Draft202012Validator(schema).iter_errors(body)
    ]
    assert faults == []


@cache
def schema_of(declared: Any) -> dict[str, Any]:
    """JSON Schema of a body."""
    schema: dict[str, Any] = closed(TypeAdapter(declared).json_schema(mode="serialization"))
    return schema


def closed(schema: Any) -> Any:
    """The schema with no fields but those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if "properties" in found and isinstance(found.get("type"), str):
        found.setdefault("additionalProperties", False)
    return found


def _is_json(answer: httpx.Response) -> bool:
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("application/json")


def _route(app: FastAPI, request: httpx.Request) -> APIRoute | None:
    scope = {
        "type": "http",
        "method": request.method,
        "path": request.url.path,
        "headers": [],
        "root_path": "",
    }
    found = (each for each in app.routes if each.matches(scope)[0] == Match.FULL)
    route = next(found, None)
    return route if isinstance(route, APIRoute) else None
