"""Asking a model that speaks ``chat/completions`` (OpenAI, vLLM, llama.cpp, Ollama …).

Whoever names the address is the operator, so none is forbidden; redirects are not followed, because the key
would go with them.
"""

import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

MAX_ANSWER_BYTES = 1_000_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Leave the answer as it is: the caller sees the status."""


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """HTTP opener without redirects, and without proxy for this machine."""
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    proxies = [urllib.request.ProxyHandler({})] if local else []
    return urllib.request.build_opener(_NoRedirect, *proxies)


def post(
    opener: urllib.request.OpenerDirector,
    url: str,
    body: Mapping[str, Any],
    *,
    key: str | None,
    deadline_s: float,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> dict[str, Any]:
    """Post a JSON object and return the JSON answer.

    To ``chat/completions`` of a model's server, for example.

    Raises
    ------
    OSError, http.client.HTTPException
        If no answer came within ``deadline_s``, or one of another status than 200.
    ValueError
        If it is no JSON object, or longer than ``max_bytes``.
    """
    until = time.monotonic() + deadline_s
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with opener.open(request, timeout=deadline_s) as response:
        parts = bytearray()
        while part := response.read1(65536):  # a server that drips must not outlast the deadline
            parts += part
            if time.monotonic() > until:
                raise TimeoutError
            if len(parts) > max_bytes:
                raise ValueError(f"more than {max_bytes} bytes came")
    found = json.loads(parts)
    if not isinstance(found, dict):
        raise ValueError("a JSON object expected")
    return found


def text_of(body: Mapping[str, Any]) -> str:
    """Text of a chat completion's answer.

    Raises
    ------
    ValueError
        If the answer has no ``choices[0].message.content``.
    """
    try:
        text = body["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        text = None
    if not isinstance(text, str):
        raise ValueError("choices[0].message.content expected")
    return text
