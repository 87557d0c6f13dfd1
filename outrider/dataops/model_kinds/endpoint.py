"""Models elsewhere as Predictors: Open Inference (V2), chat/completions, and instances/predictions (V1).

Which of the three is spoken follows from the address. One that the configuration names is asked wherever it
lies; one that an upload named only where the configuration allows it, which has its key and options then.
Redirects are not followed, because key and records would go with them.
"""

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from outrider.addresses import AddressGuard
from outrider.assertions import Predictor
from outrider.behavioral_tests.asking.limits import Breaker
from outrider.behavioral_tests.asking.records import ServedModel, V1Instances
from outrider.behavioral_tests.asking.server import ModelServer
from outrider.errors import ConfigError

from .source import ALLOWED, Source

OPTIONS = ("deadline_s", "key_env", "block_rows", "scores", "tensors", "outputs")
CHAT_OPTIONS = (
    "deadline_s", "key_env", "parallel", "rows_per_s", "model", "prompt", "system", "max_tokens", "output",
)  # fmt: skip
UPLOAD_OPTIONS = tuple(name for name in dict.fromkeys((*OPTIONS, *CHAT_OPTIONS)) if name != "key_env")
"""Of uploaded endpoints: each takes those of the protocol that it speaks."""

FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""Pauses after a request without an answer: a block that could not be answered is halved in search of a bad
record, and must not wait for each half."""


def load_endpoint(source: Source) -> Predictor:
    path = urlsplit(source.reference).path.rstrip("/")
    is_chat = path.endswith("/chat/completions")
    known, guard = CHAT_OPTIONS if is_chat else OPTIONS, None
    if source.is_uploaded:
        source, guard = _allowed(source, known)
    if unknown := sorted(set(source.options) - {*known, ALLOWED}):
        raise ConfigError(f"options.{unknown[0]}: {source.reference} knows {', '.join(known)}")
    is_v2 = not is_chat and "/v2/models/" in path
    url = source.reference
    server = ModelServer(
        url.rstrip("/") + "/infer" if is_v2 and not path.endswith("/infer") else url,
        deadline_s=source.positive("deadline_s", 10.0),
        key_env=source.key_env,
        guard=guard,
        breaker=Breaker(failures=1, first_rest_s=FIRST_REST_S, longest_rest_s=LONGEST_REST_S),
    )
    if is_chat:
        from .chat_model import ChatModel

        return ChatModel(source, server)
    rows = int(source.positive("block_rows", 256))
    if is_v2:
        from .open_inference import V2Tensors

        return ServedModel(server, V2Tensors(source), block_rows=rows)
    return ServedModel(server, V1Instances(server.name), block_rows=rows)


def _allowed(source: Source, known: Sequence[str]) -> tuple[Source, AddressGuard]:
    allowed = source.options.get(ALLOWED)
    if allowed is None:
        raise ConfigError(
            f"{source.reference} is not asked: an upload named it, and [models.*.uploads] endpoints, which "
            "lists the host:port that uploads may name, does not allow it"
        )
    options = {name: value for name, value in source.options.items() if name in (*known, ALLOWED)}
    guard = AddressGuard(
        tuple(allowed["networks"]),
        place=allowed["place"],
        remedy=" ([models.*.uploads] networks names others that are allowed)",
    )
    return replace(source, options=options), guard
