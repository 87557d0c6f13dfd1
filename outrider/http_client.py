"""HTTP client of the product: whole deadlines, bounded answers, guarded keys.

Served models (`outrider.behavioral_tests.asking.server`), webhooks and commands are asked with it.
httpx is imported where a client is made.
"""

import errno
import ipaddress
import math
import socket
import ssl
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from .addresses import AddressGuard

if TYPE_CHECKING:
    import httpx

KEPT_S = 1.0
"""How long an idle connection is kept: shorter than servers do, so that none is gone when it is used."""


_EXHAUSTED = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ENETUNREACH}
)


class NotSentError(OSError):
    """A request whose address, key or headers cannot be written."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, headers and body of an answer.

    Attributes
    ----------
    headers
        By names in lower case.
    is_cut
        Whether more came than was wanted.
    """

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False

    @property
    def is_success(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


class Deadline(dict[str, float]):
    """Timeouts of an exchange's steps: each has the remaining time."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def get(self, key: str, default: float | None = None) -> float:  # type: ignore[override]  # never none  # noqa: ARG002
        """Remaining seconds; a moment without any, so that the step fails."""
        return max(self._until - time.monotonic(), 0.001)


class HttpClient:
    """Exchanges with one server, over connections kept for a second.

    Safe to use from several threads. Connections close with the last reference to it.

    Parameters
    ----------
    url
        Decides the proxy, which is the environment's: none for this machine itself.
    guard
        Checks the address of every connection, which then goes round proxies; None where the operator named
        the address.
    """

    def __init__(self, url: str, *, guard: AddressGuard | None = None) -> None:
        import httpx

        parts = urlsplit(url)
        proxy = _proxy(parts.scheme, parts.netloc) if guard is None and not is_local(url) else None
        self._guard = guard
        is_plain = parts.scheme == "http" and proxy is None
        self._client = httpx.Client(
            # The operating system's certificates; reading them takes longer than an exchange.
            verify=False if is_plain else ssl.create_default_context(),
            proxy=proxy,
            trust_env=False,  # neither .netrc nor certificates of variables that only httpx knows
            limits=httpx.Limits(keepalive_expiry=KEPT_S),
            headers={"user-agent": "Outrider", "accept-encoding": "identity"},
        )
        weakref.finalize(self, self._client.close)

    def exchange(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float,
        is_whole: bool = True,
        max_bytes: int | None = None,
        follows: bool = False,
        sink: BinaryIO | None = None,
    ) -> HttpAnswer:
        """Ask once; an answer of any status.

        Parameters
        ----------
        deadline_s
            Until the last byte is there.
        is_whole
            False: the deadline is for each step alone, such as the next part of a long download.
        max_bytes
            Longest body; what lies behind is not read.
        follows
            Whether redirects are followed, without the key where they lead to another server; never by a
            client with a guard, which would not see where they lead.
        sink
            File that takes the body of a 2xx answer as it comes; the answer's own is empty then.

        Raises
        ------
        TimeoutError
            If the answer is not complete in time.
        PermissionError
            If the guard does not allow the address.
        NotSentError
            If the request cannot be written.
        OSError
            If none came.
        """
        import httpx

        if follows and self._guard is not None:
            raise ValueError("follows: False expected of a client with a guard")
        until = time.monotonic() + deadline_s if is_whole else math.inf
        timeouts = Deadline(until) if is_whole else httpx.Timeout(deadline_s).as_dict()
        extensions: dict[str, object] = {"timeout": timeouts}
        try:
            given = httpx.Headers(dict(headers or {}), encoding="latin-1")
            target = httpx.URL(url)
            if self._guard is not None:
                host = target.raw_host.decode("ascii")
                port = target.port or (443 if target.scheme == "https" else 80)
                given["host"] = target.netloc.decode("ascii")
                extensions["sni_hostname"] = host
                # To the address that was checked: resolving again could give another one.
                target = target.copy_with(host=self._guard.resolve(host, port))
            request = self._client.build_request(
                method, target, content=content, headers=given, extensions=extensions
            )
            answer = self._client.send(request, stream=True, follow_redirects=follows)
            try:
                body, is_cut = _body(answer, until, max_bytes, sink if answer.is_success else None)
            finally:
                answer.close()
        except (httpx.TimeoutException, TimeoutError) as error:
            raise TimeoutError(str(error) or "timed out") from error
        except UnicodeError:
            raise NotSentError("the address or the key has letters that no header can hold") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise NotSentError(_without_headers(error)) from None
        except httpx.HTTPError as error:
            raise _system_error(error) from None
        return HttpAnswer(answer.status_code, answer.reason_phrase, answer.headers, body, is_cut)


def _system_error(error: BaseException) -> OSError:
    """The operating system's error behind one of httpx."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return ConnectionError(str(error) or type(error).__name__)


def _without_headers(error: Exception) -> str:
    """Message of an error, unless it may quote a header, which may be a key."""
    said = str(error) or type(error).__name__
    return "the key or a header has letters that no header can hold" if "header" in said.lower() else said


def is_own_fault(error: OSError) -> bool:
    """True where a request failed before reaching any server."""
    return isinstance(error, NotSentError | socket.gaierror) or error.errno in _EXHAUSTED


def is_local(url: str) -> bool:
    """True where an address names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _body(
    answer: "httpx.Response", until: float, max_bytes: int | None, sink: BinaryIO | None
) -> tuple[bytes, bool]:
    """Body, where it does not go to a file, and whether it is longer than wanted."""
    found = bytearray()
    for part in answer.iter_raw():  # a server that drips must not outlast the deadline
        if sink is None:
            found += part
        else:
            sink.write(part)
        if max_bytes is not None and len(found) > max_bytes:
            return bytes(found[:max_bytes]), True
        if time.monotonic() > until:
            raise TimeoutError("it is not complete")
    return bytes(found), False


def _proxy(scheme: str, place: str) -> str | None:
    """The environment's proxy for an address."""
    proxy = None if proxy_bypass(place) else getproxies().get(scheme)
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
