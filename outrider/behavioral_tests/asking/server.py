"""Client of a served model, with one outcome per question.

Redirects are not followed, because they would forward the key.
"""

import json
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from outrider.addresses import AddressGuard
from outrider.errors import ServerError
from outrider.http_client import HttpAnswer, HttpClient, is_own_fault

from .limits import Breaker, RateLimit

MAX_BYTES = 67_108_864
_AGAIN = frozenset({429, 503})
_LATE = frozenset({408, 504})
_NO_ENTRY = frozenset({401, 403, 404})
_LONGEST = 300

Fate = Literal["answered", "refused", "late", "failed", "unreadable", "unasked"]
"""Outcome of a question: answered, refused (4xx), timed out, failed, or in an unreadable format. ||
``unasked``: the question was not sent, so the outcome says nothing about the server."""
Found = TypeVar("Found")


class NotJson(ValueError):  # noqa: N818 - reads as the thing it is
    """Raised for a response that is not JSON, perhaps from a proxy."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Outcome of one question: a response body, or the reason for none."""

    fate: Fate
    body: bytes = b""
    why: str = ""
    status: int = 0
    """HTTP status; 0 without a response."""
    headers: Mapping[str, str] = field(default_factory=dict)
    latency_s: float = float("nan")
    """Response time in seconds; NaN if the question was retried or not answered."""

    @property
    def is_of_the_question(self) -> bool:
        """True if question or answer is at fault, not the server."""
        return self.fate == "unreadable" or (self.fate == "refused" and self.status not in _NO_ENTRY)


