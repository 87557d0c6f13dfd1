"""Clients of the systems that ``--production`` and ``--candidate`` name."""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from outrider.behavioral_tests.asking.limits import RateLimit
from outrider.behavioral_tests.asking.records import V1Instances
from outrider.behavioral_tests.asking.server import ModelServer
from outrider.dataops.model_kinds.open_inference import V2Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError

from .answers import Asker
from .chat_asker import ChatAsker
from .known_answers import KnownAnswers
from .local_asker import LocalAsker, local_model
from .records_asker import RecordsAsker

PROMPTS = (".md", ".txt")
MOST_PROMPT_BYTES = 1_000_000
MAX_BYTES = 16_777_216
"""Maximum size of a response body."""
_FORMS = (
    "an address that ends in /v1, /v1/chat/completions, /v2/models/NAME[/infer] or /v1/models/NAME:predict "
    "expected"
)
_PRIVATE = (".local", ".internal", ".localhost", ".svc", ".lan", ".home.arpa")


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Options of one client: ``rate`` is requests per second and server, ``deadline_s`` is per answer."""

    name: str = ""
    deadline_s: float = 30.0
    parallel: int = 4
    rate: float | None = None
    key_env: str = "OUTRIDER_MODEL_KEY"
    production_key_env: str = "OUTRIDER_MODEL_KEY"
    """Environment variable with production's API key, for candidates that are a system prompt for its
    model."""
    model: str | None = None
    limits: dict[str, RateLimit] = field(default_factory=dict)
    """Rate limits by ``host:port``; shared by all systems of a comparison, as ``known`` is."""
    known: KnownAnswers = field(default_factory=KnownAnswers)

    def but(self, **changes: Any) -> "AskOptions":
        return replace(self, **changes)


def asker_of(
    text: str, options: AskOptions, *, production: str | None = None, folder: Path | None = None
) -> Asker:
    """Build the client for a URL, a prompt file or a local model; a prompt or an adapter runs on
    ``production``'s model."""
    base = (folder or Path()).resolve()
    if _is_address(text):
        return _at_address(text, options)
    if text.lower().endswith(PROMPTS):
        return _of_prompt(base / text, text, options, production)
    under = None if production is None or _is_address(production) else base / production
    return local_asker(text, options, folder=base, base=under)


def local_asker(
    text: str, options: AskOptions, *, folder: Path | None = None, base: Path | None = None
) -> LocalAsker:
    model = local_model(text, folder or Path().resolve(), base=base)
    return LocalAsker(options.name or text, model, deadline_s=options.deadline_s)


def public_hosts(candidates: Sequence[str], production: str | None) -> list[str]:
    own = _host(production) if production is not None and _is_address(production) else ""
    hosts = dict.fromkeys(_host(each) for each in candidates if _is_address(each))
    return [host for host in hosts if host != own and _is_public(host)]


def _is_address(text: str) -> bool:
    return "://" in text


def _parts(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises where it is none
    except ValueError as error:
        raise ConfigError(f"{text.partition('@')[2] or text}: no address: {error}") from None
    if parts.username or parts.password:
        raise ConfigError(
            f"{parts.hostname}: the address holds a user or password; put the key into an environment "
            "variable (--candidate-key-env, --production-key-env)"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{text}: an http:// or https:// address expected")
    return parts


def _host(text: str) -> str:
    return (_parts(text).hostname or "").lower()


def _at_address(text: str, options: AskOptions) -> Asker:
    parts = _parts(text)
    path = parts.path.rstrip("/")
    name = options.name or f"{parts.netloc}{path}"
    if "/v2/models/" in path:
        url = parts._replace(path=path if path.endswith("/infer") else f"{path}/infer").geturl()
        v2 = V2Tensors(Source("endpoint", url, task="other"))
        return RecordsAsker(name, _server(url, options, options.key_env), v2, parallel=options.parallel)
    if path.endswith(":predict") or "/v1/models/" in path:
        url = parts._replace(path=path if path.endswith(":predict") else f"{path}:predict").geturl()
        v1 = V1Instances(url)
        return RecordsAsker(name, _server(url, options, options.key_env), v1, parallel=options.parallel)
    server = _server(text, options, options.key_env)
    return ChatAsker(
        name, _chat_url(text), server, model=options.model, parallel=options.parallel, known=options.known
    )


def _chat_url(text: str) -> str:
    """URL of the completions endpoint; ``/v1/chat/completions`` is appended to a bare server or a
    ``/v1`` URL."""
    parts = _parts(text)
    path = parts.path.rstrip("/")
    if path.endswith("/completions"):
        return parts._replace(path=path).geturl()
    if path == "" or path.endswith("/v1"):
        return parts._replace(path=f"{path or '/v1'}/chat/completions").geturl()
    if path.endswith(("/v2", "/v2/models")):
        raise ConfigError(f"{text}: it names no model: …/v2/models/NAME expected")
    raise ConfigError(f"{text}: {_FORMS}")


def _of_prompt(path: Path, text: str, options: AskOptions, production: str | None) -> Asker:
    if not path.is_file():
        raise ConfigError(f"{text} does not exist; a file with a system prompt expected")
    if production is None or not _is_address(production):
        raise ConfigError(
            f"{text} is a prompt for production's model: --production with its address expected"
        )
    if path.stat().st_size > MOST_PROMPT_BYTES:
        raise ConfigError(f"{text}: a prompt of at most {MOST_PROMPT_BYTES} bytes expected")
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{text}: not UTF-8") from None
    if not prompt:
        raise ConfigError(f"{text} is empty; a system prompt expected")
    return ChatAsker(
        options.name or text,
        _chat_url(production),
        _server(production, options, options.production_key_env),
        model=options.model,
        system=prompt,
        parallel=options.parallel,
        known=options.known,
    )


def _server(url: str, options: AskOptions, key_env: str) -> ModelServer:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    limit = options.limits.setdefault(f"{parts.hostname}:{port}", RateLimit(options.rate))
    return ModelServer(
        url,
        deadline_s=options.deadline_s,
        key_env=key_env,
        limit=limit,
        is_patient=True,
        headers={"x-outrider-shadow": "1"},
        max_bytes=MAX_BYTES,
    )


def _is_public(host: str) -> bool:
    """True for a host with a global IP address, and for a domain name that does not resolve."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        pass
    if "." not in host or host.endswith(_PRIVATE):
        return False
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return any(ipaddress.ip_address(address.partition("%")[0]).is_global for address in found)
