"""Captured lines: SageMaker's data capture and ground truth, KServe's logger."""

import base64
import binascii
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .columns import time_text

_LISTS = ("instances", "inputs", "features", "predictions", "outputs", "data", "results")


class Unreadable(ValueError):  # noqa: N818 - reads as the thing it is
    ...


@dataclass(frozen=True, slots=True)
class CaptureNames:
    """Names for values without any, by position."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """``inputs`` and ``outputs``, one for each value; else ``input_0`` … and ``target``, or
    ``output_0`` …."""
    target: str = "label"


def is_sagemaker(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("captureData"), dict) or isinstance(item.get("groundTruthData"), dict)


def sagemaker(item: Mapping[str, Any], names: CaptureNames) -> tuple[str, list[dict[str, Any]]]:
    """Route and records (or labels) of one event; Unreadable where inputs and outputs do not match."""
    about = _object(item.get("eventMetadata") or {}, "eventMetadata")
    id_ = about.get("inferenceId") or about.get("eventId")
    truth = item.get("groundTruthData")
    if isinstance(truth, dict):
        return "labels", _labels(truth, id_, names)
    sides, shared = _sides(item["captureData"], names), _shared(about)
    count = len(next(iter(sides.values())))
    return "records", [
        shared | ({"id": key} if key else {}) | {side: rows[row] for side, rows in sides.items()}
        for row, key in enumerate(_ids(id_, count))
    ]


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unreadable(f"{name}: an object expected, got {type(value).__name__}")
    return value


def _labels(truth: Mapping[str, Any], id_: str | None, names: CaptureNames) -> list[dict[str, Any]]:
    if not id_:
        raise Unreadable("eventMetadata.eventId: the id of the record expected")
    rows = _rows(truth, names.outputs, "output", names.target)
    return [{"id": key, "label": row} for key, row in zip(_ids(id_, len(rows)), rows, strict=True)]


def _sides(captured: Mapping[str, Any], names: CaptureNames) -> dict[str, list[dict[str, Any]]]:
    sides = {}
    if inputs := captured.get("endpointInput"):
        sides["inputs"] = _rows(_object(inputs, "endpointInput"), names.inputs, "input", "")
    if outputs := captured.get("endpointOutput"):
        sides["outputs"] = _rows(_object(outputs, "endpointOutput"), names.outputs, "output", names.target)
    if not sides:
        raise Unreadable("captureData: endpointInput, endpointOutput or both expected")
    if len(sides) == 2:
        asked, said = sides.values()
        if len(said) == 1 and len(asked) > 1:
            sides["outputs"] = said = _columnar(said[0], len(asked))
        if len(said) != len(asked):
            raise Unreadable(f"{len(asked)} inputs, but {len(said)} outputs")
    return sides


def _shared(about: Mapping[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    if about.get("inferenceTime"):
        shared["ts"] = time_text(about["inferenceTime"])
    if told := about.get("customAttributes"):
        text = told if isinstance(told, str) else ",".join(map(str, told))
        shared["attrs"] = {"custom_attributes": text}
    return shared


def kserve_event(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Event of one request from KServe's logger, or None; the service joins the events of a call by
    source and id."""
    given = {name.lower().replace("_", ""): value for name, value in item.items()}
    kind, id_, data = given.get("reqtype"), given.get("id"), given.get("bytes")
    if not (isinstance(kind, str) and "inference." in kind and id_ and "contenttype" in given):
        return None
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode()
    namespace, service = given.get("namespace") or "", given.get("inferenceservice") or ""
    event = {
        "specversion": "1.0",
        "id": str(id_),
        "type": kind,
        "source": _url(given.get("sourceuri")) or f"kserve/{namespace}/{service}",
        "datacontenttype": given.get("contenttype") or "application/json",
        "data_base64": data or "",
    }
    extensions = {"inferenceservicename": service, "namespace": namespace}
    extensions |= {name: given.get(name) or "" for name in ("component", "endpoint")}
    if given.get("metadata"):  # headers of the call, which the logger was told to keep
        told = given["metadata"]
        try:
            extensions["metadata"] = json.dumps(dict(told) if isinstance(told, list) else told)
        except (TypeError, ValueError):
            raise Unreadable(f"metadata: an object expected, got {type(told).__name__}") from None
    return event | {name: value for name, value in extensions.items() if value}


