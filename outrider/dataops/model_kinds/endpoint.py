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
from outrider.behavioral_tests.endpoint import endpoint
from outrider.errors import ConfigError

from .endpoint_line import Line, positive, watched
from .source import ALLOWED, Source

OPTIONS = ("deadline_s", "key_env", "block_rows", "scores", "tensors", "outputs")
CHAT_OPTIONS = (
    "deadline_s", "key_env", "parallel", "rows_per_s", "model", "prompt", "system", "max_tokens", "output",
)  # fmt: skip
UPLOAD_OPTIONS = tuple(name for name in dict.fromkeys((*OPTIONS, *CHAT_OPTIONS)) if name != "key_env")
"""Of uploaded endpoints: each takes those of the protocol that it speaks."""


def load_endpoint(source: Source) -> Predictor:
    """Predictor that asks a source's address, not before being called.

    Raises
    ------
    ConfigError
        If an option is not known or has a wrong value, or an upload named an address that is not allowed.
    """
    path = urlsplit(source.reference).path.rstrip("/")
    is_chat = path.endswith("/chat/completions")
    known, guard = CHAT_OPTIONS if is_chat else OPTIONS, None
    if source.is_uploaded:
        source, guard = _allowed(source, known)
    if unknown := sorted(set(source.options) - set(known)):
        raise ConfigError(f"options.{unknown[0]}: {source.reference} knows {', '.join(known)}")
    deadline_s = positive(source.options, "deadline_s", 10.0)
    key_env = source.key_env
    if is_chat:
        from .chat_model import ChatModel

        return ChatModel(source, Line(source.reference, key_env, deadline_s, guard))
    if "/v2/models/" in path:
        from .open_inference import V2Model

        address = source.reference if path.endswith("/infer") else source.reference.rstrip("/") + "/infer"
        return V2Model(source, Line(address, key_env, deadline_s, guard))
    rows = int(positive(source.options, "block_rows", 256))
    ask = endpoint(source.reference, timeout_s=deadline_s, key_env=key_env, block_rows=rows, guard=guard)
    return _resting(ask, Line(source.reference, key_env, deadline_s, guard))


def _allowed(source: Source, known: Sequence[str]) -> tuple[Source, AddressGuard]:
    """Opened source of an upload with the options that it knows, and its guard."""
    allowed = source.options.get(ALLOWED)
    if allowed is None:
        raise ConfigError(
            f"{source.reference} is not asked: an upload named it, and [models.*.uploads] endpoints, which "
            "lists the host:port that uploads may name, does not allow it"
        )
    options = {name: value for name, value in source.options.items() if name in known}
    guard = AddressGuard(
        tuple(allowed["networks"]),
        place=allowed["place"],
        remedy=" ([models.*.uploads] networks names others that are allowed)",
    )
    return replace(source, options=options | {"key_env": allowed["key_env"]}), guard


def _resting(ask: Predictor, line: Line) -> Predictor:
    return lambda batch, /: watched(line, lambda: ask(batch))
