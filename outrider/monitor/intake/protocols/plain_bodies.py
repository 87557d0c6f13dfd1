"""Bodies without tensors: V1 (instances, predictions), Seldon's, and chat calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider.monitor.intake.decode import FieldError

from .chat_columns import answer_fields, input_fields, request_attrs, response_attrs
from .v2 import Message

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlainForm:
    inputs: tuple[str, ...] = ()
    target: str = "label"
    """Name of a single answer."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of ``instances``, ``predictions``, ``ndarray`` or ``tensor``: one, or one per element."""
    output_names: Mapping[str, tuple[str, ...]] | None = None
    """None: the names of requests."""

    def rows(
        self, listed: list[Any], message: Message, *, own: str, given: list[str] | None = None
    ) -> list[Fields]:
        """Fields of each element of a list; ``own`` names the list, ``given`` its elements."""
        return [_named(row, self._names(row, message, own, given)) for row in listed]

    def _names(self, row: Any, message: Message, own: str, given: list[str] | None) -> tuple[str, ...]:
        width = len(row) if isinstance(row, list) else 0
        chosen = self.names if message == "request" or self.output_names is None else self.output_names
        if own in chosen:
            return chosen[own]
        if given and width == len(given):
            return tuple(given)
        if message == "request":
            fits = len(self.inputs) == 1 or (width and width == len(self.inputs))
            return self.inputs if fits else (own,)
        return (self.target,) if not isinstance(row, list) or not width else (own,)


@dataclass(frozen=True, slots=True)
class PlainBody:
    rows: list[Fields]
    id: str | None = None
    attrs: Fields = field(default_factory=dict)


def read_plain(body: Any, message: Message, form: PlainForm) -> PlainBody:
    """Records of a parsed JSON body; a FieldError names the member that cannot be read."""
    if not isinstance(body, dict):
        raise FieldError("data", f"expected a JSON object, got {type(body).__name__}")
    if message == "request":
        if "messages" in body:
            return PlainBody(
                [input_fields(_list(body, "messages"), tools=body.get("tools"))], attrs=request_attrs(body)
            )
        own = "instances"
    else:
        if "choices" in body:
            return PlainBody([answer_fields(body)], _text(body.get("id")), response_attrs(body))
        own = "predictions"
    if own in body:
        return PlainBody(form.rows(_list(body, own), message, own=own))
    columns = body.get("inputs" if message == "request" else "outputs")
    if columns is not None:  # TensorFlow's columnar form
        return PlainBody(_columnar(columns, message, form, own))
    return _seldon(body, message, form)


def _columnar(columns: Any, message: Message, form: PlainForm, own: str) -> list[Fields]:
    if isinstance(columns, list):
        return form.rows(columns, message, own=own)
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise FieldError("data", "inputs or outputs: a list, or an object of lists of one length, expected")
    if len({len(values) for values in columns.values()}) != 1:
        raise FieldError("data", "inputs or outputs: lists of one length expected, an element per record")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _seldon(body: Mapping[str, Any], message: Message, form: PlainForm) -> PlainBody:
    meta = body.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    tags = meta.get("tags")
    attrs = dict(tags) if isinstance(tags, dict) else {}
    own = "instances" if message == "request" else "predictions"
    if isinstance(data := body.get("data"), dict):
        names = data.get("names")
        given = [str(name) for name in names] if isinstance(names, list) else None
        rows = form.rows(_array(data), message, own=own, given=given)
    elif isinstance(body.get("strData"), str):
        rows = form.rows([body["strData"]], message, own=own)
    elif isinstance(body.get("binData"), str):
        rows = form.rows([{"b64": body["binData"]}], message, own=own)
    elif "jsonData" in body:
        json_data = body["jsonData"]
        rows = form.rows(json_data if isinstance(json_data, list) else [json_data], message, own=own)
    else:
        kinds = "instances, inputs, data, strData, jsonData, binData or messages"
        if message == "response":
            kinds = "predictions, outputs, data, strData, jsonData, binData or choices"
        raise FieldError("data", f"expected {kinds}; got {list(body)!r:.200}")
    return PlainBody(rows, _text(meta.get("puid")), attrs)


def _array(data: Mapping[str, Any]) -> list[Any]:
    if isinstance(data.get("ndarray"), list):
        listed: list[Any] = data["ndarray"]
        return listed
    tensor = data.get("tensor")
    if not isinstance(tensor, dict):
        raise FieldError("data", "data: ndarray or tensor expected")
    try:
        shaped = np.asarray(tensor.get("values"), dtype=np.float64).reshape(tensor.get("shape"))
        rows: list[Any] = shaped.tolist()
    except (TypeError, ValueError, OverflowError) as error:
        raise FieldError("data", f"data.tensor: numbers in a shape expected: {error}") from None
    if not isinstance(rows, list):
        raise FieldError("data", "data.tensor: a shape of at least one size expected")
    return rows


def _named(row: Any, names: tuple[str, ...]) -> Fields:
    if isinstance(row, dict) and set(row) != {"b64"}:
        return {name: _binary(value) for name, value in row.items()}
    if len(names) == 1:
        return {names[0]: _binary(row)}
    if not isinstance(row, list) or len(row) != len(names):
        raise FieldError("data", f"a list of {len(names)} values expected {names!r:.200}, got {row!r:.80}")
    return dict(zip(names, row, strict=True))


def _binary(value: Any) -> Any:
    """TensorFlow's form of bytes in the form of records."""
    return {"$bytes": value["b64"]} if isinstance(value, dict) and set(value) == {"b64"} else value


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    listed = body[name]
    if not isinstance(listed, list) or not listed:
        raise FieldError("data", f"{name}: a list with at least one element expected")
    return listed


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