def _url(value: Any) -> str:
    """Text of an address, which Go writes into JSON by its parts."""
    if not isinstance(value, Mapping):
        return str(value or "")
    scheme, host, path = (str(value.get(name) or "") for name in ("Scheme", "Host", "Path"))
    return f"{scheme}://{host}{path}" if host else path


def _ids(id_: str | None, count: int) -> list[str | None]:
    if count == 1 or id_ is None:
        return [id_] * count
    return [f"{id_}:{row}" for row in range(count)]


def _rows(side: Mapping[str, Any], names: Sequence[str], called: str, single: str) -> list[dict[str, Any]]:
    data, encoding = side.get("data"), str(side.get("encoding") or "CSV").upper()
    content = str(side.get("observedContentType") or "").partition(";")[0].strip().lower()
    if encoding == "BASE64":
        try:
            raw = base64.b64decode(str(data), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unreadable(f"data: base64 expected: {error}") from None
        if not (content.endswith(("json", "jsonlines", "csv")) or content.startswith("text/")):
            value = {"$bytes": base64.b64encode(raw).decode()} | ({"media_type": content} if content else {})
            return [{(names[0] if names else single or "payload"): value}]
        data, encoding = raw.decode("utf-8", "replace"), "CSV" if "csv" in content else "JSON"
        if content.startswith("text/") and "csv" not in content:
            return [{(names[0] if names else single or "text"): data}]
    if encoding not in ("CSV", "JSON"):
        raise Unreadable(f"encoding: CSV, JSON or BASE64 expected, got {encoding!r:.80}")
    if not isinstance(data, str):
        raise Unreadable(f"data: text expected, got {type(data).__name__}")
    values = _csv_rows(data) if encoding == "CSV" else _json_rows(data, lines="jsonlines" in content)
    return [_fields(value, names, called, single) for value in values]


def _csv_rows(text: str) -> list[Any]:
    return [[_number(cell) for cell in row] for row in csv.reader(io.StringIO(text)) if row]


def _json_rows(text: str, *, lines: bool) -> list[Any]:
    try:
        parsed = (
            [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
        )
    except ValueError as error:
        raise Unreadable(f"data: JSON expected: {error}") from None
    if isinstance(parsed, dict):
        named = [name for name in _LISTS if isinstance(parsed.get(name), list)]
        if len(parsed) == 1 and named:
            return list(parsed[named[0]])
        return [parsed]
    if isinstance(parsed, list):
        # One flat vector is one row; a list of rows is several.
        return parsed if parsed and isinstance(parsed[0], list | dict) else [parsed]
    return [[parsed]]


def _fields(value: Any, names: Sequence[str], called: str, single: str) -> dict[str, Any]:
    if isinstance(value, dict):
        inner = value.get("features") if len(value) == 1 else None
        return _fields(inner, names, called, single) if isinstance(inner, list) else value
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, list | dict) for one in values):
        return {(names[0] if len(names) == 1 else single or f"{called}_0"): values}
    if names and len(names) == len(values):
        return dict(zip(names, values, strict=True))
    if len(names) == 1:
        return {names[0]: values}
    if len(values) == 1 and single:
        return {single: values[0]}
    if names:
        raise Unreadable(f"{len(values)} {called}s, but {len(names)} names were given")
    return {f"{called}_{at}": one for at, one in enumerate(values)}


def _columnar(fields: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Rows of an answer with a list per field; one row otherwise."""
    if not fields or not all(isinstance(value, list) and len(value) == count for value in fields.values()):
        return [fields]
    return [{name: value[row] for name, value in fields.items()} for row in range(count)]


def _number(text: str) -> Any:
    text = text.strip()
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if value == value and abs(value) != float("inf") else None
    return text if text else None
