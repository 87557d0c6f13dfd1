"""Unsupported endpoints of V2 and OpenAI, each with a sentence that says so."""

import re

from outrider.monitor.http.problem import ProblemError, problem

_V2 = re.compile(
    r"/v2/(?:(?:(?P<memory>(?:system|cuda)sharedmemory)|(?P<repository>repository)"
    r"|(?P<logging>logging|trace))(?:/.*)?|models/(?:.+/)?(?P<last>stats|generate|generate_stream|trace/setting))"
)
_OPENAI = re.compile(
    r"/v1/(?P<what>responses|embeddings|moderations|audio|images|messages|rerank|batches|files|realtime)(?:/.*)?"
)
_V2_TAKES = (
    "Outrider takes copies of POST /v2/models/NAME[/versions/VERSION]/infer with the tensors in the body, "
    "as JSON or binary, and answers GET /v2, /v2/health/live, /v2/health/ready, /v2/models/NAME[/ready]"
)
_OPENAI_TAKES = (
    "Outrider takes copies of POST /v1/chat/completions and /v1/completions; calls of other endpoints come "
    "as records (POST /v1/records) or traces (OpenTelemetry)"
)
_WHAT = {
    "memory": "shared memory lies on the machine of the model server",
    "repository": "a shadow target loads and unloads no models",
    "logging": "logging and tracing are those of the model server",
    "stats": "statistics are those of the model server (GET /metrics has Outrider's own)",
    "generate": "the generate extension is not understood",
    "generate_stream": "the generate extension is not understood",
    "trace/setting": "logging and tracing are those of the model server",
}


def is_unsupported_v2(path: str) -> bool:
    return path.startswith("/v2/") and _V2.fullmatch(path) is not None


def is_unsupported_openai(path: str) -> bool:
    return _OPENAI.fullmatch(path) is not None


def refuse_unsupported(path: str) -> None:
    if is_unsupported_v2(path) and (found := _V2.fullmatch(path)):
        part = next(name for name, text in found.groupdict().items() if text)
        what = _WHAT[found["last"] if part == "last" else part]
        raise ProblemError(problem(404, f"not supported: {what}. {_V2_TAKES}"))
    if found := _OPENAI.fullmatch(path):
        raise ProblemError(problem(404, f"not supported: /v1/{found['what']}. {_OPENAI_TAKES}"))


def shared_memory(name: str) -> ProblemError:
    detail = f"tensor {name}: not supported: {_WHAT['memory']}. {_V2_TAKES}"
    return ProblemError(problem(422, detail))
