"""Asking a model that speaks ``chat/completions`` (OpenAI, vLLM, llama.cpp, Ollama …).

Whoever names the address is the operator, so none is forbidden; redirects are not followed, because the key
would go with them.
"""

import json
from collections.abc import Mapping
from typing import Any

from outrider.http_client import HttpClient, HttpStatusError

MAX_ANSWER_BYTES = 1_000_000


def post(
    client: HttpClient,
    url: str,
    body: Mapping[str, Any],
    *,
    key: str | None,
    deadline_s: float,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> dict[str, Any]:
    """Post JSON, for example to ``chat/completions``; return the JSON answer.

    Raises
    ------
    HttpStatusError
        If it has another status than 2xx.
    OSError
        If none came within ``deadline_s``.
    ValueError
        If it is no JSON object, or longer than ``max_bytes``.
    """
    answer = client.post_json(url, body, key=key, deadline_s=deadline_s, max_bytes=max_bytes)
    if not answer.is_success:
        raise HttpStatusError(answer)
    if answer.is_cut:
        raise ValueError(f"more than {max_bytes} bytes came")
    try:
        found = json.loads(answer.body)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply came") from None
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
