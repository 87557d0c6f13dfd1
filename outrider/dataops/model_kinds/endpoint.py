"""Models elsewhere as Predictors: Open Inference (V2), chat/completions, and instances/predictions (V1).

Which of the three is spoken follows from the address. Whoever writes the configuration names it, so none is
forbidden; redirects are not followed, because the key would go with them.
"""

from urllib.parse import urlsplit

from outrider.assertions import Predictor
from outrider.behavioral_tests.endpoint import endpoint
from outrider.errors import ConfigError

from .endpoint_line import Line, positive, watched
from .source import Source

OPTIONS = ("deadline_s", "key_env", "block_rows", "scores", "tensors", "outputs")
CHAT_OPTIONS = (
    "deadline_s", "key_env", "parallel", "rows_per_s", "model", "prompt", "system", "max_tokens", "output",
)  # fmt: skip


def load_endpoint(source: Source) -> Predictor:
    """Predictor that asks a source's address, not before being called.

    Raises
    ------
    ConfigError
        If an option is not known or has a wrong value.
    """
    path = urlsplit(source.reference).path.rstrip("/")
    is_chat = path.endswith("/chat/completions")
    known = CHAT_OPTIONS if is_chat else OPTIONS
    if unknown := sorted(set(source.options) - set(known)):
        raise ConfigError(f"options.{unknown[0]}: {source.reference} knows {', '.join(known)}")
    deadline_s = positive(source.options, "deadline_s", 10.0)
    key_env = str(source.options.get("key_env", "OUTRIDER_MODEL_KEY"))
    if is_chat:
        from .chat_model import ChatModel

        return ChatModel(source, Line(source.reference, key_env, deadline_s))
    if "/v2/models/" in path:
        from .open_inference import V2Model

        address = source.reference if path.endswith("/infer") else source.reference.rstrip("/") + "/infer"
        return V2Model(source, Line(address, key_env, deadline_s))
    rows = int(positive(source.options, "block_rows", 256))
    ask = endpoint(source.reference, timeout_s=deadline_s, key_env=key_env, block_rows=rows)
    return _resting(ask, Line(source.reference, key_env, deadline_s))


def _resting(ask: Predictor, line: Line) -> Predictor:
    return lambda batch, /: watched(line, lambda: ask(batch))
