"""Parse a JSON value of traffic: requests, captures, records, V2 and V1 bodies, OTLP exports."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from outrider.data_files import LABEL_TASK, is_label_task, json_reason
from outrider.errors import ConfigError
from outrider.monitor.files.captures import CaptureNames, Unreadable, is_sagemaker, sagemaker
from outrider.monitor.files.columns import Names, record_of, time_text
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import FieldError
from outrider.monitor.intake.protocols.chat_columns import content_text
from outrider.monitor.intake.protocols.otlp.messages import parsed
from outrider.monitor.intake.protocols.plain_bodies import PlainForm, read_plain
from outrider.monitor.intake.protocols.v2 import Message, V2Form

from .askable import is_secret
from .completions import OtherForm, answer_fields, parsed_answer, tool_calls
from .otlp_calls import calls_of_export
from .questions import Members, NoQuestion, RecordedQuestion, chat_body, members_of, value_of

OTHER_API = "another interface than completions"
NO_CONTENT = "the content of the question was not recorded"
ONLY_LABEL = "a label without a question"
_META = {
    "id", "custom_id", "ts", "time", "timestamp", "entity", "conversation", "attrs", "response", "answer",
    "output", "outputs", "label", "version", "seq", "weight", "status",
}  # fmt: skip
_COMPLETIONS = re.compile(r"(?:^|/)completions/?(?:$|\?)")
_SETTINGS = ("temperature", "top_p", "max_tokens", "seed")


def questions_of(text: bytes) -> list[RecordedQuestion]:
    try:
        if text[:1] == b'"':
            return [RecordedQuestion(body=chat_body(msgspec.json.decode(text, type=str)))]
        return _of_object(text, members_of(text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(json_reason(text, error, expected="a JSON object or text")) from None
    except ProblemError as error:
        raise Unreadable(error.problem.detail) from None
    except (FieldError, ConfigError) as error:
        raise Unreadable(str(error)) from None


def _of_object(text: bytes, given: Members) -> list[RecordedQuestion]:
    if "resourceSpans" in given:
        return calls_of_export(text)
    if {"annotations", "annotation_id"} & given.keys() and is_label_task(msgspec.json.decode(text)):
        raise Unreadable(LABEL_TASK)
    about = _about(given)
    if (inner := given.get("request", given.get("body"))) is not None and "messages" not in given:
        return _captured(bytes(inner), given, about)
    if _starts(given, "messages", b"[") or _is_text_request(given):
        return [RecordedQuestion(body=text, **about, outputs=_answers(given))]
    for name in ("prompt", "text"):
        if given.keys() - _META == {name} and _starts(given, name, b'"'):
            body = chat_body(value_of(given, name))
            return [RecordedQuestion(body=body, **about, outputs=_answers(given))]
    if "input" in given and "model" in given:
        raise NoQuestion(OTHER_API)
    if _starts(given, "inputs", b"[") or "instances" in given:
        return list(_rows(text, given.get("response", given.get("outputs")), about))
    return _of_record(msgspec.json.decode(text), about)


def _is_text_request(given: Members) -> bool:
    return "prompt" in given and bool(given.keys() - _META - {"prompt"})


def _about(given: Members) -> dict[str, Any]:
    id_ = value_of(given, "id") or value_of(given, "custom_id")
    entity = value_of(given, "entity") or value_of(given, "conversation")
    ts = value_of(given, "ts") or value_of(given, "timestamp")
    return {
        "id": None if id_ is None else str(id_),
        "entity": str(entity) if isinstance(entity, str | int) else None,
        "ts": None if ts is None else time_text(ts),
        "attrs": attributes(value_of(given, "attrs")),
    }


def attributes(given: Any) -> dict[str, Any]:
    """Attributes without API keys and cookies."""
    found = given if isinstance(given, Mapping) else {}
    return {str(name): value for name, value in found.items() if not is_secret(str(name))}


def _captured(request: bytes, given: Members, about: dict[str, Any]) -> list[RecordedQuestion]:
    """Questions of a captured request and its response, also wrapped in a log of HTTP exchanges."""
    if request[:1] == b'"':
        request = msgspec.json.decode(request, type=str).encode()
    address = value_of(given, "url") or value_of(given, "path")
    if request[:1] != b"{":
        if address is not None:
            raise Unreadable(f"a request in JSON expected, got {len(request)} bytes of something else")
        return [RecordedQuestion(body=chat_body(request.decode()), **about, outputs=_answers(given))]
    inner = members_of(request)
    address = address or value_of(inner, "url")
    if isinstance(address, str) and "/v1/" in address and not _COMPLETIONS.search(address):
        raise NoQuestion(OTHER_API)
    if "body" in inner and not inner.keys() & {"messages", "prompt", "inputs", "instances"}:
        return _captured(bytes(inner["body"]), given, about)
    if _starts(inner, "messages", b"[") or "prompt" in inner:
        return [RecordedQuestion(body=request, **about, outputs=_answers(given))]
    if "input" in inner and "model" in inner:
        raise NoQuestion(OTHER_API)
    if _starts(inner, "inputs", b"[") or "instances" in inner:
        return list(_rows(request, given.get("response"), about))
    fields = value_of(inner, "inputs") if "inputs" in inner else msgspec.json.decode(request)
    outputs = value_of(given, "response")
    if isinstance(outputs, Mapping) and isinstance(outputs.get("outputs"), Mapping):
        outputs = outputs["outputs"]
    return [RecordedQuestion(inputs=fields, **about, outputs=outputs if isinstance(outputs, Mapping) else {})]


def _answers(given: Members) -> dict[str, Any]:
    for name in ("response", "answer", "output", "outputs"):
        value = value_of(given, name)
        if isinstance(value, Mapping) and isinstance(value.get("body"), Mapping | str):
            value = value["body"]
        if isinstance(value, Mapping) and value and "choices" not in value:
            return chat_outputs(value)
        if value is not None:
            return recorded_answer(value)
    return {}


def recorded_answer(value: Any) -> dict[str, Any]:
    try:
        if (isinstance(value, str) and value.lstrip()[:1] == "{") or str(value)[:5] == "data:":
            return answer_fields(parsed_answer(str(value).encode()))
        if isinstance(value, Mapping):
            return answer_fields(value)
    except OtherForm:
        if not isinstance(value, str):
            return {}
    text = content_text(value)
    return {} if text is None else {"text": text}


def chat_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(outputs)
    if "answer" in found:
        found["text"] = found.pop("answer")
    if "text" in found and "error" not in found:
        calls = found.get("tool_calls")
        listed = parsed(calls)
        found["tool_calls"] = tool_calls(listed if isinstance(listed, list) else [])
    return {name: value for name, value in found.items() if value is not None}


def _rows(body: bytes, response: msgspec.Raw | None, about: dict[str, Any]) -> Iterator[RecordedQuestion]:
    """Records of a V2 or V1 body; recorded answers are used only if their number matches."""
    asked = _fields(body, "request")
    answered = [] if response is None else _fields(bytes(response), "response")
    for row, inputs in enumerate(asked):
        id_ = about["id"] if len(asked) == 1 or about["id"] is None else f"{about['id']}:{row}"
        outputs = answered[row] if len(answered) == len(asked) else {}
        yield RecordedQuestion(**about | {"id": id_}, inputs=inputs, outputs=outputs)


def _fields(body: bytes, message: Message) -> list[dict[str, Any]]:
    value = msgspec.json.decode(body)
    is_v2 = isinstance(value, Mapping) and isinstance(value.get(_PART[message]), list)
    first = value[_PART[message]][:1] if is_v2 else []
    if first and isinstance(first[0], Mapping) and "datatype" in first[0]:
        found = V2Form().read(body, message)
        names = {name: name.partition(".")[2] for name in found.columns}
        columns = {names[n]: v if isinstance(v, list) else v.to_pylist() for n, v in found.columns.items()}
        return [{name: values[row] for name, values in columns.items()} for row in range(found.rows)]
    return read_plain(value, message, PlainForm()).rows


_PART: Mapping[Message, str] = {"request": "inputs", "response": "outputs"}


def _of_record(item: dict[str, Any], about: dict[str, Any]) -> list[RecordedQuestion]:
    """Questions of an Outrider record, a SageMaker capture or a flat object."""
    if is_sagemaker(item):
        route, rows = sagemaker(item, CaptureNames())
        if route == "labels":
            raise NoQuestion(ONLY_LABEL)
        return [_recorded(row, about | _known(row)) for row in rows]
    inputs, outputs = item.get("inputs"), item.get("outputs")
    if inputs is None and outputs is not None:
        raise NoQuestion(NO_CONTENT)
    if isinstance(inputs, Mapping) and outputs is not None and not isinstance(outputs, Mapping):
        raise Unreadable(f"outputs: an object expected, got {type(outputs).__name__}")
    record = item if isinstance(inputs, Mapping) else record_of(item, Names())
    return [_recorded(record, about)]


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: row[name] for name in ("id", "ts") if row.get(name)}
    return found | ({"attrs": attributes(row["attrs"])} if "attrs" in row else {})


def _recorded(record: Mapping[str, Any], about: dict[str, Any]) -> RecordedQuestion:
    inputs, outputs = record.get("inputs") or {}, record.get("outputs") or {}
    if about["attrs"] == {} and isinstance(record.get("attrs"), Mapping):
        about = about | {"attrs": attributes(record["attrs"])}
    if not inputs:
        is_label = "label" in record and not outputs
        raise NoQuestion(ONLY_LABEL if is_label else NO_CONTENT)
    body = request_of(inputs, about["attrs"])
    if body is None:
        return RecordedQuestion(**about, inputs=inputs, outputs=outputs)
    answer = outputs if "choices" not in outputs else recorded_answer(outputs)
    return RecordedQuestion(**about, body=body, outputs=chat_outputs(answer))


def request_of(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> bytes | None:
    """Completion request rebuilt from a record's inputs; None for a record of anything else."""
    whole, messages = inputs.get("request"), inputs.get("messages")
    if isinstance(whole, str) and whole.lstrip()[:1] == "{":
        return whole.encode()
    if isinstance(whole, Mapping):
        return msgspec.json.encode(whole)
    if isinstance(messages, str) and messages.lstrip()[:1] == "[":
        messages = msgspec.Raw(messages.encode())
    if not isinstance(messages, list | msgspec.Raw):
        if isinstance(inputs.get("prompt"), str) and "request_model" in attrs:
            return msgspec.json.encode({"model": attrs["request_model"], "prompt": inputs["prompt"]})
        return None
    tools = inputs.get("tools")
    body: dict[str, Any] = {"messages": messages}
    if tools:
        body["tools"] = msgspec.Raw(tools.encode()) if isinstance(tools, str) else tools
    if attrs.get("request_model"):
        body["model"] = attrs["request_model"]
    known = {name: attrs[name] for name in _SETTINGS if attrs.get(name) is not None}
    rest = {n: v for n, v in inputs.items() if n not in ("messages", "tools", "prompt", "system", "passages")}
    return msgspec.json.encode(body | known | rest)


def _starts(given: Members, name: str, with_: bytes) -> bool:
    return bytes(given.get(name, b""))[:1] == with_
