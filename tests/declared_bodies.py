"""Holds the bodies that the API answers with to the types that ``/openapi.json`` declares."""

import re
from typing import Any

import httpx
import jsonschema
from fastapi import FastAPI


def check_body(app: Any, answer: httpx.Response) -> None:
    """Assert that a JSON body has the fields and types that its operation declares, and no others."""
    if isinstance(app, FastAPI) and answer.is_success and _is_json(answer):
        document = app.openapi()
        path = path_of(document, answer.request.method, answer.request.url.path)
        if path is not None:
            check(document, answer, path)


def check(document: dict[str, Any], answer: httpx.Response, path: str) -> None:
    """Assert that the body of an operation is as a document has it."""
    method = answer.request.method
    declared = document["paths"][path][method.lower()]["responses"][str(answer.status_code)]
    schema = declared["content"]["application/json"]["schema"]
    closed_document = _closed({"components": document.get("components", {}), **schema})
    faults = [
        f"{method} {path} at {'/'.join(map(str, fault.absolute_path))}: {fault.message}"
        for fault in jsonschema.Draft202012Validator(closed_document).iter_errors(answer.json())
    ]
    assert not faults, "\n".join(faults)


def path_of(document: dict[str, Any], method: str, path: str) -> str | None:
    """Path of the operation that answers a request; None where the document has none."""
    known = [template for template, methods in document["paths"].items() if method.lower() in methods]
    for segment in ("[^/]+", ".+"):  # what stands for a name may hold slashes
        for template in known:
            pattern = "".join(
                segment if part.startswith("{") else re.escape(part)
                for part in re.split(r"(\{\w+\})", template)
            )
            if re.fullmatch(pattern, path):
                return str(template)
    return None


def _closed(schema: Any) -> Any:
    """The schema with no fields but those that it names."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(each) for name, each in schema.items()}
    if "properties" in found and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def _is_json(answer: httpx.Response) -> bool:
    return str(answer.headers.get("content-type", "")).startswith("application/json")