class ModelServer:
    """Thread-safe client of a model server over HTTP.

    Parameters
    ----------
    key_env
        Environment variable with the bearer token, read for each request; None for no key.
    guard
        Checks the address of each connection; None if the operator chose the address.
    breaker
        Circuit breaker of `watched` calls; None for none.
    is_patient
        Whether a question is retried once: after a timeout, or 429 or 503 with Retry-After.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline_s: float,
        key_env: str | None,
        guard: AddressGuard | None = None,
        limit: RateLimit | None = None,
        breaker: Breaker | None = None,
        is_patient: bool = False,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        parts = urlsplit(url)
        self.place = parts.netloc.rpartition("@")[2]
        self.name = parts._replace(netloc=self.place, query="", fragment="").geturl()
        """Address for messages, without parts that may be secret."""
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an http:// or https:// address expected, got {self.name}")
        self._url, self.deadline_s = url, deadline_s
        self._key_env, self._max_bytes = key_env, max_bytes
        self._client = HttpClient(url, guard=guard)
        self._limit = limit or RateLimit(None)
        self._breaker, self._is_patient = breaker, is_patient
        self._headers = {"accept": "application/json"} | dict(headers or {})
        self._lock = threading.Lock()
        self.retries = 0
        """Number of retried questions."""

    def post(
        self, body: bytes, *, url: str | None = None, questions: int = 1, until: float | None = None
    ) -> Exchange:
        """Send one request; errors become a ``Fate`` instead of exceptions.

        The rate limit counts ``questions``; ``until`` is a deadline in ``time.monotonic`` seconds.
        """
        self._limit.wait(questions)
        until = time.monotonic() + self.deadline_s if until is None else until
        first = self._exchange("POST", url or self._url, body, until)
        pause_s = self._pause_s(first) if self._is_patient else None
        if pause_s is None or (first.status and pause_s >= until - time.monotonic()):
            return first
        with self._lock:
            self.retries += 1
        time.sleep(pause_s)
        self._limit.wait(questions)
        if not first.status:
            until = time.monotonic() + self.deadline_s
        elif time.monotonic() >= until:
            return first
        found = self._exchange("POST", url or self._url, body, until)
        is_late = found.fate == "late" and not found.status
        return replace(
            found, latency_s=float("nan"), why=f"{found.why}, asked twice" if is_late else found.why
        )

    def get(self, url: str) -> bytes | None:
        """Response body of status 200, or None."""
        self._limit.wait()
        found = self._exchange("GET", url, None, time.monotonic() + self.deadline_s)
        return found.body if found.status == 200 and found.fate == "answered" else None

    def ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """JSON object in response to a JSON object.

        Raises
        ------
        ValueError
            If the question is refused, or the answer is too long or not an object.
        ServerError
            If there is no answer, or it is not JSON.
        """
        found = self.post(json.dumps(body).encode())
        if found.fate != "answered":
            kind = ValueError if found.is_of_the_question else ServerError
            raise kind(f"{self.name}: {found.why.removeprefix(f'{self.place}: ')}")
        try:
            return object_of(found.body)
        except NotJson as error:
            raise ServerError(f"{self.name}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def watched(self, call: Callable[[], Found]) -> Found:
        """Result of a call whose ServerErrors count for the circuit breaker."""
        if self._breaker is None:
            return call()
        if not self._breaker.allows():
            raise ServerError(f"{self.name}: requests pause for a while after one without an answer")
        try:
            found = call()
        except ServerError:
            self._breaker.failed()
            raise
        self._breaker.answered()
        return found

    def _exchange(self, method: str, url: str, body: bytes | None, until: float) -> Exchange:
        began = time.monotonic()
        if began >= until:
            return Exchange("unasked", why=f"no time left of {self.deadline_s:g} s")
        key = os.environ.get(self._key_env) if self._key_env else None
        headers = self._headers | ({} if body is None else {"content-type": "application/json"})
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        try:
            answer = self._client.exchange(
                method,
                url,
                content=body,
                headers=headers,
                deadline_s=until - began,
                max_bytes=self._max_bytes,
            )
        except TimeoutError:
            return Exchange("late", why=f"no answer within {self.deadline_s:g} s")
        except OSError as error:
            fate: Fate = "unasked" if is_own_fault(error) else "failed"
            what = "not sent" if fate == "unasked" else "no answer"
            text = error.strerror or str(error) or type(error).__name__
            return Exchange(fate, why=f"{self.place}: {what}: {text[:_LONGEST]}")
        return self._read(answer, time.monotonic() - began, has_key=bool(key))

    def _read(self, answer: HttpAnswer, latency_s: float, *, has_key: bool) -> Exchange:
        seen = Exchange("answered", status=answer.status, headers=answer.headers)
        try:
            body = self._unpacked(answer)
        except ValueError as error:
            if answer.is_success:
                return replace(seen, fate="unreadable", why=str(error))
            body = b""
        if answer.is_success:
            return replace(seen, body=body, latency_s=latency_s)
        why = _reason(body) or answer.reason
        if answer.status in (401, 403) and self._key_env and not has_key:
            why += f" (no key in {self._key_env})"
        if 300 <= answer.status < 400:
            why = "redirects are not followed"
        is_refused = 400 <= answer.status < 500 and answer.status != 429
        fate: Fate = "late" if answer.status in _LATE else "refused" if is_refused else "failed"
        return replace(seen, fate=fate, why=f"status {answer.status}: {why}")

    def _unpacked(self, answer: HttpAnswer) -> bytes:
        """Decompressed body, for servers that compress without being asked."""
        kind = answer.headers.get("content-encoding", "identity").strip().lower()
        if answer.is_cut:
            raise ValueError(f"an answer of more than {self._max_bytes} bytes")
        if kind in ("", "identity"):
            return answer.body
        if kind not in ("gzip", "x-gzip", "deflate"):
            raise ValueError(f"an answer compressed by {kind!r:.20}, though none was asked for")
        unpacker = zlib.decompressobj(47 if "gzip" in kind else 15)
        try:
            body = unpacker.decompress(answer.body, self._max_bytes)
        except zlib.error as error:
            raise ValueError(f"an answer whose {kind} cannot be read: {error}") from None
        if unpacker.unconsumed_tail:
            raise ValueError(f"an answer of more than {self._max_bytes} bytes")
        if not unpacker.eof:
            raise ValueError(f"an answer whose {kind} breaks off")
        return body

    @staticmethod
    def _pause_s(found: Exchange) -> float | None:
        """Seconds until a retry makes sense; None if it does not."""
        if not found.status:
            return 0.0 if found.fate == "late" else None
        try:
            pause_s = float(found.headers.get("retry-after", ""))
        except ValueError:
            return None
        return max(0.0, pause_s) if found.status in _AGAIN else None


def in_threads(threads: int, work: Sequence[Callable[[], Found]]) -> list[Found]:
    """Results of calls in daemon threads, in the order of ``work``. Daemon threads do not delay exit."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(work)):
        waiting.put(number)
    found: dict[int, Found] = {}

    def run() -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            found[number] = work[number]()

    runners = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, len(work)))]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    return [found[number] for number in range(len(work))]


def object_of(body: bytes) -> dict[str, Any]:
    """JSON object of a response. NaN and infinity are allowed."""
    try:
        value = _value_of(body)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"JSON expected: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object expected, got {type(value).__name__}")
    return value


def _value_of(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):  # the fast reader is strict
        return json.loads(body)


def _reason(body: bytes) -> str:
    """Reason for an error, from the server's response."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else found
    reason = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    if isinstance(reason, list) and reason and isinstance(reason[0], dict):
        reason = reason[0].get("msg")
    return reason[:160] if isinstance(reason, str) else ""
