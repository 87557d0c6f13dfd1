"""Exchange with a server: rate, deadline, one retry, bounded answer."""

import os
import re
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from outrider.http_client import HttpAnswer, HttpClient, is_own_fault

from .answers import Fate
from .rates import RateLimit

MAX_BYTES = 16_777_216
"""Longest answer."""
SHADOW = "x-outrider-shadow"
_AGAIN = frozenset({429, 503})
_LATE = frozenset({408, 504})
_HIT = re.compile(r"\bhit\b|_hit\b", re.IGNORECASE)
_TOLD = 160


@dataclass(frozen=True, slots=True)
class Exchange:
    """Outcome of one question: a body, or the reason for none."""

    fate: Fate
    body: bytes = b""
    why: str = ""
    latency_s: float = float("nan")
    """NaN where it was asked twice, or not answered."""
    is_cached: bool = False
    """Its headers say that a cache answered."""


class AskedServer:
    """Server that is asked, with its rate and key.

    Parameters
    ----------
    url
        Any address of it; each question names its own.
    key_env
        Environment variable with the key; read at each question, kept nowhere.
    """

    def __init__(self, url: str, *, limit: RateLimit, key_env: str, deadline_s: float) -> None:
        self.place = urlsplit(url).netloc
        self._client = HttpClient(url)
        self._limit, self._key_env, self._deadline_s = limit, key_env, deadline_s
        self._lock = threading.Lock()
        self.retries = 0
        """Questions that were asked a second time, because the server asked for that or was late."""

    def post(self, url: str, body: bytes, *, questions: int = 1) -> Exchange:
        """Ask once; twice after 429 or 503 with Retry-After, or a timeout."""
        self._limit.wait(questions)
        began = time.monotonic()
        try:
            try:
                answer = self._send("POST", url, body, self._deadline_s)
            except TimeoutError:
                self._note_retry()
                self._limit.wait(questions)
                return self._outcome(self._send("POST", url, body, self._deadline_s), float("nan"))
            pause = _retry_after(answer)
            left = self._deadline_s - (time.monotonic() - began)
            if answer.status in _AGAIN and pause is not None and pause < left:
                self._note_retry()
                time.sleep(pause)
                self._limit.wait(questions)
                left = self._deadline_s - (time.monotonic() - began)
                if left > 0:
                    return self._outcome(self._send("POST", url, body, left), float("nan"))
            return self._outcome(answer, time.monotonic() - began)
        except TimeoutError:
            return Exchange("late", why=f"no answer within {self._deadline_s:g} s, asked twice")
        except OSError as error:
            if is_own_fault(error):
                return Exchange("unasked", why=f"{self.place}: not sent: {_plain(error)}")
            return Exchange("failed", why=f"{self.place}: no answer: {_plain(error)}")

    def _note_retry(self) -> None:
        with self._lock:
            self.retries += 1

    def get(self, url: str) -> bytes | None:
        """Body of a page of status 200, or None."""
        self._limit.wait()
        try:
            answer = self._send("GET", url, None, self._deadline_s)
        except OSError:
            return None
        return answer.body if answer.status == 200 and not answer.is_cut else None

    def _send(self, method: str, url: str, body: bytes | None, deadline_s: float) -> HttpAnswer:
        headers = {SHADOW: "1", "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        if key := os.environ.get(self._key_env):
            headers["authorization"] = f"Bearer {key}"
        return self._client.exchange(
            method, url, content=body, headers=headers, deadline_s=deadline_s, max_bytes=MAX_BYTES
        )

    def _outcome(self, answer: HttpAnswer, latency_s: float) -> Exchange:
        if answer.is_cut:
            return Exchange("unreadable", why=f"an answer of more than {MAX_BYTES} bytes")
        try:
            body = _unpacked(answer)
        except ValueError as error:
            return Exchange("unreadable", why=str(error))
        if answer.is_success:
            return Exchange("answered", body, "", latency_s, is_cache_hit(answer.headers))
        why = f"status {answer.status}: {_reason(body) or answer.reason}"
        if answer.status in (401, 403) and not os.environ.get(self._key_env):
            why += f" (no key in {self._key_env})"
        if 300 <= answer.status < 400:
            why = f"status {answer.status}: redirects are not followed"
        if answer.status in _LATE:
            return Exchange("late", why=why)
        is_refused = 400 <= answer.status < 500 and answer.status != 429
        return Exchange("refused" if is_refused else "failed", why=why)


def is_cache_hit(headers: Mapping[str, str]) -> bool:
    """Test for an answer that a cache gave, by its headers.

    Examples
    --------
    >>> is_cache_hit({"x-cache": "HIT from edge"}), is_cache_hit({"age": "0"}), is_cache_hit({"age": "7"})
    (True, False, True)
    """
    for name, value in headers.items():
        lower = name.lower()
        if lower == "x-litellm-cache-key" or (lower == "age" and value.strip().lstrip("0").isdigit()):
            return True
        if "cache" in lower and _HIT.search(value):
            return True
    return False


def _retry_after(answer: HttpAnswer) -> float | None:
    """Seconds that the server wants to be left alone, None where it does not say."""
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None


def _unpacked(answer: HttpAnswer) -> bytes:
    """Body without its compression, which nobody asked for."""
    kind = answer.headers.get("content-encoding", "identity").strip().lower()
    if kind in ("", "identity"):
        return answer.body
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"an answer compressed by {kind!r:.20}, though none was asked for")
    unpacker = zlib.decompressobj(47 if "gzip" in kind else 15)
    try:
        body = unpacker.decompress(answer.body, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"an answer whose {kind} cannot be read: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"an answer of more than {MAX_BYTES} bytes")
    if not unpacker.eof:
        raise ValueError(f"an answer whose {kind} breaks off")
    return body


def _reason(body: bytes) -> str:
    """Reason that the server gives."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else found
    told = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return told[:_TOLD] if isinstance(told, str) else ""


def _plain(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__)[:_TOLD]
