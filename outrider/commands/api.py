"""HTTP connection of commands to the running service."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from outrider.errors import ConfigError, Erased, GateRefused, NotFound, OutriderError, ServerError
from outrider.http_client import HttpAnswer, HttpClient
from outrider.monitor.client import Server, find_key, find_server

if TYPE_CHECKING:
    import pyarrow as pa

JSON = "application/json"
TIMEOUT_S = 320.0
"""Seconds to wait for an answer; longer than the API waits for an import."""
BUSY_S = 30.0
"""Seconds during which a request is repeated while the service answers 503 with Retry-After: 1."""


@dataclass(frozen=True, slots=True)
class Api:
    """Client of the running service; its methods raise OutriderError for failed requests."""

    url: str
    key: str | None
    origin: str = ""
    """Place where the address was found, for error messages."""
    _client: HttpClient = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_client", HttpClient(self.url))

    def get(self, path: str, **query: object) -> Any:
        """JSON answer to a GET. Query values of None are omitted, lists repeated."""
        return json.loads(self._ask("GET", path, query)[0])

    def get_bytes(self, path: str, **query: object) -> bytes:
        return self._ask("GET", path, query)[0]

    def download(self, path: str, file: BinaryIO, **query: object) -> None:
        self._ask("GET", path, query, sink=file)

    def get_page(self, path: str, **query: object) -> tuple[bytes, Mapping[str, str]]:
        return self._ask("GET", path, query)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """JSON answer to a POST of ``body`` as JSON, without None values."""
        given = {name: value for name, value in body.items() if value is not None}
        return json.loads(self._ask("POST", path, {}, json.dumps(given).encode(), JSON)[0])

    def post_bytes(self, path: str, body: bytes, *, kind: str, query: Mapping[str, object]) -> Any:
        return json.loads(self._ask("POST", path, query, body, kind)[0])

    def put_bytes(self, path: str, body: bytes, *, kind: str) -> Any:
        return json.loads(self._ask("PUT", path, {}, body, kind)[0])

    def delete(self, path: str, **query: object) -> Any:
        return json.loads(self._ask("DELETE", path, query)[0])

    def deliver(
        self, path: str, body: bytes, *, kind: str, query: Mapping[str, object]
    ) -> tuple[int, Mapping[str, Any], float]:
        """Status, JSON and retry delay (seconds) of a POST, without raising. Status 0: no answer."""
        try:
            answer = self._exchange("POST", self._address(path, query), body, kind)
            if answer.is_success:
                return answer.status, json.loads(answer.body), 0.0
        except (OSError, ValueError) as error:
            return 0, {"detail": f"{self.url} does not answer: {error}"}, 0.0
        after = answer.headers.get("retry-after", "")
        try:
            content = json.loads(answer.body)
        except ValueError:
            content = {}
        content = {"detail": answer.reason} | (content if isinstance(content, dict) else {})
        return answer.status, content, float(after) if after.isdigit() else 0.0

    def _address(self, path: str, query: Mapping[str, object]) -> str:
        text = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
        return f"{self.url}{quote(path)}" + (f"?{text}" if text else "")

    def _exchange(
        self, method: str, address: str, body: bytes | None, kind: str, sink: BinaryIO | None = None
    ) -> HttpAnswer:
        headers = {"content-type": kind} if kind else {}
        headers |= {"authorization": f"Bearer {self.key}"} if self.key else {}
        return self._client.exchange(
            method, address, content=body, headers=headers,
            deadline_s=TIMEOUT_S, is_whole=False, follows=method == "GET", sink=sink,
        )  # fmt: skip

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | None = None,
        kind: str = "",
        sink: BinaryIO | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        address, until = self._address(path, query), time.monotonic() + BUSY_S
        try:
            answer = self._exchange(method, address, body, kind, sink)
            while _is_busy(answer) and time.monotonic() < until:
                time.sleep(0.5)
                answer = self._exchange(method, address, body, kind, sink)
        except OSError as error:
            raise ServerError(
                f"{self._place()} does not answer: {error}; is `outrider serve` running?"
            ) from None
        if not answer.is_success:
            raise _error(answer.status, _detail(answer, address), self._place())
        return answer.body, answer.headers

    def _place(self) -> str:
        return f"{self.url} ({self.origin})" if self.origin else self.url


def connect(config: Path | None = None, *, url: str | None = None, key: str | None = None) -> Api:
    """Client of the service. ``url`` and ``key`` override `outrider.monitor.client.find_server`."""
    try:
        server = find_server(config)
    except (OSError, ValueError) as error:
        if url is None:
            raise ConfigError(f"the configuration cannot be read: {error}") from None
        server = Server(url, "", "outrider-data")
    if url is None and server.is_guess:
        raise ConfigError(
            "there is no outrider.toml here; `outrider init` writes one, --config names another, and "
            "OUTRIDER_URL a service"
        )
    if url is not None:
        server = Server(url.rstrip("/"), "", server.folder)
    if not server.url:
        raise ServerError(
            f"no service runs on {server.folder}; start `outrider serve`, or name one with OUTRIDER_URL"
        )
    if urlsplit(server.url).scheme not in ("http", "https"):
        raise ConfigError(f"{server.origin or 'url'}: http:// or https:// expected, got {server.url!r}")
    try:
        return Api(server.url, find_key(key, server.folder) or None, server.origin)
    except (OSError, ValueError) as error:
        raise ServerError(f"the key cannot be read: {error}") from None


def _is_busy(answer: HttpAnswer) -> bool:
    return answer.status == 503 and answer.headers.get("retry-after") == "1"


def _detail(answer: HttpAnswer, tried: str) -> str:
    try:
        return str(json.loads(answer.body)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{tried} was answered with {answer.status} {answer.reason}, which is not what Outrider says"


def _error(status: int, detail: str, url: str) -> OutriderError:
    if status in (401, 403):
        return ServerError(f"{url} refused the key: {detail}; set OUTRIDER_KEY or OUTRIDER_KEY_FILE")
    if status >= 500:
        return ServerError(f"{url}: {status} {detail}")
    kinds: dict[int, type[OutriderError]] = {404: NotFound, 409: GateRefused, 410: Erased}
    return kinds.get(status, OutriderError)(detail)


def one_model(api: Api, name: str | None) -> str:
    """``name``, or the only model of the service. Raises OutriderError if there are several."""
    if name is not None:
        return name
    names = sorted({str(row["model"]) for row in api.get("/v1/models")["models"]})
    if len(names) != 1:
        raise OutriderError(f"which model? the service has {', '.join(names) or 'none'}; name one")
    return names[0]


def record_tables(api: Api, model: str) -> "Iterator[pa.Table]":
    """Stored records of a model, one page per table."""
    return iter(_pages(api, model, 0).__next__, None)


def following_tables(api: Api, model: str) -> "Iterator[pa.Table | None]":
    """New records of a model, without end; None if none has arrived."""
    _, headers = api.get_page("/v1/records", model=model, from_end=True)
    return _pages(api, model, int(headers["x-outrider-next"]))


def _pages(api: Api, model: str, after: int) -> "Iterator[pa.Table | None]":
    import pyarrow as pa

    while True:
        body, headers = api.get_page("/v1/records", model=model, after=after)
        after = int(headers["x-outrider-next"])
        if not body:
            yield None
            continue
        with pa.ipc.open_stream(body) as reader:
            yield reader.read_all()
